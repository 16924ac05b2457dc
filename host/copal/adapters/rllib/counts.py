# SPDX-License-Identifier: MIT
"""How many episodes and steps a buffer holds, took in and lost: what RLlib's metrics ask for."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID


class Counts:
    """Counters of a ring of time steps that belong to episodes.

    Attributes:
        steps: Time steps that were ever added.
        evicted_steps: Of these, how many were overwritten.
        episodes: Episodes that were ever begun.
        evicted_episodes: Of these, how many have no step left.
    """

    def __init__(self) -> None:
        self.steps = self.evicted_steps = self.episodes = self.evicted_episodes = 0
        self._newest: OrderedDict[str, int] = OrderedDict()

    @property
    def held(self) -> int:
        """Episodes with a step left."""
        return len(self._newest)

    def add(self, episode: str, steps: int, newest: int, ended: bool) -> None:
        """Counts a chunk of an episode.

        Args:
            episode: Its id.
            steps: Time steps of the chunk.
            newest: Row of the last one.
            ended: Whether the episode is over.
        """
        if episode not in self._newest:
            self.episodes += 1
        self._newest.pop(episode, None)
        # Another episode may come under the id of one that is over.
        self._newest[f"{episode}/{newest}" if ended else episode] = newest
        self.steps += steps

    def evict(self, oldest: int) -> None:
        """Notes that rows below `oldest` are gone."""
        self.evicted_steps = max(self.evicted_steps, oldest, 0)
        while self._newest and next(iter(self._newest.values())) < oldest:
            self._newest.popitem(last=False)
            self.evicted_episodes += 1

    def snapshot(self) -> tuple[int, int, int, int]:
        """The counters as they are."""
        return self.episodes, self.steps, self.evicted_episodes, self.evicted_steps

    def added_since(self, before: tuple[int, int, int, int]) -> dict[str, Any]:
        """Arguments of RLlib's `_update_add_metrics`."""
        names = ("episodes_added", "steps_added", "episodes_evicted", "steps_evicted")
        change = [now - then for now, then in zip(self.snapshot(), before, strict=True)]
        figures: dict[str, Any] = {}
        for name, value in zip(names, change, strict=True):
            whole = name.replace("steps", "env_steps")
            figures[f"num_{whole}"] = value
            figures[f"agent_to_num_{name}"] = {DEFAULT_AGENT_ID: value}
            figures[f"module_to_num_{name}"] = {DEFAULT_MODULE_ID: value}
        return figures
