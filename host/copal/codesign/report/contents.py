# SPDX-License-Identifier: MIT
"""What a report says about runs, section by section."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import copal
from copal.codesign.report import figures, planned, tables
from copal.codesign.report.figures import Bars, Figure
from copal.codesign.report.groups import Group
from copal.codesign.report.tables import Table
from copal.codesign.report.text import brief


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading."""

    key: str
    """Short name, for links."""
    title: str
    """Heading."""
    notes: tuple[str, ...] = ()
    """Sentences before the figures."""
    figures: tuple[Figure, ...] = ()
    """What it draws."""
    tables: tuple[Table, ...] = ()
    """What it lists."""


@dataclass(frozen=True)
class Contents:
    """A whole report."""

    title: str
    """Heading."""
    lead: str
    """One sentence below it."""
    groups: tuple[Group, ...]
    """What the colours stand for."""
    sections: tuple[Section, ...]
    """Its parts, in order."""
    footer: str
    """Who made it when."""

    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [figure for section in self.sections for figure in section.figures]


def contents(groups: Sequence[Group], title: str | None = None) -> Contents:
    """Everything that the runs in `groups` have figures for.

    Args:
        groups: At least one.
        title: Heading; None: what was trained on what.
    """
    count = sum(len(group.runs) for group in groups)
    if title is None:
        title = ", ".join(dict.fromkeys(_what(group) for group in groups))
    lead = f"{count} run{'s' if count > 1 else ''}"
    if len(groups) > 1:
        lead += f", {len(groups)} different settings"
    stamp = time.strftime("%Y-%m-%d %H:%M %Z")
    parts = [
        Section("runs", "Runs", tables=_present(tables.runs(groups), tables.seeds(groups))),
        _learning(groups),
        _throughput(groups),
        _stages(groups),
        _plan(groups),
        _replay(groups),
        Section("learner", "Learner", figures=tuple(figures.learner(groups))),
        _settings(groups),
        Section("machine", "Machine", tables=(tables.machines(groups),)),
        Section("notes", "Notes", notes=tuple(_notes(groups))),
    ]
    told = tuple(part for part in parts if part.figures or part.tables or part.notes)
    footer = f"Written by copal {copal.__version__} on {stamp.strip()}."
    return Contents(title, f"{lead}.", tuple(groups), told, footer)


def _what(group: Group) -> str:
    return f"{group.config.get('algo', '-')} on {group.config.get('env', '-')}"


def _present(*found: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in found if table is not None)


def _learning(groups: Sequence[Group]) -> Section:
    notes = []
    if any(len(group.runs) > 1 for group in groups):
        notes.append(
            "Lines are means over the seeds of the same settings, as far as more than half of them "
            "got; bands span the lowest and the highest seed; thin lines are single seeds."
        )
    without = [run.name for g in groups for run in g.runs if not len(run.records.evals)]
    if without:
        notes.append(f"No evaluation during training: {', '.join(without)}.")
    return Section("learning", "Learning", tuple(notes), tuple(figures.learning(groups)))


def _throughput(groups: Sequence[Group]) -> Section:
    notes = (
        "Time is training time: pauses between the sessions of a resumed run do not count. Ratio: "
        "steps after learning began over updates.",
    )
    drawn = tuple(figures.throughput(groups))
    return Section("throughput", "Throughput and ratio", notes if drawn else (), drawn)


def _stages(groups: Sequence[Group]) -> Section:
    found = (figures.learner_stages(groups), figures.actor_stages(groups))
    drawn = tuple(bars for bars in found if bars is not None)
    listed = tuple(_listed(bars) for bars in drawn)
    return Section("stages", "Stage times", figures=drawn, tables=listed)


def _listed(bars: Bars) -> Table:
    rows = tuple(
        (row.label, *(brief(part) for part in row.parts), brief(sum(row.parts)))
        for row in bars.rows
    )
    return Table(f"{bars.title}: {bars.x_label}.", ("settings", *bars.parts, "sum"), rows)


def _plan(groups: Sequence[Group]) -> Section:
    said = planned.drifts(groups)
    return Section("plan", "Plan against achieved", said, tables=planned.tables(groups))


def _replay(groups: Sequence[Group]) -> Section:
    if not any(run.records.last for group in groups for run in group.runs):
        return Section("replay", "Replay")
    stale = figures.staleness(groups)
    drawn = (*figures.replay(groups), *(() if stale is None else (stale,)))
    return Section("replay", "Replay", figures=drawn, tables=(tables.replay(groups),))


def _settings(groups: Sequence[Group]) -> Section:
    differing, notes = tables.differing(groups), tuple[str, ...]()
    if differing is None and len(groups) == 1 and len(groups[0].runs) > 1:
        notes = ("The runs differ in nothing but their seeds.",)
    return Section("settings", "Settings", notes, tables=_present(differing, tables.common(groups)))


def _notes(groups: Sequence[Group]) -> list[str]:
    notes = []
    for run in (run for group in groups for run in group.runs):
        records = run.records
        if not len(records.train) and not len(records.evals):
            notes.append(f"{run.name}: no records yet.")
        if records.unreadable:
            lines = "line" if records.unreadable == 1 else "lines"
            notes.append(
                f"{run.name}: {records.unreadable:,} {lines} of metrics.jsonl could not be read, "
                "such as one that was cut while it was written."
            )
        if records.stride > 1:
            notes.append(
                f"{run.name}: so long that every {records.stride:,}th record was read; rates are "
                "those of single seconds."
            )
        notes += [f"{run.name}: warning: {text}" for text in records.warnings]
    return notes
