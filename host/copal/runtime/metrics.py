# SPDX-License-Identifier: MIT
"""Where a run's figures go: metrics.jsonl, TensorBoard, and the terminal's stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import Self

if TYPE_CHECKING:
    from rich.console import Console

FILE = "metrics.jsonl"
"""Name of the records' file in a run folder."""
PLAIN_INTERVAL_S = 5.0
"""Seconds between two lines where stderr is not a terminal."""
BAR_COLUMNS = 24
"""Width of the bar, where a terminal has room for it."""


class Progress(Protocol):
    """Shows a run on stderr."""

    def update(self, env_steps: int, figures: Mapping[str, float]) -> None:
        """Shows the newest figures."""

    def say(self, text: str) -> None:
        """Shows one message and keeps it."""

    def close(self) -> None:
        """Shows the last figures and lets go of the terminal."""


class Silent:
    """Shows nothing."""

    def update(self, env_steps: int, figures: Mapping[str, float]) -> None:
        """Ignores the figures."""

    def say(self, text: str) -> None:
        """Ignores the message."""

    def close(self) -> None:
        """Does nothing."""


class Lines:
    """One plain line every few seconds, for logs.

    Args:
        total: Env steps of the whole run.
        interval_s: Seconds between two lines.
    """

    def __init__(self, total: int, interval_s: float = PLAIN_INTERVAL_S) -> None:
        self._total, self._interval_s, self._next_s = total, interval_s, 0.0
        self._last = ""

    def update(self, env_steps: int, figures: Mapping[str, float]) -> None:
        """Prints a line if the last one is old enough."""
        self._last = f"step {env_steps}/{self._total}  {describe(figures)}"
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._interval_s
            self._print(self._last)
            self._last = ""

    def say(self, text: str) -> None:
        """Prints the message."""
        self._print(text)

    def close(self) -> None:
        """Prints the figures that were not shown yet."""
        if self._last:
            self._print(self._last)

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar:
    """The figures in one line that fits 80 columns, for terminals; wider ones get a bar in front.

    Args:
        total: Env steps of the whole run.
        console: Where to draw; None: stderr.
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._total = total
        console = console or Console(stderr=True)
        wide = [BarColumn(bar_width=BAR_COLUMNS)] if console.width > 80 + BAR_COLUMNS else []
        self._bar = RichProgress(
            *wide,
            TextColumn("{task.fields[steps]}"),
            TimeRemainingColumn(),
            TextColumn("left {task.fields[figures]}"),
            console=console,
            refresh_per_second=4,
        )
        steps = _steps(0, total)
        self._task = self._bar.add_task("train", total=total, steps=steps, figures="")
        self._bar.start()

    def update(self, env_steps: int, figures: Mapping[str, float]) -> None:
        """Moves the bar."""
        self._bar.update(
            self._task,
            completed=env_steps,
            steps=_steps(env_steps, self._total),
            figures=describe_briefly(figures),
        )

    def say(self, text: str) -> None:
        """Prints the message above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leaves the last state on the screen."""
        self._bar.stop()


def progress(total: int, *, quiet: bool) -> Progress:
    """A bar on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        return Silent()
    return Bar(total) if sys.stderr.isatty() else Lines(total)


def describe(figures: Mapping[str, float]) -> str:
    """The figures that matter most, as one short text."""
    parts = []
    for name, text in (
        ("return", "return {:.1f}"),
        ("env_steps_per_s", "{:,.0f} steps/s"),
        ("updates_per_s", "{:,.0f} updates/s"),
        ("ratio", "ratio {:.3f}"),
        ("staleness_mean", "staleness {:.2f}"),
    ):
        value = figures.get(name, math.nan)
        if math.isfinite(value):
            parts.append(text.format(value))
    return "  ".join(parts)


def describe_briefly(figures: Mapping[str, float]) -> str:
    """The same in at most 51 columns."""
    parts = []
    for name, text in (
        ("return", "return {}"),
        ("env_steps_per_s", "{} steps/s"),
        ("updates_per_s", "{} upd/s"),
        ("ratio", "ratio {}"),
    ):
        value = figures.get(name, math.nan)
        if math.isfinite(value):
            digits = 2 if name == "ratio" else 1 if name == "return" else 0
            parts.append(text.format(_brief(value, digits)))
    return " ".join(parts)


def _brief(value: float, digits: int) -> str:
    """`value` with at most so many digits after the point; from 10,000 on as `12.3k`."""
    for limit, scale, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            size = abs(value) / scale
            return f"{value / scale:.{2 if size < 10 else 1 if size < 100 else 0}f}{unit}"
    return f"{value:.{min(digits, 2 if abs(value) < 10 else 1)}f}"


def _steps(done: int, total: int) -> str:
    """Steps done and to do, in at most 15 columns."""
    if total < 1_000_000:
        return f"{done:,}/{total:,}"
    return f"{done / 1e6:.2f}M/{total / 1e6:.4g}M"


class MetricsLog:
    """Appends records to metrics.jsonl and, if asked, to TensorBoard's events.

    Args:
        folder: Run folder.
        tensorboard: Also write events.
    """

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self._file = (folder / FILE).open("a", encoding="utf-8")
        self._events: Any = None
        if tensorboard:
            from tensorboardX import SummaryWriter

            self._events = SummaryWriter(str(folder / "events"))

    def write(self, kind: str, env_steps: int, figures: Mapping[str, Any]) -> None:
        """Appends one record.

        Args:
            kind: `train`, `eval` or `event`.
            env_steps: Env steps so far.
            figures: Names and values; those that are not finite become null.
        """
        plain = {k: _finite(v) for k, v in figures.items()}
        record = {"kind": kind, "time_s": round(time.time(), 3), "env_steps": env_steps, **plain}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        if self._events is not None:
            for name, value in plain.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._events.add_scalar(f"{kind}/{name}", value, env_steps)

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
