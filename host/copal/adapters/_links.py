# SPDX-License-Identifier: MIT
"""Which row of a ring follows which, when rows of several environments arrive interleaved."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from copal.adapters._slots import Ids

NONE = -1
"""Id of no row."""


class Links:
    """The rows before and after each row within its episode. O(1) a row, 16 bytes a slot.

    Rows are noted in the order of their ids, each with the stream (environment, episode) that it
    belongs to. A row that ended its episode has no row after it, and the next one of its stream
    none before it.

    Args:
        capacity: Rows of the ring.
    """

    def __init__(self, capacity: int) -> None:
        self._after = np.full(capacity, NONE, np.int64)
        self._before = np.full(capacity, NONE, np.int64)
        self._open: dict[Hashable, int] = {}
        self._next_id = 0

    def add(self, first_id: int, streams: Iterable[Hashable], ended: Iterable[bool]) -> None:
        """Notes rows `first_id` and following.

        Args:
            first_id: Id of the first of them.
            streams: The stream of each.
            ended: Whether each is the last of its episode.
        """
        capacity = len(self._after)
        for row, (stream, last) in enumerate(zip(streams, ended, strict=True), start=first_id):
            slot, before = row % capacity, self._open.pop(stream, NONE)
            self._after[slot], self._before[slot] = NONE, before
            if before > row - capacity:
                self._after[before % capacity] = row
            if not last:
                self._open[stream] = row
            self._next_id = row + 1

    def after(self, ids: Ids) -> Ids:
        """The row after each, or the row itself at an episode's end; int64 [rows]."""
        following = self._after[ids % len(self._after)]
        return np.where(following == NONE, ids, following)

    def before(self, ids: Ids) -> Ids:
        """The row before each, or the row itself where that one is gone; int64 [rows]."""
        preceding = self._before[ids % len(self._before)]
        oldest = self._next_id - len(self._before)
        return np.where((preceding == NONE) | (preceding < oldest), ids, preceding)

    def unfinished(self) -> Ids:
        """Newest rows of the episodes in progress, int64 [episodes]."""
        oldest = self._next_id - len(self._after)
        rows = [row for row in self._open.values() if row >= oldest]
        return np.array(rows, dtype=np.int64)

    def sums(
        self, ids: Ids, steps: NDArray[np.int64], gamma: float, reward: NDArray[np.floating]
    ) -> tuple[NDArray[np.float32], Ids, NDArray[np.float32]]:
        """Rewards summed over up to `steps` rows, within one episode.

        Args:
            ids: int64 [rows].
            steps: Rewards to sum, int64 [rows], at least 1.
            gamma: Discount a step.
            reward: The rewards slot by slot, float [capacity].

        Returns:
            The sums, float32 [rows]; the last row of each; the number of rewards, float32 [rows],
            fewer than asked for where the episode ends or goes no further yet.
        """
        capacity, last, count = len(self._after), ids, np.ones(len(ids), np.float32)
        total = reward[ids % capacity].astype(np.float64)
        discount = np.ones(len(ids))
        for step in range(1, int(steps.max(initial=1))):
            following = self.after(last)
            going = (following != last) & (step < steps)
            discount = np.where(going, discount * gamma, discount)
            total += np.where(going, discount * reward[following % capacity], 0.0)
            last, count = np.where(going, following, last), count + going
        return total.astype(np.float32), last, count.astype(np.float32)
