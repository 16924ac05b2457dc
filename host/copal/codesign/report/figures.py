# SPDX-License-Identifier: MIT
"""What a report draws, before anything is drawn: charts of curves, and bars of stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from copal.codesign.report import curves, planned
from copal.codesign.report.curves import Curve, Trace
from copal.codesign.report.folder import Run
from copal.codesign.report.groups import Group
from copal.codesign.report.records import Floats, number
from copal.codesign.report.text import brief

LEARNER_STAGES = {
    "sample_s": "sample",
    "step_s": "row program and reduce",
    "priority_s": "priority update",
    "publish_s": "publish weights",
    "wait_s": "wait for steps",
}
"""Counters of the learners' threads, in seconds."""
ACTOR_STAGES = {
    "inference_s": "inference",
    "env_s": "environment",
    "insert_s": "insert",
    "gate_s": "wait for updates",
}
"""Counters of the actors' threads, in seconds over `timed_steps` steps of all its environments."""
_RUN = {
    "env_steps",
    "elapsed_s",
    "episodes",
    "updates",
    "env_restarts",
    "episode_length",
    "return",
    "ratio",
    "env_steps_per_s",
    "updates_per_s",
    "replay_rows",
    "stale_updates",
    "beta",
    "epsilon",
    "timed_steps",
}


@dataclass(frozen=True)
class Line:
    """One group's curve in a chart."""

    group: int
    """Index of the group."""
    label: str
    """Label of the group."""
    curve: Curve
    """What to draw."""


@dataclass(frozen=True)
class Rule:
    """A horizontal line at a value that was asked for."""

    y: float
    """Where it lies."""
    label: str
    """What it says."""


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    key: str
    """Short name, for files and links."""
    title: str
    """What it shows."""
    x_label: str
    """Horizontal axis, with its unit."""
    y_label: str
    """Vertical axis, with its unit."""
    lines: tuple[Line, ...]
    """At least one, each with at least one point."""
    rules: tuple[Rule, ...] = ()
    """Lines at values that were asked for."""


@dataclass(frozen=True)
class Bar:
    """One row of a bar chart."""

    label: str
    """What it belongs to."""
    parts: tuple[float, ...]
    """Length of each part, in the chart's unit."""


@dataclass(frozen=True)
class Bars:
    """Rows of stacked parts."""

    key: str
    """Short name, for files and links."""
    title: str
    """What it shows."""
    x_label: str
    """The axis, with its unit."""
    parts: tuple[str, ...]
    """Names of the parts."""
    rows: tuple[Bar, ...]
    """At least one."""


Figure = Chart | Bars


@dataclass(frozen=True)
class Axis:
    """What curves are drawn over."""

    key: str
    """`steps` or `time`."""
    column: str
    """Column of the records."""
    label: str
    """Name and unit."""
    per_unit: float = 1.0
    """What a column's value is divided by."""


STEPS = Axis("steps", "env_steps", "environment steps")


def time_axis(groups: Sequence[Group]) -> Axis:
    """Training time, in the unit that suits the longest run."""
    longest = max((run.seconds for g in groups for run in g.runs if run.seconds > 0), default=0.0)
    for limit, unit, per_unit in ((180.0, "s", 1.0), (10_800.0, "min", 60.0)):
        if longest < limit:
            return Axis("time", "elapsed_s", f"training time / {unit}", per_unit)
    return Axis("time", "elapsed_s", "training time / h", 3600.0)


def learning(groups: Sequence[Group]) -> list[Chart]:
    """Returns over steps and over time: of evaluations, and while training."""
    charts = []
    for name, title, label in (
        ("", "Evaluation", "mean return of an evaluation"),
        ("return", "While training", "mean return of the last 100 episodes"),
    ):
        for axis in (STEPS, time_axis(groups)):
            made = _evaluations(axis) if not name else _figure(axis, name)
            key = f"{name or 'evaluation'}-{axis.key}"
            charts.append(_chart(groups, key, f"{title} over {axis.key}", axis, label, made))
    return _drawable(charts)


def throughput(groups: Sequence[Group]) -> list[Chart]:
    """Steps and updates a second over time, and the ratio, each beside what was asked for."""
    time = time_axis(groups)
    ratio = _chart(
        groups, "ratio", "Ratio", STEPS, "environment steps an update", _figure(STEPS, "ratio")
    )
    asked = {number(g.config.get("update_interval")) for g in groups}
    rules = tuple(Rule(y, f"asked for: {y:g}") for y in sorted(asked) if np.isfinite(y))
    charts = []
    for title, unit, column in (
        ("Environment steps a second", "env steps", "env_steps_per_s"),
        ("Updates a second", "updates", "updates_per_s"),
    ):
        key = column.replace("_", "-")
        chart = _chart(groups, key, title, time, f"{unit} / s", _figure(time, column))
        plans = [Rule(y, f"plan: {brief(y)}") for y in planned.promised(groups, column)]
        charts.append(replace(chart, rules=tuple(plans)))
    return _drawable([*charts, replace(ratio, rules=rules)])


def replay(groups: Sequence[Group]) -> list[Chart]:
    """What the replay held, what came too late for it, and how its draws were weighted."""
    charts = _drawable(
        [
            _chart(groups, key, title, STEPS, label, _figure(STEPS, column))
            for key, title, label, column in (
                ("replay-rows", "Rows in the replay", "rows", "replay_rows"),
                ("stale-updates", "Stale priority updates", "updates, in all", "stale_updates"),
                ("beta", "Exponent of the importance weights", "beta", "beta"),
                ("epsilon", "Random actions", "share of actions", "epsilon"),
            )
        ]
    )
    return [c for c in charts if any(line.curve.high.any() for line in c.lines)]


def learner(groups: Sequence[Group]) -> list[Chart]:
    """Every other figure that the learners report: losses, values, norms."""
    found = dict.fromkeys(n for g in groups for run in g.runs for n in run.records.train.names())
    own = [n for n in found if n not in _RUN and (n.endswith("_per_s") or not n.endswith("_s"))]
    return _drawable(
        [
            _chart(groups, n.replace("_", "-"), n.replace("_", " "), STEPS, n, _figure(STEPS, n))
            for n in own
        ]
    )


def learner_stages(groups: Sequence[Group]) -> Bars | None:
    """Microseconds of the learners' threads an update, by stage; None: not timed."""
    title = "Time of an update by stage"
    unit = "thread time an update / µs"
    return _stages(groups, "learner-stages", title, unit, LEARNER_STAGES, "updates")


def actor_stages(groups: Sequence[Group]) -> Bars | None:
    """Microseconds of the actors' threads an environment step, by stage; None: not timed."""
    title = "Time of an environment step by stage"
    unit = "thread time an environment step / µs"
    return _stages(groups, "actor-stages", title, unit, ACTOR_STAGES, "timed_steps")


def _stages(
    groups: Sequence[Group], key: str, title: str, unit: str, names: dict[str, str], per: str
) -> Bars | None:
    rows = []
    for group in groups:
        costs = np.array([[_cost(run, name, per) for name in names] for run in group.runs])
        costs = costs[np.isfinite(costs).any(axis=1)]
        if len(costs):
            rows.append(Bar(group.label, tuple(np.nan_to_num(costs).mean(axis=0).tolist())))
    return Bars(key, title, unit, tuple(names.values()), tuple(rows)) if rows else None


def _cost(run: Run, name: str, per: str) -> float:
    """Microseconds of one stage for one of what `per` counts; NaN if it was not timed."""
    envs = number(run.config.get("num_envs", 1))
    count = run.updates if per == "updates" else run.total(per) * envs
    return 1e6 * run.total(name) / count if count > 0 else math.nan


def staleness(groups: Sequence[Group]) -> Bars | None:
    """Shares of updates by staleness, for asynchronous learners; None: there were none."""
    rows = []
    for group in groups:
        counts = [_counts(run.records.last.get("staleness")) for run in group.runs]
        total = np.sum([c for c in counts if len(c) == 9] or [np.zeros(1)], axis=0)
        if total.sum() > 0:
            rows.append(Bar(group.label, tuple(100 * total / total.sum())))
    if not rows:
        return None
    parts = (*map(str, range(8)), "8 or more")
    title = "Updates that others applied while a gradient was computed"
    return Bars("staleness", title, "share of updates / %", parts, tuple(rows))


def _counts(value: object) -> Floats:
    found = [number(v) for v in value] if isinstance(value, list) else []
    return np.array(found) if all(map(np.isfinite, found)) else np.empty(0)


def _figure(axis: Axis, name: str) -> Callable[[Group], Curve]:
    return lambda group: curves.of_records(group, axis.column, name)


def _evaluations(axis: Axis) -> Callable[[Group], Curve]:
    return lambda group: curves.of_evaluations(group, axis.column)


def _chart(
    groups: Sequence[Group],
    key: str,
    title: str,
    axis: Axis,
    y_label: str,
    made: Callable[[Group], Curve],
) -> Chart:
    found = [(g, _rescaled(made(g), axis.per_unit)) for g in groups]
    lines = [Line(g.index, g.label, c) for g, c in found if len(c.x) or c.traces]
    return Chart(key, title, axis.label, y_label, tuple(lines))


def _rescaled(curve: Curve, per_unit: float) -> Curve:
    if per_unit == 1.0:
        return curve
    traces = tuple(Trace(t.x / per_unit, t.y) for t in curve.traces)
    return replace(curve, x=curve.x / per_unit, traces=traces)


def _drawable(charts: Sequence[Chart]) -> list[Chart]:
    return [chart for chart in charts if chart.lines]
