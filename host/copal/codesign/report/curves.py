# SPDX-License-Identifier: MIT
"""Curves over steps or time: thinned for drawing, and averaged over the seeds of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from copal.codesign.report.folder import Run
from copal.codesign.report.groups import Group
from copal.codesign.report.records import Columns, Floats
from copal.runtime.control import NEVER

POINTS = 240
"""The most points of a drawn curve; of more, means over equal ranges."""


@dataclass(frozen=True)
class Trace:
    """One run's curve."""

    x: Floats
    """[n], rising."""
    y: Floats
    """[n], finite."""


@dataclass(frozen=True)
class Curve:
    """The mean of a group's traces, where more than half of its runs have got to."""

    x: Floats
    """[n], rising."""
    mean: Floats
    """[n]."""
    low: Floats
    """[n], the lowest trace."""
    high: Floats
    """[n], the highest trace."""
    traces: tuple[Trace, ...]
    """What it is the mean of."""


def of_records(group: Group, x: str, y: str) -> Curve:
    """Mean over the seeds of a figure of the train records.

    Args:
        group: The runs.
        x: `env_steps` or `elapsed_s`.
        y: Name of the figure.
    """
    traces = [thinned(_trace(run.records.train, x, y)) for run in group.runs]
    return average([t for t in traces if len(t.x)], len(group.runs))


def of_evaluations(group: Group, x: str) -> Curve:
    """Mean over the seeds of the mean returns of evaluations.

    Evaluations of different seeds lie a few steps apart: over steps, those within the same interval
    of `eval_interval` steps belong together.

    Args:
        group: The runs.
        x: `env_steps` or `elapsed_s`.
    """
    traces = [_trace(run.records.evals, x, "mean_return") for run in group.runs]
    places = [_places(run) if x == "env_steps" else np.empty(0) for run in group.runs]
    present = [i for i, trace in enumerate(traces) if len(trace.x)]
    if len(present) < 2 or any(len(places[i]) != len(traces[i].x) for i in present):
        return average([thinned(traces[i]) for i in present], len(group.runs))
    rows = np.unique(np.concatenate([places[i] for i in present]))
    xs, ys = (np.full((len(traces), len(rows)), np.nan) for _ in range(2))
    for i in present:
        at = np.searchsorted(rows, places[i])
        xs[i, at], ys[i, at] = traces[i].x, traces[i].y
    drawn = tuple(thinned(traces[i]) for i in present)
    return _reduced(xs, ys, drawn)


def _places(run: Run) -> Floats:
    """The number of each evaluation, by its steps; empty where that is not told."""
    interval = run.config.get("eval_interval")
    if not isinstance(interval, int) or not 0 < interval < NEVER:
        return np.empty(0)
    places = np.floor(run.records.evals["env_steps"] / interval)
    return places if len(np.unique(places)) == len(places) else np.empty(0)


def _trace(columns: Columns, x: str, y: str) -> Trace:
    xs, ys = columns[x], columns[y]
    good = np.isfinite(xs) & np.isfinite(ys)
    order = np.argsort(xs[good], kind="stable")
    return Trace(xs[good][order], ys[good][order])


def thinned(trace: Trace, points: int = POINTS) -> Trace:
    """At most `points` points: the means of x and y over equal ranges of x."""
    if len(trace.x) <= points:
        return trace
    first, last = trace.x[0], trace.x[-1]
    scale = points / max(last - first, np.finfo(float).tiny)
    bins = np.minimum(((trace.x - first) * scale).astype(int), points - 1)
    n = np.bincount(bins, minlength=points)
    full = n > 0
    x, y = (np.bincount(bins, v, minlength=points)[full] / n[full] for v in (trace.x, trace.y))
    return Trace(x, y)


def average(traces: Sequence[Trace], runs: int) -> Curve:
    """The mean of `traces`, interpolated between their points.

    Args:
        traces: Each with at least one point.
        runs: Runs of the group, those without a trace included.
    """
    if not traces:
        nothing = np.empty(0)
        return Curve(nothing, nothing, nothing, nothing, ())
    if len(traces) == 1:
        one = traces[0]
        return Curve(one.x, one.y, one.y, one.y, (one,))
    first, last = max(t.x[0] for t in traces), max(t.x[-1] for t in traces)
    grid = np.linspace(min(first, last), last, max(len(t.x) for t in traces))
    ys = np.array([np.interp(grid, t.x, t.y, np.nan, np.nan) for t in traces])
    missing = np.full((max(0, runs - len(traces)), len(grid)), np.nan)
    return _reduced(np.tile(grid, (runs, 1)), np.concatenate([ys, missing]), tuple(traces))


def _reduced(xs: Floats, ys: Floats, traces: tuple[Trace, ...]) -> Curve:
    """Mean and range of each column of [runs, n] where more than half of the runs have a value."""
    enough = np.isfinite(ys).sum(axis=0) * 2 > len(ys)
    xs, ys = np.where(np.isfinite(ys), xs, np.nan)[:, enough], ys[:, enough]
    if not ys.size:
        empty = np.empty(0)
        return Curve(empty, empty, empty, empty, traces)
    return Curve(
        np.nanmean(xs, axis=0),
        np.nanmean(ys, axis=0),
        np.nanmin(ys, axis=0),
        np.nanmax(ys, axis=0),
        traces,
    )
