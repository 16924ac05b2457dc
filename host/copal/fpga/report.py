# SPDX-License-Identifier: MIT
"""What the driver tells about the engine: cycles, bytes, time at a clock, saturated values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHARE = 1e-3
"""Share of saturated values from which a tensor is warned about."""
WINDOW = 100
"""Updates that the share is taken over: exponents follow at once, so a single one says little."""


class EngineReport:
    """Sums over a run. Cost of an update: O(tensors).

    Args:
        tensors: Names of the tensors with integers, for people.
        lanes: Multipliers of the engine.
        clock_mhz: Clock that cycles are turned into time with.
        simulated: Whether that clock is an assumption.

    Attributes:
        updates: Updates counted.
        cycles: Cycles of all their RUNs.
        bytes_sent: To the engine, weights and code included.
        bytes_received: From the engine.
    """

    def __init__(
        self, tensors: Sequence[str], *, lanes: int, clock_mhz: float, simulated: bool
    ) -> None:
        self._tensors, self._lanes = tuple(tensors), lanes
        self._clock_mhz, self._simulated = clock_mhz, simulated
        self.updates = self.cycles = self.bytes_sent = self.bytes_received = 0
        self._slots = 0
        self._values = np.zeros(len(tensors), np.int64)
        self._saturated = np.zeros(len(tensors), np.int64)
        self._before = (self._values.copy(), self._saturated.copy())
        self._warned = np.zeros(len(tensors), bool)
        self._messages: list[str] = []

    def count_update(
        self, cycles: int, slots: int, values: NDArray[np.int64], saturated: NDArray[np.int64]
    ) -> None:
        """Adds an update.

        Args:
            cycles: Of its RUNs.
            slots: In which the array multiplied.
            values: Integers of each tensor that were made, [tensors].
            saturated: Those that were saturated, [tensors].
        """
        self.updates += 1
        self.cycles += cycles
        self._slots += slots
        self._values += values
        self._saturated += saturated
        if self.updates % WINDOW == 0:
            self._look()

    def count_bytes(self, sent: int, received: int) -> None:
        """Adds what went over the stream."""
        self.bytes_sent += sent
        self.bytes_received += received

    def take_messages(self) -> list[str]:
        """Warnings that were not taken yet, one a tensor."""
        taken, self._messages = self._messages, []
        return taken

    def figures(self) -> dict[str, float]:
        """Means an update, for the record of metrics."""
        done = max(1, self.updates)
        return {
            "engine_cycles": self.cycles / done,
            "engine_update_us": self._update_us(),
            "engine_lane_use": self._slots / max(1, self.cycles),
            "engine_bytes_sent": self.bytes_sent / done,
            "engine_bytes_received": self.bytes_received / done,
            "engine_saturated": float(self._saturated.sum() / max(1, self._values.sum())),
        }

    def shares(self) -> dict[str, float]:
        """Share of saturated values of each tensor."""
        shares = self._saturated / np.maximum(1, self._values)
        return dict(zip(self._tensors, shares.tolist(), strict=True))

    def text(self) -> str:
        """The same for people, in two lines; empty before the first update."""
        if not self.updates:
            return ""
        figures, shares = self.figures(), self.shares()
        assumed = " (simulated)" if self._simulated else ""
        worst = max(shares, key=lambda name: shares[name], default="")
        most = f", most of {worst}: {shares[worst]:.2g}" if shares.get(worst) else ""
        return (
            f"engine of {self._lanes:,} lanes: {figures['engine_cycles']:,.0f} cycles an update, "
            f"{figures['engine_update_us']:,.1f} us at {self._clock_mhz:g} MHz{assumed}; "
            f"{figures['engine_bytes_sent']:,.0f} bytes in, "
            f"{figures['engine_bytes_received']:,.0f} out\n"
            f"saturated: {figures['engine_saturated']:.2g} of all values{most}"
        )

    def _update_us(self) -> float:
        return self.cycles / max(1, self.updates) / self._clock_mhz

    def _look(self) -> None:
        values, saturated = self._values - self._before[0], self._saturated - self._before[1]
        self._before = (self._values.copy(), self._saturated.copy())
        shares = saturated / np.maximum(1, values)
        for i in np.flatnonzero((shares > SHARE) & ~self._warned):
            self._warned[i] = True
            self._messages.append(
                f"{shares[i]:.2%} of the values of {self._tensors[i]} were saturated in the last "
                f"{WINDOW} updates: lower the learning rate, set max_grad_norm or reward_scale, or "
                "normalize the observations"
            )
