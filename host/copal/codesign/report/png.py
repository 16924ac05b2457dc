# SPDX-License-Identifier: MIT
"""Figures as PNG, drawn by matplotlib, for documents that a page does not fit into."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copal.bench.plot import require_matplotlib
from copal.codesign.report.figures import Bars, Chart, Figure
from copal.codesign.report.scale import axes
from copal.errors import ConfigError, reason

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b5578f", "#b87f00", "#3d93c4", "#555555")
"""Those of the page on white, after Okabe and Ito."""
PARTS = (0, 4, 2, 3, None, 1, 5, 6, 6)
"""Colours of a bar's parts, as on the page; None: light grey."""
DPI = 200
INSIDE = 4
"""Lines from which the legend has no room among them."""
LABEL = 28
"""Characters of a bar's label in one line."""


def save(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draws each figure into a file named after it.

    Returns:
        The files.

    Raises:
        ConfigError: matplotlib is not installed, or the folder cannot be written.
    """
    make = require_matplotlib("png")
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            path = folder / f"{_file_name(figure.key)}.png"
            _drawn(figure, make).savefig(path, dpi=DPI)
            paths.append(path)
    except OSError as error:
        raise ConfigError(
            "png", "a folder that can be written", reason(error), "choose another one"
        ) from error
    return paths


def _file_name(key: str) -> str:
    """A figure's key, as `sac-actor/loss`, without what cannot stand in a file's name."""
    return re.sub(r"[^\w.-]+", "-", key)


def _drawn(figure: Figure, make: Any) -> Any:
    canvas = make(figsize=(5.6, _height(figure)), layout="constrained")
    plot = canvas.add_subplot()
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    plot.set_axisbelow(True)
    if isinstance(figure, Bars):
        _bars(figure, plot, canvas)
    else:
        _chart(figure, plot)
    return canvas


def _height(figure: Figure) -> float:
    """Inches."""
    if isinstance(figure, Bars):
        return 1.6 + 0.4 * len(figure.rows)
    return 3.4 if len(figure.lines) <= INSIDE else 3.4 + 0.1 * len(figure.lines)


def _chart(chart: Chart, plot: Any) -> None:
    for line in chart.lines:
        curve, colour = line.curve, COLOURS[line.group % len(COLOURS)]
        dashes = "--" if (line.group // len(COLOURS)) % 2 else "-"
        if len(curve.traces) > 1:
            plot.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.14, lw=0)
            for trace in curve.traces:
                plot.plot(trace.x, trace.y, color=colour, alpha=0.35, lw=0.6)
        marker = "o" if len(curve.x) == 1 else None
        label = _plain(line.label)
        plot.plot(curve.x, curve.mean, dashes, color=colour, marker=marker, lw=1.6, label=label)
    for rule in chart.rules:
        plot.axhline(rule.y, color="#5c5c5c", lw=0.8, ls=":")
    x, y = axes(chart)
    plot.set_xlim(x.low, x.high)
    plot.set_ylim(y.low, y.high)
    plot.set_xticks(x.ticks, x.labels())
    plot.set_yticks(y.ticks, y.labels())
    plot.set(xlabel=_plain(chart.x_label), ylabel=_plain(chart.y_label))
    plot.grid(axis="y", color="#e4e4e4", lw=0.8)
    if len(chart.lines) > 1:
        columns = 1 if len(chart.lines) <= INSIDE else 2
        place = "best" if len(chart.lines) <= INSIDE else "outside upper left"
        owner = plot if len(chart.lines) <= INSIDE else plot.figure
        owner.legend(loc=place, ncols=columns, frameon=False, fontsize=8)


def _bars(bars: Bars, plot: Any, canvas: Any) -> None:
    names = [textwrap.fill(_plain(row.label), LABEL) for row in bars.rows]
    left = [0.0] * len(names)
    for i, part in enumerate(bars.parts):
        colour = PARTS[i % len(PARTS)]
        lengths = [row.parts[i] for row in bars.rows]
        shade = "#d8d8d8" if colour is None else COLOURS[colour]
        places = range(len(names))
        plot.barh(places, lengths, left=left, height=0.6, color=shade, label=_plain(part))
        left = [a + b for a, b in zip(left, lengths, strict=True)]
    plot.set_yticks(range(len(names)), names)
    plot.invert_yaxis()
    plot.set(xlabel=_plain(bars.x_label))
    plot.grid(axis="x", color="#e4e4e4", lw=0.8)
    canvas.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8)


def _plain(text: str) -> str:
    """Text whose dollar signs are no formulas."""
    return text.replace("$", r"\$")
