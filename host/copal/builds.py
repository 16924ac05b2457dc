# SPDX-License-Identifier: MIT
"""What is built once and kept: where sources lie, where results go, one build at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from copal.errors import BackendUnavailableError, ConfigError


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
        raise ConfigError(setting, "a folder that can be made", str(error)) from error
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


def processor() -> str:
    """What `-march=native` depends on, so that machines that share a home do not share builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
