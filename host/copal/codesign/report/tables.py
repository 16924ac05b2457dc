# SPDX-License-Identifier: MIT
"""The tables of a report: runs, groups, settings, replay, machines; cells are plain text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from copal.codesign.report.folder import Run
from copal.codesign.report.groups import APART, Group, differences, shown
from copal.codesign.report.records import number
from copal.codesign.report.text import brief, duration


@dataclass(frozen=True)
class Table:
    """Text cells under a header; the first column names the row."""

    caption: str
    """What it shows."""
    header: tuple[str, ...]
    """One heading a column."""
    rows: tuple[tuple[str, ...], ...]
    """Cells, each row as long as the header."""
    text: frozenset[int] = frozenset()
    """Columns besides the first one that hold text, which is aligned left."""


def runs(groups: Sequence[Group]) -> Table:
    """A row a run: what became of it, how fast it was, how good."""
    named = len(groups) > 1
    header = ("run", *(("settings",) if named else ()), "seed", "status", "env steps", "updates")
    header += ("time", "env steps/s", "updates/s", "best evaluation", "final score")
    rows = []
    for group in groups:
        for run in group.runs:
            where = (group.label,) if named else ()
            seed = shown(run.config.get("seed"))
            rows.append((run.name, *where, seed, _status(run), *_figures(run)))
    caption = (
        "Runs. Rates are means over the training time, evaluations included; "
        "scores are mean returns ± the standard deviation over episodes."
    )
    return Table(caption, header, tuple(rows), frozenset({1, 3} if named else {2}))


def _figures(run: Run) -> tuple[str, ...]:
    return (
        brief(run.env_steps),
        brief(run.updates),
        duration(run.seconds),
        brief(_rate(run.env_steps, run.seconds)),
        brief(_rate(run.updates, run.seconds)),
        brief(run.best, 4),
        _score(run),
    )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else math.nan


def _status(run: Run) -> str:
    text = run.status
    if text == "running":
        text = f"running, last record {run.silent_s:.0f} s ago"
    elif text == "stopped":
        old = "no records" if math.isinf(run.silent_s) else f"silent for {duration(run.silent_s)}"
        text = f"stopped without a final score, {old}"
    times = run.records.resumes
    return f"{text}; resumed {times} time{'s' if times > 1 else ''}" if times else text


def _score(run: Run) -> str:
    final = run.records.final
    if final is None:
        return "-"
    mean, std, episodes = (number(final.get(n)) for n in ("mean_return", "std", "episodes"))
    spread = f" ± {std:.1f}" if math.isfinite(std) else ""
    over = f" ({episodes:.0f})" if math.isfinite(episodes) else ""
    return f"{mean:,.1f}{spread}{over}" if math.isfinite(mean) else "-"


def seeds(groups: Sequence[Group]) -> Table | None:
    """A row a group: means over its seeds with their range; None: each has one run."""
    if all(len(group.runs) == 1 for group in groups):
        return None
    header = ("settings", "seeds", "final score", "best evaluation", "env steps/s", "updates/s")
    rows = [
        (group.label, group.seeds, *(_over(group, take) for take in _TAKEN)) for group in groups
    ]
    caption = (
        "Means over the seeds of the same settings, with the lowest and the highest in brackets."
    )
    return Table(caption, header, tuple(rows), frozenset({1}))


_TAKEN: tuple[Callable[[Run], float], ...] = (
    lambda run: number((run.records.final or {}).get("mean_return")),
    lambda run: run.best,
    lambda run: _rate(run.env_steps, run.seconds),
    lambda run: _rate(run.updates, run.seconds),
)


def _over(group: Group, take: Callable[[Run], float]) -> str:
    found = np.array([v for v in map(take, group.runs) if math.isfinite(v)])
    if not len(found):
        return "-"
    text = brief(float(found.mean()), 4)
    if len(found) == 1:
        return text
    return f"{text} [{brief(float(found.min()), 4)}, {brief(float(found.max()), 4)}]"


def differing(groups: Sequence[Group]) -> Table | None:
    """A row for each setting that is not the same in all groups; None: all are the same."""
    names = differences(groups)
    if not names:
        return None
    return _settings("Settings that differ.", groups, names)


def common(groups: Sequence[Group]) -> Table:
    """A row for each setting that is the same in all groups."""
    apart = set(differences(groups)) | APART
    names = [name for name in groups[0].config if name not in apart]
    rows = [(name, shown(groups[0].config[name])) for name in names]
    return Table("Settings that all runs share.", ("setting", "value"), tuple(rows), frozenset({1}))


def _settings(caption: str, groups: Sequence[Group], names: Sequence[str]) -> Table:
    header = ("setting", *(group.label for group in groups))
    rows = [(name, *(shown(group.config.get(name)) for group in groups)) for name in names]
    return Table(caption, header, tuple(rows), frozenset(range(1, len(header))))


def replay(groups: Sequence[Group]) -> Table:
    """A row a group: how full its replay was, how often a row was drawn, what came too late."""
    header = ("settings", "rows", "filled", "draws a row", "stale updates", "sampling")
    rows = [(group.label, *_replay(group)) for group in groups]
    caption = (
        "Replay at the end, means over seeds. Draws a row: rows sampled over rows inserted. "
        "Stale updates: priorities of rows that had been overwritten, as a share of all."
    )
    return Table(caption, header, tuple(rows), frozenset({5}))


def _replay(group: Group) -> tuple[str, ...]:
    config, lasts = group.config, [run.records.last for run in group.runs if run.records.last]
    held = _mean([number(last.get("replay_rows")) for last in lasts])
    stale = _mean([number(last.get("stale_updates")) for last in lasts])
    updates = _mean([number(last.get("updates")) for last in lasts])
    steps = _mean([number(last.get("env_steps")) for last in lasts])
    sampled = updates * number(config.get("batch_size"))
    share = 100 * stale / sampled if sampled > 0 else math.nan
    draws = sampled / steps if steps > 0 else math.nan
    filled = 100 * held / number(config.get("buffer_size"))
    prioritized = f"by priority, alpha {shown(config.get('alpha'))}"
    return (
        brief(held),
        f"{filled:.1f} %" if math.isfinite(filled) else "-",
        brief(draws),
        f"{brief(share)} %" if math.isfinite(share) else "-",
        prioritized if config.get("prioritized") else "uniform",
    )


def _mean(values: Sequence[float]) -> float:
    found = [v for v in values if math.isfinite(v)]
    return sum(found) / len(found) if found else math.nan


def machines(groups: Sequence[Group]) -> Table:
    """A row a machine: processor, cores, memory, versions, and the runs that it made."""
    found: dict[tuple[str, ...], list[str]] = {}
    for group in groups:
        for run in group.runs:
            found.setdefault(_machine(run), []).append(run.name)
    header = ("processor", "cores", "ISA", "memory", "system", "versions", "runs")
    rows = [(*machine, ", ".join(names)) for machine, names in found.items()]
    return Table("Where the runs ran.", header, tuple(rows), frozenset({2, 4, 5, 6}))


def _machine(run: Run) -> tuple[str, ...]:
    machine = run.machine
    versions = machine.get("versions")
    known = versions.items() if isinstance(versions, dict) else ()
    memory = machine.get("memory_gib")
    return (
        shown(machine.get("cpu")),
        shown(machine.get("cores")),
        shown(machine.get("isa")),
        "-" if memory is None else f"{memory} GiB",
        shown(machine.get("system")),
        ", ".join(f"{name} {version}" for name, version in known) or "-",
    )
