# SPDX-License-Identifier: MIT
"""One measured implementation: a process that stands still until it is asked for a figure."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from typing_extensions import Self

from copal.bench.peers import LAUNCHER, Peer, interpreter

REMOVED_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH", "PYTHONHOME")
"""They would make NumPy choose other kernels than its own choice, or mix two environments."""


CLOSE_S = 30
"""Seconds that a process gets to end by itself."""


class DriverFailedError(Exception):
    """A driver could not be measured; the message is the reason of its row."""


def child_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a measured process: one thread, default kernels."""
    child = {name: value for name, value in parent.items() if name not in REMOVED_VARIABLES}
    child.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    return child


def peer_command(peer: Peer, driver: str, root: Path, arguments: Sequence[str]) -> list[str]:
    """The command line that runs a peer's driver with the peer's own interpreter."""
    return [str(interpreter(root, peer.environment)), str(LAUNCHER), driver, *arguments]


def own_command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs one of copal's own drivers."""
    return [sys.executable, "-m", module, *arguments]


class Driver:
    """A process that speaks the protocol of `peers/drivers/protocol.py`.

    Use it as a context manager: leaving ends the process.

    Args:
        name: Name of its rows.
        command: Program and arguments.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.versions: dict[str, str] = {}
        self._command = list(command)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, timeout_s: float) -> None:
        """Starts the process and waits until it is set up.

        Args:
            timeout_s: Longest wait in seconds.

        Raises:
            DriverFailedError: It cannot run here, with the reason.
        """
        self._errors = tempfile.TemporaryFile(  # noqa: SIM115 - closed by `close`
            "w+", encoding="utf-8", errors="replace"
        )
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=child_environment(os.environ),
            )
        except OSError as error:
            raise DriverFailedError(str(error)) from error
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()
        row = self._reply(timeout_s, "set up")
        self.versions = row.get("versions", {})

    def request(self, op: str, n: float, timeout_s: float) -> dict[str, Any]:
        """Asks for one measurement.

        Args:
            op: Operation.
            n: Its size.
            timeout_s: Longest wait in seconds.

        Returns:
            The driver's row.

        Raises:
            DriverFailedError: It failed or did not answer in time; it has been ended.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise DriverFailedError("not running")
        try:
            process.stdin.write(json.dumps({"op": op, "n": n}) + "\n")
            process.stdin.flush()
        except OSError as error:
            raise DriverFailedError(self._last_words(f"ended: {error}")) from error
        return self._reply(timeout_s, f"{op} {n:g}")

    def close(self) -> None:
        """Ends the process: politely, by the end of its input, then not."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            try:
                process.wait(timeout=CLOSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._end_reader(process)
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _end_reader(self, process: subprocess.Popen[str]) -> None:
        """Waits for the reading thread, unless a grandchild still holds the pipe open."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.join(CLOSE_S)
        if process.stdout is not None and (reader is None or not reader.is_alive()):
            process.stdout.close()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(None)

    def _reply(self, timeout_s: float, what: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._kill()
            raise DriverFailedError(f"{what}: no answer within {timeout_s:g} s") from None
        if line is None:
            raise DriverFailedError(self._last_words(f"{what}: ended without an answer"))
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            self._kill()
            raise DriverFailedError(f"{what}: not JSON: {line.strip()[:80]}") from None
        if "absent" in row:
            raise DriverFailedError(str(row["absent"]))
        result: dict[str, Any] = row
        return result

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _last_words(self, otherwise: str) -> str:
        """The last line of standard error, where Python puts the exception."""
        if self._errors is None:
            return otherwise
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                return otherwise
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return f"{otherwise}: {lines[-1]}" if lines else otherwise
