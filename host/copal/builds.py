# SPDX-License-Identifier: MIT
"""What is built once and kept: where sources lie, where results go, one build at a time.

The tools of a build do not outlive it: neither a signal nor an error leaves a compiler at work.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from copal.errors import BackendUnavailableError, ConfigError, reason


def root(folder: str, file: str) -> Path:
    """Parent of the source folders `hls`, `sim` and `kernels`: the checkout, or what was installed.

    Args:
        folder: The source folder that is needed.
        file: A file in it, by which it is known.

    Raises:
        BackendUnavailableError: Neither has them.
    """
    package = Path(__file__).resolve().parent
    for place in (package / "_data", package.parents[1]):
        if (place / folder / file).is_file():
            return place
    raise BackendUnavailableError(
        folder, "the sources beside the package", "none",
        "install copal-rl from its repository or a wheel",
    )  # fmt: skip


def cache(kind: str) -> Path:
    """Folder of what is built once: COPAL_CACHE, or `copal` in the user's cache folder.

    Args:
        kind: What is kept, a folder in it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("COPAL_CACHE") or Path(base) / "copal") / kind


def writable(folder: Path, setting: str) -> Path:
    """The folder, made if it is absent.

    Args:
        folder: Where something is to be written.
        setting: What the user chose it by.

    Raises:
        ConfigError: It cannot be made or written to; names `setting`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(setting, "a folder that can be made", reason(error)) from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(setting, "a folder that can be written to", f"`{folder}`")
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file `path`: two processes that want the same build make it once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def once(place: Path, make: Callable[[Path], Path]) -> Path:
    """What is kept at `place` in a cache, made unless it is there.

    Processes that want the same at the same time make it once. It appears whole or not at all.

    Args:
        place: A file or a folder; beside it lies its lock.
        make: Makes it in the folder that it gets, which goes afterwards; returns where.

    Raises:
        ConfigError: The cache cannot be written to, or is full.
    """
    if place.exists():
        return place
    writable(place.parent, "COPAL_CACHE")
    try:
        with locked(place.with_name(f"{place.name}.lock")):
            if not place.exists():
                with workspace(place) as work:
                    make(work).replace(place)
    except OSError as error:
        raise no_room(place.parent, reason(error)) from error
    return place


def no_room(folder: Path, reason: str) -> ConfigError:
    """The error of a build whose files cannot be written to the cache `folder`."""
    return ConfigError(
        "COPAL_CACHE", f"room to build in `{folder}`", reason,
        "make room there, or set COPAL_CACHE to another folder",
    )  # fmt: skip


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, which goes with the body.

    Those that a killed process left are removed; hold the lock of `folder`.
    """
    for left in folder.parent.glob(f"{folder.name}.*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
    with _signals_as_exits():
        work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def run(
    command: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    log: IO[str] | int = subprocess.PIPE,
    limit_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a tool; it and all that it started are gone when this returns or raises.

    Args:
        command: Program and arguments.
        folder: Where it runs.
        environment: Its environment variables; None: those of this process.
        log: Where it prints to; by default into `stdout` of the result.
        limit_s: Longest run in seconds.

    Raises:
        OSError: It cannot be started, or failed for want of room on a disk.
        subprocess.TimeoutExpired: It ran longer.
    """
    process = None
    with _signals_as_exits():
        try:
            with _signals_held():
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
            printed, _ = process.communicate(timeout=limit_s)
        finally:
            if process is not None:
                _end(process)
    full = _full_disk(printed) if process.returncode and isinstance(printed, str) else None
    if full is not None:
        raise full
    return subprocess.CompletedProcess(command, process.returncode, printed)


def _full_disk(printed: str) -> OSError | None:
    """The error of a tool that says it found no room, None if it says nothing of the kind."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text = os.strerror(number)
        line = next((line for line in printed.splitlines() if text in line), None)
        if line is not None:
            return OSError(number, line.strip())
    return None


def _end(process: subprocess.Popen[str]) -> None:
    """Kills a process with all of its group; it may have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Signals come after the body: no program is started that nobody knows of."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    kept = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in kept:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


@contextmanager
def _signals_as_exits() -> Iterator[None]:
    """Signals that would end this process at once end it as an exception that cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    fatal = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) == signal.SIG_DFL]
    for number in fatal:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in fatal:
            signal.signal(number, signal.SIG_DFL)


def write_text(path: Path, text: str) -> None:
    """Replaces the file at `path` in one step, so that nobody finds half of it."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


def processor() -> str:
    """What `-march=native` depends on, so that machines that share a home do not share builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
