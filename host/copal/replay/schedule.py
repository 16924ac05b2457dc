# SPDX-License-Identifier: MIT
"""Values that change linearly over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from copal.errors import ConfigError


@dataclass(frozen=True)
class LinearSchedule:
    """A value that goes from `start` to `end` over `steps` steps and stays there.

    Made for beta, which is annealed to 1, and for the epsilon of epsilon-greedy acting.

    Raises:
        ConfigError: A value is not finite or `steps` is negative.
    """

    start: float
    """Value at step 0."""
    end: float
    """Value from step `steps` on."""
    steps: int
    """Number of steps of the ramp; 0 means `end` at once."""

    def __post_init__(self) -> None:
        for field, value in (("start", self.start), ("end", self.end)):
            if not math.isfinite(value):
                raise ConfigError(field, "a finite number", str(value))
        if self.steps < 0:
            raise ConfigError("steps", "at least 0", str(self.steps))

    def __call__(self, step: int) -> float:
        """The value at `step`; steps below 0 count as 0."""
        if step >= self.steps:
            return self.end
        return self.start + (self.end - self.start) * (max(step, 0) / self.steps)
