# SPDX-License-Identifier: MIT
"""What was planned for a run beside what it achieved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from copal.codesign.report.folder import Run
from copal.codesign.report.groups import Group, shown
from copal.codesign.report.records import number
from copal.codesign.report.tables import Table
from copal.codesign.report.text import brief

_RATES = (("env steps/s", "env_steps_per_s"), ("updates/s", "updates_per_s"))


def tables(groups: Sequence[Group]) -> tuple[Table, ...]:
    """A table for each run that had a plan: rates, ratio and stages, predicted and achieved."""
    return tuple(_table(run) for group in groups for run in group.runs if run.plan is not None)


def drifts(groups: Sequence[Group]) -> tuple[str, ...]:
    """What was said while runs drifted from their plans."""
    runs = [run for group in groups for run in group.runs]
    return tuple(
        f"{run.name}: {text}" for run in runs for text in _list((run.achieved or {}).get("drift"))
    )


def promised(groups: Sequence[Group], name: str) -> list[float]:
    """The rates that plans promise, each once.

    Args:
        groups: The runs.
        name: `env_steps_per_s` or `updates_per_s`.
    """
    plans = [run.plan for group in groups for run in group.runs if run.plan is not None]
    rates = {number(_map(_map(plan.get("chosen")).get("predicted")).get(name)) for plan in plans}
    return sorted(rate for rate in rates if math.isfinite(rate))


def _table(run: Run) -> Table:
    lines = _list((run.achieved or {}).get("lines")) or _so_far(run)
    rows = tuple(_row(line) for line in lines if isinstance(line, dict))
    return Table(_caption(run), ("figure", "predicted", "achieved", "off"), rows)


def _caption(run: Run) -> str:
    plan = run.plan or {}
    chosen = _map(plan.get("chosen"))
    allocation = _map(chosen.get("allocation"))
    actors, learners = (shown(allocation.get(name)) for name in ("actors", "learners"))
    text = f"{run.name}: planned with {actors} + {learners} threads (actors + learners)"
    text += f" on {shown(chosen.get('backend'))}, for {shown(plan.get('objective'))}"
    why = plan.get("why")
    return f"{text}; {why}." if isinstance(why, str) and why else f"{text}."


def _so_far(run: Run) -> list[dict[str, Any]]:
    """The rates of a run that was not compared at its end."""
    predicted = _map(_map((run.plan or {}).get("chosen")).get("predicted"))
    amounts = (run.env_steps, run.updates)
    return [
        {"name": name, "predicted": predicted.get(key), "achieved": amount / run.seconds}
        for (name, key), amount in zip(_RATES, amounts, strict=True)
        if run.seconds > 0
    ]


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    predicted, achieved = number(line.get("predicted")), number(line.get("achieved"))
    off = achieved / predicted - 1 if predicted else math.nan
    told = f"{100 * off:+.0f} %" if math.isfinite(off) else "-"
    return shown(line.get("name")), brief(predicted), brief(achieved), told


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
