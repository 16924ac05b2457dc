# SPDX-License-Identifier: MIT
"""EnvPool environments: stepped in C++ threads without the GIL (optional dependency)."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.envs.base import Environments, Episode
from copal.errors import ConfigError, UnknownNameError


class EnvPoolEnvironments(Environments):
    """N environments of `envpool.make_gymnasium`.

    EnvPool resets an environment inside the step after its last one; `advance` asks for that reset
    by itself, so the step that would be no transition never shows. An episode cannot be reproduced:
    after `restore` each environment begins a new one.

    Args:
        env_id: An id of `envpool.list_all_envs()`.
        count: N.
        seed: Seed of the run.
        first_stream: Stream of the first environment; sets the seed apart from other actors'.

    Raises:
        ConfigError: EnvPool is not installed.
        UnknownNameError: It has no such id.
    """

    def __init__(self, env_id: str, count: int, *, seed: int, first_stream: int = 0) -> None:
        try:
            envpool = importlib.import_module("envpool")
        except ImportError as e:
            raise ConfigError(
                "vectorization", "EnvPool installed", str(e), "pip install envpool"
            ) from e
        known = envpool.list_all_envs()
        if env_id not in known:
            raise UnknownNameError.of("env", env_id, known, "these are EnvPool's ids")
        words = np.random.SeedSequence((seed, first_stream)).generate_state(1)
        with warnings.catch_warnings():
            # Gymnasium warns that EnvPool's float64 bounds become float32.
            warnings.simplefilter("ignore", UserWarning)
            self._pool = envpool.make_gymnasium(env_id, num_envs=count, seed=int(words[0] >> 1))
            super().__init__(count, self._pool.observation_space, self._pool.action_space)
        self._dtype = self.actions.dtype if self.actions.kind == "box" else "int32"
        self._ids = np.arange(count, dtype=np.int32)
        self._total = np.zeros(count)
        self._length = np.zeros(count, np.int64)
        self.obs[...] = self._pool.reset()[0]
        np.copyto(self.next_obs, self.obs)

    def step(self, actions: NDArray[Any]) -> None:
        """Steps every environment."""
        sent = self.scale(actions).astype(self._dtype, copy=False)
        obs, reward, terminated, truncated, _ = self._pool.step(sent, self._ids)
        self.next_obs[...] = obs
        self.reward[...] = reward
        self.terminated[...] = terminated
        self.truncated[...] = truncated
        self._total += reward
        self._length += 1

    def advance(self) -> None:
        """Resets the environments whose episode ended."""
        ended = np.flatnonzero(self.terminated | self.truncated)
        if ended.size:
            for i in ended:
                self.finished.append(Episode(float(self._total[i]), int(self._length[i])))
            self._total[ended], self._length[ended] = 0.0, 0
            first, info = self._pool.reset(self._ids[ended])
            self.next_obs[info["env_id"]] = first
        np.copyto(self.obs, self.next_obs)

    def state(self) -> list[dict[str, Any]]:
        """Nothing that could be reproduced."""
        return [{} for _ in range(self.count)]

    def restore(self, states: list[dict[str, Any]]) -> list[int]:
        """Names every environment: the episodes of this pool are new."""
        return list(range(len(states)))

    def close(self) -> None:
        """Frees the pool."""
        self._pool.close()
