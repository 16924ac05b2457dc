# SPDX-License-Identifier: MIT
"""tianshou's prioritized replay; 64 rows at once go in as a moved-in buffer, its fastest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

from . import replay
from .protocol import Reply, versions

EPISODE_STEPS = 200


class Tianshou(replay.ReplayPeer):
    """One `tianshou.data.PrioritizedReplayBuffer`."""

    versions = versions("tianshou", "numba", "numpy", "torch")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.buffer = PrioritizedReplayBuffer(rows, alpha=replay.ALPHA, beta=replay.BETA)
        for n in replay.fill_sizes(rows):
            self.buffer.update(self._source(n))
        self.buffer.update_weight(np.arange(rows), replay.td_errors(self.generator, rows))

    def _rows(self, n: int) -> dict[str, Any]:
        rows = replay.transitions(self.generator, n)
        return {
            "obs": rows["obs"],
            "act": rows["action"],
            "rew": rows["reward"],
            "terminated": rows["done"],
            "truncated": rows["done"].copy(),
            "obs_next": rows["next_obs"],
        }

    def _source(self, n: int) -> Any:
        rows = self._rows(n)
        rows["terminated"][EPISODE_STEPS - 1 :: EPISODE_STEPS] = True
        return ReplayBuffer.from_data(**rows, done=rows["terminated"].copy())

    def _singles(self) -> list[Any]:
        rows = self._rows(replay.PREPARED)
        return [
            Batch(
                obs=rows["obs"][i],
                act=rows["act"][i],
                rew=rows["rew"][i],
                terminated=False,
                truncated=False,
                obs_next=rows["obs_next"][i],
                info={},
            )
            for i in range(replay.PREPARED)
        ]

    def insert(self, n: int) -> Callable[[int], object]:
        """Adds one `Batch`, or moves a filled buffer in."""
        if n > 1:
            source = self._source(n)
            return lambda _: self.buffer.update(source)
        singles = self._singles()
        return lambda i: self.buffer.add(singles[i % replay.PREPARED])

    def sample(self, n: int) -> Callable[[int], object]:
        """Draws a `Batch`."""
        return lambda _: self.buffer.sample(n)

    def update(self, n: int) -> Callable[[int], object]:
        """Sets priorities by slot."""
        places = self.places(n)
        return lambda i: self.buffer.update_weight(*places[i % replay.PREPARED])

    def cycle(self, n: int) -> Callable[[int], object]:
        """Uses the slots that came with the batch."""
        singles = self._singles()
        td = [replay.td_errors(self.generator, n) for _ in range(replay.PREPARED)]

        def call(i: int) -> None:
            self.buffer.add(singles[i % replay.PREPARED])
            _, slots = self.buffer.sample(n)
            self.buffer.update_weight(slots, td[i % replay.PREPARED])

        return call


def main(arguments: list[str], reply: Reply) -> None:
    """Measures tianshou."""
    replay.run(Tianshou, arguments, reply)
