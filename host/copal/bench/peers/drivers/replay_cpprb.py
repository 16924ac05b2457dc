# SPDX-License-Identifier: MIT
"""cpprb's prioritized replay, driven through its keyword interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer

from . import replay
from .protocol import Reply, versions

COLUMNS = {
    "obs": {"shape": replay.OBS_SIZE},
    "action": {"dtype": np.int32},
    "reward": {},
    "next_obs": {"shape": replay.OBS_SIZE},
    "done": {},
}


class Cpprb(replay.ReplayPeer):
    """One buffer of `cpprb.PrioritizedReplayBuffer`."""

    versions = versions("cpprb", "numpy")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.buffer = PrioritizedReplayBuffer(rows, COLUMNS, alpha=replay.ALPHA, eps=1e-4)
        for n in replay.fill_sizes(rows):
            priorities = replay.td_errors(self.generator, n)
            self.buffer.add(**self._rows(n), priorities=priorities)

    def _rows(self, n: int) -> dict[str, Any]:
        rows = replay.transitions(self.generator, n)
        rows["action"] = rows["action"].astype(np.int32)
        rows["done"] = rows["done"].astype(np.float32)
        return rows

    def _singles(self) -> list[dict[str, Any]]:
        rows = self._rows(replay.PREPARED)
        return [
            {
                "obs": rows["obs"][i],
                "action": int(rows["action"][i]),
                "reward": float(rows["reward"][i]),
                "next_obs": rows["next_obs"][i],
                "done": 0.0,
            }
            for i in range(replay.PREPARED)
        ]

    def insert(self, n: int) -> Callable[[int], object]:
        """Adds rows by keyword."""
        if n > 1:
            many = self._rows(n)
            return lambda _: self.buffer.add(**many)
        singles = self._singles()
        return lambda i: self.buffer.add(**singles[i % replay.PREPARED])

    def sample(self, n: int) -> Callable[[int], object]:
        """Draws into new arrays; the library offers no other way."""
        return lambda _: self.buffer.sample(n, beta=replay.BETA)

    def update(self, n: int) -> Callable[[int], object]:
        """Sets priorities by slot."""
        places = [(slots.astype(np.uint64), td) for slots, td in self.places(n)]
        return lambda i: self.buffer.update_priorities(*places[i % replay.PREPARED])

    def cycle(self, n: int) -> Callable[[int], object]:
        """Uses the slots that came with the batch."""
        singles = self._singles()
        td = [replay.td_errors(self.generator, n) for _ in range(replay.PREPARED)]

        def call(i: int) -> None:
            self.buffer.add(**singles[i % replay.PREPARED])
            batch = self.buffer.sample(n, beta=replay.BETA)
            self.buffer.update_priorities(batch["indexes"], td[i % replay.PREPARED])

        return call


def main(arguments: list[str], reply: Reply) -> None:
    """Measures cpprb."""
    replay.run(Cpprb, arguments, reply)
