# SPDX-License-Identifier: MIT
"""How the main thread steers the actors: the step budget, parking, stopping, signals."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

NEVER = 2**62
"""An env step that no run reaches."""


class StepBudget:
    """Hands out env steps until the run has taken `total`. Any number of threads.

    Args:
        total: Env steps of the whole run.
        taken: Steps already taken.
        wake: Set when the steps taken reach `alarm`.

    Attributes:
        alarm: When to wake the main thread next, in steps taken.
    """

    def __init__(self, total: int, taken: int, wake: threading.Event) -> None:
        self._total, self._taken, self._wake = total, taken, wake
        self._lock = threading.Lock()
        self.alarm = total

    @property
    def taken(self) -> int:
        """Steps handed out."""
        return self._taken

    def claim(self, n: int) -> int:
        """Takes n steps; the number of those taken before, or -1 if none is left.

        The last claim may go beyond the total, since an actor steps its environments together.
        """
        with self._lock:
            if self._taken >= self._total:
                return -1
            before = self._taken
            self._taken += n
            if self._taken >= self.alarm:
                self._wake.set()
            return before

    def refund(self, n: int) -> None:
        """Gives back n claimed steps that were not taken."""
        with self._lock:
            self._taken -= n


class Control:
    """Flags between the main thread and `count` actor threads.

    Args:
        count: Actor threads.
    """

    def __init__(self, count: int) -> None:
        self.hold = False
        """Actors look at this once a step; while set they park or leave."""
        self.wake = threading.Event()
        """Set when the main thread should look now."""
        self.stop_reason: str | None = None
        """Why the run should stop, once it should."""
        self._condition = threading.Condition()
        self._running, self._parked, self._leave = count, 0, False

    def stop(self, reason: str) -> None:
        """Asks the run to stop; the first reason stands. Safe in a signal handler."""
        if self.stop_reason is None:
            self.stop_reason = reason
        self.wake.set()

    def park(self) -> bool:
        """Called by an actor between two steps while `hold` is set; False: leave."""
        with self._condition:
            self._parked += 1
            self._condition.notify_all()
            while self.hold and not self._leave:
                self._condition.wait()
            self._parked -= 1
            return not self._leave

    def leave(self) -> None:
        """Called by an actor as its last act."""
        with self._condition:
            self._running -= 1
            self._condition.notify_all()
        self.wake.set()

    @property
    def running(self) -> int:
        """Actors that have not left."""
        return self._running

    @contextlib.contextmanager
    def parked(self, check: Callable[[], None]) -> Iterator[None]:
        """All actors stand between two steps while the body runs.

        Args:
            check: Called while waiting; raises if somebody failed.
        """
        self.hold = True
        try:
            self._await(lambda: self._parked == self._running, check)
            yield
        finally:
            with self._condition:
                self.hold = self._leave
                self._condition.notify_all()

    def dismiss(self) -> None:
        """Tells every actor to leave at its next step."""
        with self._condition:
            self._leave = self.hold = True
            self._condition.notify_all()

    def _await(self, reached: Callable[[], bool], check: Callable[[], None]) -> None:
        with self._condition:
            while not reached():
                self._condition.wait(0.05)
                check()


@contextlib.contextmanager
def signals(control: Control) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks for a stop, the second one does what it did before.

    Does nothing outside the main thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        for other, old in before.items():
            signal.signal(other, old)
        control.stop(signal.Signals(number).name)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def next_multiple(after: int, every: int) -> int:
    """The first multiple of `every` above `after`; never, if `every` is 0."""
    return (after // every + 1) * every if every else NEVER
