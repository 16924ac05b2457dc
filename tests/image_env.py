# SPDX-License-Identifier: MIT
"""A small environment that shows pictures, registered with Gymnasium for the tests."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SIDE = 36


class Halves(gymnasium.Env):  # type: ignore[misc]
    """One half of a [36, 36, *colours] picture is bright; the action that names it earns 1."""

    def __init__(self, colours: tuple[int, ...] = (), length: int = 10) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIDE, SIDE, *colours), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._length, self._step, self._half = length, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        del options
        super().reset(seed=seed)
        self._step = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._half)
        self._step += 1
        return self._obs(), reward, self._step >= self._length, False, {}

    def _obs(self) -> Any:
        self._half = int(self.np_random.integers(2))
        picture = self.np_random.integers(60, size=self.observation_space.shape, dtype=np.uint8)
        middle = SIDE // 2
        picture[:, middle:] += np.uint8(180 * self._half)
        picture[:, :middle] += np.uint8(180 * (1 - self._half))
        return picture


def register() -> None:
    """Registers the variants that tests use."""
    for name, options in {
        "Halves-v0": {},
        "HalvesColour-v0": {"colours": (3,)},
    }.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=Halves, kwargs=options)
