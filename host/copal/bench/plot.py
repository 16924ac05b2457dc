# SPDX-License-Identifier: MIT
"""Pictures: the growth of a replay buffer's cost with its rows, and learning curves."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copal.errors import ConfigError, reason


def require_matplotlib(setting: str = "plot") -> Any:
    """Imports matplotlib's `Figure` class, which needs no display.

    Args:
        setting: What asks for a picture, for the error.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise ConfigError(
            setting, "matplotlib to be installed", str(error), "pip install 'copal-rl[plot]'"
        ) from error


def growth(rows: Sequence[dict[str, Any]], op: str, path: Path) -> None:
    """Draws microseconds against rows, both logarithmic, a line for each implementation.

    Sizes are measured one after the other, so the fastest round is drawn: it is the one that other
    work on the machine disturbed least.

    Args:
        rows: Rows of a replay report.
        op: Operation to draw, at the largest of its sizes.
        path: Image file; its suffix chooses the format.

    Raises:
        ConfigError: matplotlib is not installed, or does not know the format.
    """
    figure = require_matplotlib()(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    drawn = [row for row in rows if row.get("op") == op and "us_min" in row]
    largest = max((row["n"] for row in drawn), default=0)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in drawn:
        if row["n"] == largest:
            lines.setdefault(row["name"], []).append((row["rows"], row["us_min"]))
    for name, points in lines.items():
        sizes, costs = zip(*sorted(points), strict=True)
        axes.plot(sizes, costs, marker="o", label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="rows in the buffer",
        ylabel="microseconds, fastest round",
        title=f"{op} {largest:g}: insert 1, sample {largest:g}, update {largest:g}",
    )
    axes.grid(visible=True, which="both", alpha=0.3)
    if lines:
        axes.legend()
    save(figure, path)


def curves(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draws returns over environment steps: the mean over seeds, and a band over all of them.

    Evaluations of different seeds may lie a few steps apart; the n-th ones belong together.

    Args:
        rows: Rows of a curve report.
        title: Above the picture.
        path: Image file; its suffix chooses the format.

    Raises:
        ConfigError: matplotlib is not installed, or does not know the format.
    """
    figure = require_matplotlib()(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    drawn = [row for row in rows if "mean_return" in row]
    for name in dict.fromkeys(row["name"] for row in drawn):
        seeds: dict[int, list[dict[str, Any]]] = {}
        for row in drawn:
            if row["name"] == name:
                seeds.setdefault(row["seed"], []).append(row)
        steps, means, lows, highs = [], [], [], []
        for points in zip(*seeds.values(), strict=False):
            returns = [point["mean_return"] for point in points]
            steps.append(statistics.fmean(point["env_steps"] for point in points))
            means.append(statistics.fmean(returns))
            lows.append(min(returns))
            highs.append(max(returns))
        axes.plot(steps, means, label=f"{name}, {len(seeds)} seeds")
        axes.fill_between(steps, lows, highs, alpha=0.2)
    axes.set(xlabel="environment steps", ylabel="mean return of an evaluation", title=title)
    axes.grid(visible=True, alpha=0.3)
    if drawn:
        axes.legend()
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Writes a figure.

    Args:
        figure: matplotlib's.
        path: Image file; its suffix chooses the format.

    Raises:
        ConfigError: matplotlib does not know the format, or the file cannot be written.
    """
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise ConfigError(
            "plot", "an image file such as picture.svg", str(path), reason(error)
        ) from error
