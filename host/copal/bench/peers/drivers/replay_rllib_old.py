# SPDX-License-Identifier: MIT
"""RLlib's prioritized buffer of the old API, the one that published comparisons timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.rllib.policy.sample_batch import SampleBatch
from ray.rllib.utils.replay_buffers import PrioritizedReplayBuffer

from . import replay
from .protocol import Reply, versions

FILL_STEPS = 1000


class RllibOld(replay.ReplayPeer):
    """One `PrioritizedReplayBuffer` of whole `SampleBatch` rows."""

    versions = versions("ray", "numpy", "torch")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.buffer = PrioritizedReplayBuffer(capacity=rows, alpha=replay.ALPHA)
        filler = self._rows(FILL_STEPS)
        for _ in range(-(-rows // FILL_STEPS)):
            self.buffer.add(filler)

    def _rows(self, n: int) -> Any:
        rows = replay.transitions(self.generator, n)
        return SampleBatch(
            {
                "obs": rows["obs"],
                "new_obs": rows["next_obs"],
                "actions": rows["action"],
                "rewards": rows["reward"],
                "terminateds": rows["done"],
                "truncateds": rows["done"].copy(),
            }
        )

    def insert(self, n: int) -> Callable[[int], object]:
        """Adds a `SampleBatch`."""
        rows = self._rows(n)
        return lambda _: self.buffer.add(rows)

    def sample(self, n: int) -> Callable[[int], object]:
        """Draws a `SampleBatch`."""
        return lambda _: self.buffer.sample(n, beta=replay.BETA)

    def update(self, n: int) -> Callable[[int], object]:
        """Sets priorities by slot."""
        places = self.places(n)
        return lambda i: self.buffer.update_priorities(*places[i % replay.PREPARED])

    def cycle(self, n: int) -> Callable[[int], object]:
        """Uses the slots that came with the batch."""
        one = self._rows(1)
        td = [replay.td_errors(self.generator, n) for _ in range(replay.PREPARED)]

        def call(i: int) -> None:
            self.buffer.add(one)
            batch = self.buffer.sample(n, beta=replay.BETA)
            self.buffer.update_priorities(batch["batch_indexes"], td[i % replay.PREPARED])

        return call


def main(arguments: list[str], reply: Reply) -> None:
    """Measures RLlib's old buffer."""
    replay.run(RllibOld, arguments, reply)
