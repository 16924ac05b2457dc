# SPDX-License-Identifier: MIT
"""What the GPU check is asked for, and the time that it has left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from copal.bench.table import Row
from copal.config import DEVICES
from copal.errors import ConfigError, UnknownNameError

ALGORITHMS = ("dqn", "double-dqn", "ddpg", "td3", "sac")
PARTS = ("correct", "update", "replay", "train", "sanitize")
NOT_MEASURED = "not yet measured on a GPU"


@dataclass(frozen=True)
class GpuCheck:
    """Correctness and speed of the GPU backend, in one table.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: There is no such device, part or algorithm.
    """

    device: str = DEVICES["gpu"][0]
    """`cuda`, or `emulate`, which runs the part `correct` alone."""
    parts: tuple[str, ...] = PARTS
    """What to do, in this order."""
    algos: tuple[str, ...] = ALGORITHMS
    """Algorithms whose results are compared with float64."""
    small: bool = False
    """Only small networks in the part `correct`, as under compute-sanitizer."""
    seed: int = 0
    """Of the fresh inputs; 0: one of the moment, which is printed."""
    batch_sizes: tuple[int, ...] = (32, 128, 256, 1024, 4096)
    """Rows of a batch in the part `update`."""
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Widths of the two hidden layers in the part `update`."""
    train_s: float = 15.0
    """Seconds of training a backend in the part `train`."""
    budget_s: float = 460.0
    """Seconds for everything; what does not fit is a line that says so."""
    json: Path | None = Path("gpu_check.json")
    """Where the JSON goes; None: nowhere."""

    def __post_init__(self) -> None:
        known = (("device", (self.device,), DEVICES["gpu"]), ("parts", self.parts, PARTS),
                 ("algos", self.algos, ALGORITHMS))  # fmt: skip
        for field, names, allowed in known:
            for name in names:
                if name not in allowed:
                    raise UnknownNameError.of(field, name, allowed)
        for field in ("batch_sizes", "widths"):
            values = getattr(self, field)
            if not values or min(values) < 1:
                raise ConfigError(field, "whole numbers from 1 on", str(values))
        for field in ("train_s", "budget_s"):
            if not getattr(self, field) > 0:
                raise ConfigError(field, "a number above 0", str(getattr(self, field)))
        if self.seed < 0:
            raise ConfigError("seed", "0 or more", str(self.seed))


class Budget:
    """Seconds that are left.

    Args:
        seconds: For everything.
        clock: Seconds now.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end = clock, clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 if none are."""
        return max(0.0, self._end - self._clock())

    def allows(self, seconds: float) -> bool:
        """Whether something that takes so long still fits."""
        return self.left_s >= seconds

    def rows(self, row: Row, seconds: float, measure: Callable[[], Row]) -> Iterator[Row]:
        """The row with what `measure` brings, or with the reason why it was not run or failed.

        Args:
            row: What identifies it.
            seconds: What it takes about.
            measure: Figures; what it raises becomes the reason.
        """
        if not self.allows(seconds):
            yield {**row, "absent": "no time left"}
            return
        try:
            yield {**row, **measure()}
        except Exception as error:  # noqa: BLE001  one figure that fails must not lose the others
            reason = str(error).strip().splitlines() or [type(error).__name__]
            yield {**row, "absent": reason[0][:300]}
