# SPDX-License-Identifier: MIT
"""copal's prioritized replay under the same clock as the others, through its Python interface."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import copal
from copal.bench.peers.drivers import replay
from copal.bench.peers.drivers.protocol import Reply, serve, versions

COLUMNS: dict[str, tuple[tuple[int, ...], str]] = {
    "obs": ((replay.OBS_SIZE,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "next_obs": ((replay.OBS_SIZE,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


class Copal(replay.ReplayPeer):
    """One `copal.PrioritizedReplay`, with importance weights, stale ids and all checks on."""

    versions = versions("copal-rl", "numpy")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self._alive: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
        self.buffer = copal.PrioritizedReplay(
            capacity=rows, columns=COLUMNS, alpha=replay.ALPHA, seed=0
        )
        for n in replay.fill_sizes(rows):
            ids = self.buffer.add(**self._rows(n))
            self.buffer.update_priorities(ids, replay.td_errors(self.generator, n))

    def _rows(self, n: int) -> dict[str, Any]:
        rows = replay.transitions(self.generator, n)
        done = rows.pop("done")
        return {**rows, "terminated": done, "truncated": done.copy()}

    def _singles(self) -> list[dict[str, Any]]:
        # Observations as arrays and the rest as plain numbers, which is what environments give.
        columns = {
            name: list(column) if column.ndim > 1 else column.tolist()
            for name, column in self._rows(replay.PREPARED).items()
        }
        return [{name: c[i] for name, c in columns.items()} for i in range(replay.PREPARED)]

    def insert(self, n: int) -> Callable[[int], object]:
        """Adds rows by keyword."""
        if n > 1:
            many = self._rows(n)
            return lambda _: self.buffer.add(**many)
        singles = self._singles()
        return lambda i: self.buffer.add(**singles[i % replay.PREPARED])

    def sample(self, n: int) -> Callable[[int], object]:
        """Draws into new arrays, as a first-time user would."""
        return lambda _: self.buffer.sample(n, beta=replay.BETA)

    def update(self, n: int) -> Callable[[int], object]:
        """Sets the priorities of rows that are alive; an outdated id would cost less."""
        ages = self.places(n)
        ids = [np.empty(n, np.uint64) for _ in ages]
        self._alive += [(of, age.astype(np.uint64)) for of, (age, _) in zip(ids, ages, strict=True)]
        self.refresh()
        td = [td for _, td in ages]
        return lambda i: self.buffer.update_priorities(
            ids[i % replay.PREPARED], td[i % replay.PREPARED]
        )

    def refresh(self) -> None:
        """Moves the ids that `update` uses to rows which are still there."""
        newest = np.uint64(np.max(self.buffer.add(**self._rows(1))))
        for ids, age in self._alive:
            np.subtract(newest, age, out=ids)

    def cycle(self, n: int) -> Callable[[int], object]:
        """Inserts 1, draws n into one batch that is used again, and sets their priorities."""
        singles = self._singles()
        td = [replay.td_errors(self.generator, n) for _ in range(replay.PREPARED)]
        batch = self.buffer.sample(n, beta=replay.BETA)

        def call(i: int) -> None:
            self.buffer.add(**singles[i % replay.PREPARED])
            self.buffer.sample(n, beta=replay.BETA, out=batch)
            self.buffer.update_priorities(batch.ids, td[i % replay.PREPARED])

        return call


def main(arguments: list[str], reply: Reply) -> None:
    """Measures copal."""
    replay.run(Copal, arguments, reply)


if __name__ == "__main__":
    sys.exit(serve("copal.bench.own_replay", sys.argv[1:]))
