# SPDX-License-Identifier: MIT
"""Axes: the range that data need, round ticks, and short texts for numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from copal.codesign.report.figures import Chart
from copal.codesign.report.records import Floats

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
_SIZES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}


@dataclass(frozen=True)
class Scale:
    """A linear axis."""

    low: float
    """Value at its beginning."""
    high: float
    """Value at its end, above `low`."""
    ticks: tuple[float, ...]
    """Round values on it."""

    def at(self, values: Floats) -> Floats:
        """Places of `values` along the axis, 0 at its beginning and 1 at its end."""
        return (values - self.low) / (self.high - self.low)

    def labels(self) -> list[str]:
        """The ticks as texts, all in one unit and with as many digits as their steps need."""
        top = max(abs(t) for t in self.ticks)
        unit = next((unit for limit, unit in _UNITS if top >= limit), "")
        step = (self.ticks[1] - self.ticks[0]) / _SIZES[unit] if len(self.ticks) > 1 else 1.0
        if top and top < 1e-3:
            return [f"{t:.3g}" for t in self.ticks]
        digits = next((d for d in range(6) if math.isclose(step, round(step, d))), 6)
        # The ticks are multiples of a step, so that a zero may come out as a tiny number.
        shown = [round(t / _SIZES[unit], digits) + 0.0 for t in self.ticks]
        return [f"{value:,.{digits}f}{unit}" if value else "0" for value in shown]


def scale(low: float, high: float, count: int = 5) -> Scale:
    """An axis over at least [low, high] that ends at ticks, with about `count` of them."""
    if not high > low:
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(s for s in _STEPS if s * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(float(i * step) for i in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def exact(low: float, high: float, count: int = 5) -> Scale:
    """An axis over [low, high] and no further, with the round ticks inside it."""
    wide = scale(low, high, count)
    if not high > low:
        return wide
    return Scale(low, high, tuple(t for t in wide.ticks if low <= t <= high) or (low,))


def axes(chart: Chart) -> tuple[Scale, Scale]:
    """The axes of a chart, which hold all that it draws; a zero that is near is on them."""
    xs, ys = [], [np.array([rule.y for rule in chart.rules])]
    for line in chart.lines:
        xs += [line.curve.x, *(t.x for t in line.curve.traces)]
        ys += [line.curve.low, line.curve.high, *(t.y for t in line.curve.traces)]
    low, high = _range(ys)
    low = 0.0 if 0 < low < high / 2 else low
    x_low, x_high = _range(xs)
    x_low = 0.0 if 0 < x_low < x_high / 4 else x_low
    return exact(x_low, x_high), scale(low, 0.0 if high < 0 and high > low / 2 else high)


def _range(parts: Sequence[Floats]) -> tuple[float, float]:
    values = np.concatenate(parts)
    return float(values.min()), float(values.max())
