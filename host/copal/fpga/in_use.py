# SPDX-License-Identifier: MIT
"""Closing of a device while another thread is inside it: freed behind the last call, not under it.

A run that is stopped closes its devices, whatever its learner's thread is doing. A simulator that
is freed under a call ends the process; a board's DMA would write into memory of somebody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from copal.errors import FpgaError


class InUse:
    """Counts the calls inside a device. Any number of threads; use it as a context manager.

    Args:
        free: Called once, by `close` or by the last call that leaves after it.

    Attributes:
        closed: Whether `close` was called.
    """

    def __init__(self, free: Callable[[], None]) -> None:
        self.closed = False
        self._free, self._lock, self._inside = free, threading.Lock(), 0

    def __enter__(self) -> None:
        """Enters a call.

        Raises:
            FpgaError: The device was closed.
        """
        with self._lock:
            if self.closed:
                raise FpgaError("device", "an open device", "one that was closed")
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves it."""
        with self._lock:
            self._inside -= 1
            last = self.closed and not self._inside
        if last:
            self._free()

    def close(self) -> None:
        """Refuses calls from now on. More calls are harmless."""
        with self._lock:
            last = not self.closed and not self._inside
            self.closed = True
        if last:
            self._free()
