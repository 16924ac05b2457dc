# SPDX-License-Identifier: MIT
"""How far a profile is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from typing_extensions import Self

PLAIN_INTERVAL_S = 5.0
"""Seconds between two lines where stderr is not a terminal."""


class Progress:
    """Shows the steps of a job on stderr.

    Args:
        total: How many there are.
        quiet: Show nothing.
    """

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total, self._quiet, self._done = total, quiet, 0
        self._next_s = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Rich

            self._bar = Rich(
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("left  {task.description}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            if error[0] is None:
                self._bar.update(self._task, completed=self._total, description="done")
            self._bar.stop()

    def next(self, name: str) -> None:
        """The next step begins."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=name)
        elif not self._quiet and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PLAIN_INTERVAL_S
            text = f"measuring {self._done + 1} of {self._total}: {name}"
            print(text, file=sys.stderr, flush=True)
        self._done += 1
