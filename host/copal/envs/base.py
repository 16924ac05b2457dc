# SPDX-License-Identifier: MIT
"""What an actor sees of its environments: N of them, stepped together in one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

KEPT_REPLACEMENTS = 1024
"""Entries of `replaced` that wait for a reader at most."""


class Episode(NamedTuple):
    """A finished episode."""

    total: float
    """Undiscounted sum of its rewards."""
    length: int
    """Its steps."""


class Replacement(NamedTuple):
    """An environment that failed and was replaced."""

    number: int
    """Its number among the N."""
    reason: str
    """What it raised or returned."""


class Environments(ABC):
    """N environments of one kind behind arrays that are allocated once.

    A transition is read between `step` and `advance`: there `obs` holds the observations acted on
    and `next_obs` what followed, at an episode's end its true last observation. `advance` moves on
    and begins new episodes, so no transition ever leads from one episode into the next.

    Attributes:
        count: N.
        observation_space: Space of one observation.
        action_space: Space of one action; discrete ones are counted from 0.
        action_start: The environment's own number of the first discrete action.
        obs: [N, *shape], float32 whatever the environment gives: to act on.
        next_obs: Like `obs`: what the last step led to.
        reward: float32 [N].
        terminated: bool [N]: the episode ended for good.
        truncated: bool [N]: the episode was cut, by a time limit for instance.
        lost: bool [N]: the environment failed in this step, so there is no transition and its
            stream is cut.
        any_lost: Whether `lost` holds a True.
        restarts: Instances replaced because they failed.
        replaced: One entry a restart; whoever reads them takes them out, from any thread.
        finished: Episodes that ended; whoever reads them takes them out, from any thread.
    """

    def __init__(self, count: int, observation_space: Any, action_space: Any) -> None:
        self.count = count
        self.observation_space = observation_space
        discrete = isinstance(action_space, spaces.Discrete)
        self.action_start = int(action_space.start) if discrete else 0
        self.action_space = spaces.Discrete(action_space.n) if self.action_start else action_space
        shape = (count, *observation_space.shape)
        self.obs = np.zeros(shape, np.float32)
        self.next_obs = np.zeros(shape, np.float32)
        self.reward = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, np.bool_)
        self.truncated = np.zeros(count, np.bool_)
        self.lost = np.zeros(count, np.bool_)
        self.any_lost = False
        self.restarts = 0
        self.replaced: deque[Replacement] = deque(maxlen=KEPT_REPLACEMENTS)
        self.finished: deque[Episode] = deque()

    @abstractmethod
    def step(self, actions: NDArray[Any]) -> None:
        """Steps every environment.

        Args:
            actions: int64 [N] for discrete actions, counted from 0; else float32 [N, *shape].

        Raises:
            EnvironmentFailedError: One failed three times in a row without a step in between.
        """

    @abstractmethod
    def advance(self) -> None:
        """Makes `next_obs` the current one, or a first observation where an episode ended."""

    @abstractmethod
    def state(self) -> list[dict[str, Any]]:
        """What `restore` needs, as JSON values, one entry an environment."""

    @abstractmethod
    def restore(self, states: list[dict[str, Any]]) -> list[int]:
        """Goes on from `state()`.

        Returns:
            Environments whose episode could not be reproduced: they begin a new one.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees the environments."""
