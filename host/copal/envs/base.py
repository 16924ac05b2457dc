# SPDX-License-Identifier: MIT
"""What an actor sees of its environments: N of them, stepped together in one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from copal.envs.actions import Actions, Scale

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
        scale: Turns actions into the environment's own.
        actions: Kind, range and numbering of the actions.
        obs: [N, *shape], to act on: uint8 if the environment gives images, which are uint8 of at
            least two axes, else float32 whatever it gives.
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
        self.actions = Actions.of(action_space)
        self.scale = Scale(self.actions)
        renumbered = self.actions.kind == "discrete" and self.actions.start
        self.action_space = spaces.Discrete(self.actions.count) if renumbered else action_space
        shape = (count, *observation_space.shape)
        dtype = np.uint8 if is_image(observation_space) else np.float32
        self.obs: NDArray[Any] = np.zeros(shape, dtype)
        self.next_obs: NDArray[Any] = np.zeros(shape, dtype)
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
            actions: int64 [N] for discrete actions, counted from 0; for a Box float32 [N, width]
                in [-1, 1], whose ends are the Box's bounds.

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


def is_image(space: Any) -> bool:
    """Whether observations of `space` are images: bytes of at least two axes."""
    return getattr(space, "dtype", None) == np.uint8 and len(space.shape or ()) >= 2
