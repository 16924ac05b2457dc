# SPDX-License-Identifier: MIT
"""Values that change linearly over a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """Goes from `start` to `end` in a straight line, then stays."""

    start: float
    """Value at 0."""
    end: float
    """Value from `duration` on."""
    duration: float
    """Where the line ends; 0: `end` from the beginning."""

    def __call__(self, at: float) -> float:
        """The value at `at`, which counts from 0."""
        if at >= self.duration:
            return self.end
        return self.start + (self.end - self.start) * (at / self.duration)
