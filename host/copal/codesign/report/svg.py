# SPDX-License-Identifier: MIT
"""Figures as inline SVG; colours are classes, so that a page can be light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from copal.codesign.report.figures import Bars, Chart, Figure, Line
from copal.codesign.report.records import Floats
from copal.codesign.report.scale import Scale, axes, scale
from copal.codesign.report.text import brief

COLOURS = 7
"""Colours of groups; further groups have them again, dashed."""
WIDTH, HEIGHT = 560, 316
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 48
ROW = 40
"""Height of one row of a bar chart."""


@dataclass(frozen=True)
class Place:
    """Where the axes of a chart lie in its picture."""

    x: Scale
    """Horizontal axis."""
    y: Scale
    """Vertical axis."""

    def across(self, values: Floats) -> Floats:
        """Horizontal places of `values`."""
        return LEFT + self.x.at(values) * (WIDTH - LEFT - RIGHT)

    def down(self, values: Floats) -> Floats:
        """Vertical places of `values`."""
        return HEIGHT - BOTTOM - self.y.at(values) * (HEIGHT - TOP - BOTTOM)

    def points(self, x: Floats, y: Floats) -> str:
        """The points of a polyline."""
        pairs = zip(self.across(x), self.down(y), strict=True)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)


def colour(group: int) -> str:
    """Classes that choose a group's colour and dashes."""
    return f"c{group % COLOURS}" + (" dashed" if (group // COLOURS) % 2 else "")


def drawn(figure: Figure) -> str:
    """The figure as one SVG element."""
    return _bars(figure) if isinstance(figure, Bars) else _chart(figure)


def values(chart: Chart) -> dict[str, Any]:
    """What the pointer may ask of a chart: its axes and the values of its curves."""
    x, y = axes(chart)
    return {
        "x": [x.low, x.high],
        "y": [y.low, y.high],
        "box": [LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM],
        "lines": [_line_values(line) for line in chart.lines],
    }


def _line_values(line: Line) -> dict[str, Any]:
    curve = line.curve
    found: dict[str, Any] = {"group": line.group, "label": line.label, "colour": colour(line.group)}
    found |= {"x": _short(curve.x), "mean": _short(curve.mean)}
    if len(curve.traces) > 1:
        found |= {"low": _short(curve.low), "high": _short(curve.high)}
    return found


def _short(numbers: Floats) -> list[float]:
    return [float(f"{n:.5g}") for n in numbers]


def _chart(chart: Chart) -> str:
    place = Place(*axes(chart))
    parts = [_grid(place), _labels(chart.x_label, chart.y_label)]
    for rule in chart.rules:
        y = place.down(np.array([rule.y]))[0]
        parts.append(
            f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="rule-label" x="{WIDTH - RIGHT - 4}" y="{y - 5:.1f}">'
            f"{escape(rule.label)}</text>"
        )
    parts += [_line(line, place) for line in chart.lines]
    parts.append('<g class="pointer"></g>')
    return _svg(chart, HEIGHT, "".join(parts))


def _svg(figure: Figure, height: float, inside: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(figure.title)}">'
        f"{inside}</svg>"
    )


def _grid(place: Place) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    ys = place.down(np.array(place.y.ticks))
    for y, label in zip(ys, place.y.labels(), strict=True):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick y" x="{LEFT - 8}" y="{y + 4:.1f}">{label}</text>'
        )
    xs = place.across(np.array(place.x.ticks))
    for x, label in zip(xs, place.x.labels(), strict=True):
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
            f'<text class="tick x" x="{x:.1f}" y="{bottom + 19}">{label}</text>'
        )
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    return "".join(parts)


def _labels(x_label: str, y_label: str) -> str:
    middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
    return (
        f'<text class="label" x="{LEFT + (WIDTH - LEFT - RIGHT) / 2:g}" y="{HEIGHT - 8}">'
        f"{escape(x_label)}</text>"
        f'<text class="label" transform="translate(15 {middle:g}) rotate(-90)">'
        f"{escape(y_label)}</text>"
    )


def _line(line: Line, place: Place) -> str:
    curve, parts = line.curve, []
    if len(curve.traces) > 1:
        x = np.concatenate([curve.x, curve.x[::-1]])
        y = np.concatenate([curve.high, curve.low[::-1]])
        parts.append(f'<polygon class="band" points="{place.points(x, y)}"/>')
        parts += [
            f'<polyline class="trace" points="{place.points(t.x, t.y)}"/>' for t in curve.traces
        ]
    if len(curve.x) == 1:
        x, y = place.across(curve.x)[0], place.down(curve.mean)[0]
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    elif len(curve.x):
        parts.append(f'<polyline class="mean" points="{place.points(curve.x, curve.mean)}"/>')
    return f'<g class="line {colour(line.group)}" data-group="{line.group}">{"".join(parts)}</g>'


def _bars(bars: Bars) -> str:
    axis = scale(0.0, max(sum(row.parts) for row in bars.rows) or 1.0)
    height = TOP + ROW * len(bars.rows) + BOTTOM
    bottom = height - BOTTOM
    width = WIDTH - LEFT - RIGHT
    parts = []
    for tick, label in zip(axis.ticks, axis.labels(), strict=True):
        x = LEFT + float(axis.at(np.array([tick]))[0]) * width
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
            f'<text class="tick x" x="{x:.1f}" y="{bottom + 18}">{label}</text>'
        )
    for i, row in enumerate(bars.rows):
        parts.append(_bar(row.label, row.parts, bars, TOP + ROW * i, width / axis.high))
    parts.append(
        f'<text class="label" x="{LEFT + width / 2:g}" y="{height - 8}">'
        f"{escape(bars.x_label)}</text>"
    )
    return _svg(bars, height, "".join(parts))


def _bar(label: str, lengths: Sequence[float], bars: Bars, top: float, per_unit: float) -> str:
    x, parts = float(LEFT), []
    for i, length in enumerate(lengths):
        text = f"{label}: {bars.parts[i]} {brief(length)}"
        parts.append(
            f'<rect class="part p{i % 9}" x="{x:.1f}" y="{top + 16:g}" height="{ROW - 22}" '
            f'width="{length * per_unit:.2f}"><title>{escape(text)}</title></rect>'
        )
        x += length * per_unit
    name = f'<text class="bar-label" x="{LEFT}" y="{top + 11:g}">{escape(label)}</text>'
    return name + "".join(parts)
