# SPDX-License-Identifier: MIT
"""Numbers and durations as short texts."""

from __future__ import annotations

import math


def brief(value: float, digits: int = 3) -> str:
    """A number with a few significant digits, thousands apart; a dash if there is none."""
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:.{digits}g}"
    return f"{value:.{digits - 1}e}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
