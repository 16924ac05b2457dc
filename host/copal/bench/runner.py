# SPDX-License-Identifier: MIT
"""Measures implementations in turn, in rounds of one run, so that their ratios mean something.

On a shared machine single figures move by half or more from minute to minute; neighbours within a
round move together. A row's figure is its median over the rounds, its ratio the median of the
ratios taken within each round.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from copal.bench.process import Driver, DriverFailedError

BASELINE = "copal-cpu"
SETUP_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    op: str
    """Operation, as the drivers name it."""
    n: float
    """Its size: rows at a time, or seconds."""
    timeout_s: float = 300.0
    """Longest wait for one answer, in seconds."""


@dataclass
class Measured:
    """What the rounds brought."""

    values: dict[tuple[str, Cell], list[dict[str, Any]]] = field(default_factory=dict)
    """Answers of an implementation for a cell, one a round."""
    absent: dict[str, str] = field(default_factory=dict)
    """Reason why an implementation has no figures, or lost the rest of them."""
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    """Installed versions that each implementation told of."""


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def set_up(drivers: Sequence[Driver], measured: Measured, timeout_s: float) -> list[Driver]:
    """Starts the drivers one after the other; returns those that can be measured."""
    running = []
    for driver in drivers:
        say(f"  {driver.name}: set-up")
        try:
            driver.start(timeout_s)
        except DriverFailedError as error:
            say(f"  {driver.name}: absent: {error}")
            measured.absent[driver.name] = str(error)
            driver.close()
            continue
        measured.versions[driver.name] = driver.versions
        running.append(driver)
    return running


def interleave(
    drivers: Sequence[Driver],
    cells: Sequence[Cell],
    rounds: int,
    setup_timeout_s: float = SETUP_TIMEOUT_S,
) -> Measured:
    """Measures every cell of every driver once a round; the order turns from round to round.

    Args:
        drivers: Not started; all of them are closed at the end.
        cells: What to measure.
        rounds: How often.
        setup_timeout_s: Longest wait for one driver's set-up, in seconds.

    Returns:
        All answers, and the reasons of those that are missing.
    """
    measured = Measured()
    try:
        running = set_up(drivers, measured, setup_timeout_s)
        for turn in range(rounds):
            say(f"  round {turn + 1} of {rounds}")
            for cell in cells:
                for driver in _turned(running, turn):
                    _ask(driver, cell, measured)
                running = [d for d in running if d.name not in measured.absent]
    finally:
        for driver in drivers:
            driver.close()
    return measured


def _turned(drivers: Sequence[Driver], turn: int) -> list[Driver]:
    if not drivers:
        return []
    first = turn % len(drivers)
    return [*drivers[first:], *drivers[:first]]


def _ask(driver: Driver, cell: Cell, measured: Measured) -> None:
    try:
        answer = driver.request(cell.op, cell.n, cell.timeout_s)
    except DriverFailedError as error:
        say(f"  {driver.name}: lost: {error}")
        measured.absent[driver.name] = str(error)
        driver.close()
        return
    measured.values.setdefault((driver.name, cell), []).append(answer)


def ratio(
    measured: Measured, name: str, cell: Cell, key: str, slower: Callable[[float, float], float]
) -> float | None:
    """How many times slower than the baseline: the median over rounds.

    Args:
        measured: The answers.
        name: Implementation.
        cell: What was measured.
        key: Field of the answer that counts.
        slower: From (this figure, the baseline's figure) to how many times slower this one is.

    Returns:
        None if there is no baseline to compare with.
    """
    mine = measured.values.get((name, cell), [])
    base = measured.values.get((BASELINE, cell), [])
    pairs = list(zip(mine, base, strict=False))
    if not pairs:
        return None
    return statistics.median(slower(a[key], b[key]) for a, b in pairs)


def cost_slower(mine: float, base: float) -> float:
    """For figures where less is better."""
    return mine / base


def rate_slower(mine: float, base: float) -> float:
    """For figures where more is better."""
    return base / mine


def absent_rows(measured: Measured, **labels: Any) -> list[dict[str, Any]]:
    """One row for each implementation that has no figures or lost some, with the reason."""
    return [{"name": name, **labels, "absent": reason} for name, reason in measured.absent.items()]
