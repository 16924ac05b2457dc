# SPDX-License-Identifier: MIT
"""Reports: JSON for programs, Markdown tables for people and for the documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What one benchmark brought."""

    machine: dict[str, Any]
    """Where it ran, from `machine.describe`."""
    versions: dict[str, Any]
    """Versions, those of each implementation under its name."""
    rows: list[Row] = field(default_factory=list)
    """One a figure; an implementation that is absent has a row with the reason."""

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(
            {"machine": self.machine, "versions": self.versions, "rows": self.rows}, indent=1
        )


def heading(machine: dict[str, Any]) -> str:
    """One line on the machine."""
    load = machine.get("load_average")
    busy = f", load {load[0]:g}" if load else ""
    return f"{machine['cpu']}, {machine['cores']} cores, ISA {machine['isa']}{busy}"


def number(value: float) -> str:
    """A figure with three significant digits, and thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.1e}"


def times(ratio: float | None) -> str:
    """A ratio, such as `17x`; a dash if there is none."""
    return "-" if ratio is None else f"{number(ratio)}x"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns.

    Args:
        header: Names of the columns.
        lines: Cells, each line as long as the header.
    """
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    text = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in (header, rule, *lines)
    ]
    return "\n".join(text)


def replay_table(rows: Sequence[Row]) -> str:
    """A line for each operation and implementation, a column for each number of rows."""
    figures = [row for row in rows if "us" in row]
    sizes = sorted({row["rows"] for row in figures})
    cells: dict[tuple[str, int, str], dict[int, str]] = {}
    for row in figures:
        key = (row["op"], int(row["n"]), row["name"])
        text = number(row["us"])
        if row.get("ratio") is not None:
            text += f" ({times(row['ratio'])})"
        cells.setdefault(key, {})[row["rows"]] = text
    lines = [
        [f"{op} {n}", name, *(by_size.get(size, "-") for size in sizes)]
        for (op, n, name), by_size in sorted(cells.items(), key=lambda item: item[0][:2])
    ]
    header = ["operation", "implementation", *(f"{size:,} rows, us" for size in sizes)]
    return markdown(header, lines) + absences(rows)


def flat_table(
    rows: Sequence[Row], columns: Sequence[str], ratio: str = "times slower than copal"
) -> str:
    """A line for each row that has a figure.

    Args:
        rows: The report's rows.
        columns: Keys to show, besides the name and the ratio.
        ratio: Heading of the ratio's column.
    """
    lines = []
    for row in rows:
        if "absent" in row:
            continue
        figures = [cell(row.get(column)) for column in columns]
        lines.append([str(row["name"]), *figures, times(row.get("ratio"))])
    header = ["implementation", *columns, ratio]
    return markdown(header, lines) + absences(rows)


def absences(rows: Sequence[Row]) -> str:
    """A line for each implementation that is absent, once, with the reason."""
    seen = dict.fromkeys((row["name"], row["absent"]) for row in rows if "absent" in row)
    return "".join(f"\n{name}: absent: {reason}" for name, reason in seen)


def cell(value: Any) -> str:
    """A figure or a text; a dash if there is none."""
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)
