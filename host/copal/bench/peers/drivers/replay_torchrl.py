# SPDX-License-Identifier: MIT
"""TorchRL's TensorDict replay buffer with its prioritized sampler (C++ sum tree)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from . import replay
from .protocol import Reply, versions


class Torchrl(replay.ReplayPeer):
    """One `torchrl.data.TensorDictReplayBuffer`."""

    versions = versions("torchrl", "tensordict", "torch")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        torch.set_num_threads(1)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(rows),
            sampler=PrioritizedSampler(rows, alpha=replay.ALPHA, beta=replay.BETA),
            priority_key="td_error",
        )
        for n in replay.fill_sizes(rows):
            self.buffer.extend(self._rows(n))
        priorities = torch.from_numpy(replay.td_errors(self.generator, rows))
        self.buffer.update_priority(torch.arange(rows), priorities)

    def _rows(self, n: int) -> Any:
        rows = replay.transitions(self.generator, n)
        return TensorDict({name: torch.from_numpy(value) for name, value in rows.items()}, [n])

    def _singles(self) -> list[Any]:
        rows = self._rows(replay.PREPARED)
        return [rows[i] for i in range(replay.PREPARED)]

    def insert(self, n: int) -> Callable[[int], object]:
        """Adds one `TensorDict` row, or extends by many."""
        if n > 1:
            many = self._rows(n)
            return lambda _: self.buffer.extend(many)
        singles = self._singles()
        return lambda i: self.buffer.add(singles[i % replay.PREPARED])

    def sample(self, n: int) -> Callable[[int], object]:
        """Draws a `TensorDict`."""
        return lambda _: self.buffer.sample(n)

    def update(self, n: int) -> Callable[[int], object]:
        """Sets priorities by slot."""
        places = [(torch.from_numpy(s), torch.from_numpy(td)) for s, td in self.places(n)]
        return lambda i: self.buffer.update_priority(*places[i % replay.PREPARED])

    def cycle(self, n: int) -> Callable[[int], object]:
        """Uses the slots that came with the batch."""
        singles = self._singles()
        td = [torch.from_numpy(replay.td_errors(self.generator, n)) for _ in range(replay.PREPARED)]

        def call(i: int) -> None:
            self.buffer.add(singles[i % replay.PREPARED])
            batch = self.buffer.sample(n)
            self.buffer.update_priority(batch["index"], td[i % replay.PREPARED])

        return call


def main(arguments: list[str], reply: Reply) -> None:
    """Measures TorchRL."""
    replay.run(Torchrl, arguments, reply)
