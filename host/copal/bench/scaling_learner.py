# SPDX-License-Identifier: MIT
"""Times the learner loop alone, over a filled replay, by number of learners and their mode."""

from __future__ import annotations

import time
from typing import Any

from copal.algorithms.base import Built
from copal.backends.base import LearnerState
from copal.backends.cpu import CpuLearner
from copal.bench.learner_build import random_batch
from copal.native import native
from copal.replay import PrioritizedReplay

ROWS = 100_000
"""Rows of the replay."""
FIRST_UPDATE_S = 60.0
"""Longest wait for the first update of a measurement."""
_DUE = 2**40


class LoopRate:
    """A learner loop that can be let run for a while.

    Args:
        built: The algorithm.
        batch_size: Rows of a batch.
        learners: Parallel learners.
        mode: `sync` or `async`.
        rows: Rows of the replay, all of them filled.
    """

    def __init__(
        self, built: Built, batch_size: int, learners: int, mode: str, rows: int = ROWS
    ) -> None:
        shared, own = (learners, 0) if mode == "sync" else (1, learners)
        state = LearnerState.initial(built.update, built.parameters)
        self._learner = CpuLearner(built.update, state, batch_size=batch_size, learners=shared)
        self._replay = PrioritizedReplay(capacity=rows, columns=built.columns)
        given = random_batch(built, rows)
        self._replay.add(**{name: given[name] for name in built.columns})
        self._loop = native.LearnerLoop(
            self._learner.native, self._replay, None, async_learners=own
        )

    def per_second(self, seconds: float) -> float:
        """Updates a second over so many seconds, sampling and priorities included.

        Where the threads get no processor for so long, it goes on to the first update.

        Raises:
            LearnerFailedError: A value became NaN or infinite.
        """
        gate: Any = native.RatioGate(1, 0, _DUE)
        gate.acquire_steps(_DUE)
        gate.inserted(_DUE)
        before, began = self._learner.updates, time.perf_counter()
        self._loop.start(gate)
        time.sleep(seconds)
        limit = began + seconds + FIRST_UPDATE_S
        while self._loop.running and self._learner.updates == before:
            if time.perf_counter() > limit:
                break
            time.sleep(0.001)
        self._loop.stop()
        spent = time.perf_counter() - began
        self._loop.raise_if_failed()
        return (self._learner.updates - before) / spent
