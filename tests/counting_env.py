# SPDX-License-Identifier: MIT
"""Small environments with known behaviour, registered with Gymnasium for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np


class Counting(gymnasium.Env):  # type: ignore[misc]
    """Observation (step, episode noise); reward 1; ends after `length` steps.

    Steps whose number is in `crash_at` raise, those in `nan_at` return NaN, and resets in
    `reset_crash_at` raise. The numbers count over all instances, as a fault of the world would.
    """

    crash_at: frozenset[int] = frozenset()
    nan_at: frozenset[int] = frozenset()
    calls = 0
    reset_crash_at: frozenset[int] = frozenset()
    resets = 0

    def __init__(self, length: int = 7, truncate: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._length, self._truncate, self._step, self._noise = length, truncate, 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        del options
        super().reset(seed=seed)
        cls = type(self)
        cls.resets += 1
        if cls.resets in cls.reset_crash_at:
            raise RuntimeError("the simulator does not start")
        self._step, self._noise = 0, float(self.np_random.random())
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        cls = type(self)
        cls.calls += 1
        if cls.calls in cls.crash_at:
            raise RuntimeError("the simulator broke down")
        self._step += 1
        obs = self._obs()
        if cls.calls in cls.nan_at:
            obs[0] = np.nan
        end = self._step >= self._length
        return obs, 1.0, end and not self._truncate, end and self._truncate, {}

    def _obs(self) -> Any:
        return np.array([self._step, self._noise], np.float32)

    @classmethod
    def arm(
        cls,
        crash_at: Iterable[int] = (),
        nan_at: Iterable[int] = (),
        reset_crash_at: Iterable[int] = (),
    ) -> None:
        """Restarts the shared counters and sets the faults."""
        cls.crash_at, cls.nan_at, cls.calls = frozenset(crash_at), frozenset(nan_at), 0
        cls.reset_crash_at, cls.resets = frozenset(reset_crash_at), 0


class Bytes(gymnasium.ObservationWrapper):  # type: ignore[misc]
    """The same with observations of bytes, the noise from 0 to 255."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)

    def observation(self, observation: Any) -> Any:
        return np.array([observation[0], 255 * observation[1]], np.uint8)


def register() -> None:
    """Makes `Counting-v0` (ends by termination) and `CountingCut-v0` (by truncation) known."""
    for name, truncate in (("Counting-v0", False), ("CountingCut-v0", True)):
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=Counting, kwargs={"truncate": truncate})
