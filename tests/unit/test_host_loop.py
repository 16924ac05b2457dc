# SPDX-License-Identifier: MIT
# ruff: noqa: ARG002 - arguments are those of the parts that are played
"""The loop of learners that go ahead: what is drawn, written back and published when."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from copal.backends.base import Learner, LearnerState
from copal.errors import LearnerFailedError
from copal.replay import LinearSchedule
from copal.runtime.host_loop import HostLoop


class Batch(dict[str, np.ndarray]):
    """Columns and ids, as the replay gives them."""

    ids: np.ndarray


class Replay:
    """Hands out batches of two rows with ids 0, 1, then 2, 3 and so on."""

    def __init__(self) -> None:
        self.drawn = 0
        self.written: list[tuple[int, float]] = []

    def sample(self, rows: int, *, beta: float, out: Batch | None) -> Batch:
        batch = Batch() if out is None else out
        batch.ids = np.arange(self.drawn * rows, (self.drawn + 1) * rows)
        batch["x"] = batch.ids.astype(np.float32)
        self.drawn += 1
        return batch

    def update_priorities(self, ids: np.ndarray, td: np.ndarray) -> None:
        self.written += zip(ids.tolist(), td.tolist(), strict=True)


class Ahead(Learner):
    """TD error of a row is its column; update `bad` fails."""

    ahead = True
    publish_interval = 3

    def __init__(self, bad: int = -1) -> None:
        self._done, self._bad = 0, bad
        self._running: np.ndarray | None = None

    @property
    def updates(self) -> int:
        return self._done

    def submit(self, batch: Mapping[str, np.ndarray]) -> np.ndarray | None:
        column = batch["x"].copy()
        td = self.flush()
        self._running = column
        return td

    def flush(self) -> np.ndarray | None:
        running, self._running = self._running, None
        if running is None:
            return None
        if self._done == self._bad:
            raise LearnerFailedError("q", "finite numbers", "NaN")
        self._done += 1
        return running

    def step(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        raise AssertionError("it goes ahead")

    def parameters(self, network: str) -> np.ndarray:
        return np.full(1, self._done, np.float32)

    def state(self) -> LearnerState:
        raise AssertionError("nobody asks")

    def load_state(self, state: LearnerState) -> None:
        raise AssertionError("nobody asks")


class Gate:
    """Lets a number of updates through; holds before one of them until it is opened."""

    def __init__(self, updates: int, hold_before: int = -1) -> None:
        self._left, self._hold_before = updates, hold_before
        self.completed, self.closed = 0, False
        self.held, self.open = threading.Event(), threading.Event()

    def acquire_update(self) -> bool:
        if self.completed == self._hold_before:
            self.held.set()
            assert self.open.wait(30)
        self._left -= 1
        return self._left >= 0

    def complete_update(self) -> None:
        self.completed += 1

    def close(self) -> None:
        self.closed = True


def loop_of(learner: Learner, gate: Gate) -> tuple[HostLoop, Replay, list[tuple[float, int]]]:
    """A loop, its replay, and what it publishes."""
    replay, published = Replay(), []
    store = SimpleNamespace(
        publish=lambda vector, updates: published.append((float(vector[0]), updates))
    )
    beta = LinearSchedule(0.4, 1.0, 100)
    loop = HostLoop(learner, replay, gate, store, acting=["q"], batch_size=2, beta=beta)
    return loop, replay, published


def test_every_batch_is_written_back_once() -> None:
    """The last one, too; weights are read every third update."""
    gate = Gate(7)
    loop, replay, published = loop_of(Ahead(), gate)
    loop.start()
    loop.stop()
    loop.raise_if_failed()
    assert replay.written == [(i, float(i)) for i in range(14)]
    assert gate.completed == loop.updates == 7
    assert [updates for _, updates in published] == [2, 5]
    assert loop.metrics()["mean_abs_td"] == 12.5


def test_a_pause_waits_for_the_update_that_was_started() -> None:
    """What is kept while the loop is paused is whole."""
    learner, gate = Ahead(), Gate(5, hold_before=3)
    loop, replay, _ = loop_of(learner, gate)
    loop.start()
    assert gate.held.wait(30)
    assert learner.updates == 2
    loop.pause()
    assert learner.updates == 3
    assert len(replay.written) == 6
    loop.resume()
    gate.open.set()
    loop.stop()
    loop.raise_if_failed()
    assert replay.written == [(i, float(i)) for i in range(10)]


@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_failure_names_the_rows_of_its_own_batch(bad: int) -> None:
    """Not those of the batch that was drawn meanwhile; also of the last update."""

    class Failing(Ahead):
        def flush(self) -> Any:
            try:
                return super().flush()
            except LearnerFailedError as e:
                e.rows = (1,)
                raise

    gate = Gate(5)
    loop, _, _ = loop_of(Failing(bad), gate)
    loop.start()
    loop.stop()
    with pytest.raises(LearnerFailedError, match=rf"batch ids {2 * bad + 1}$"):
        loop.raise_if_failed()
    assert gate.closed
