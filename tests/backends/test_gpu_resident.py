# SPDX-License-Identifier: MIT
"""Updates on batches that the device draws itself, against the same ones drawn from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import algorithm_cases as cases
import numpy as np
import pytest

from copal.errors import ConfigError, EmptyReplayError, LearnerFailedError
from copal.gpu.cupy_device import CupyDevice
from copal.gpu.device import GpuDevice
from copal.gpu.emulate import EmulatedDevice
from copal.gpu.learner import GpuLearner
from copal.gpu.plan import PlanOptions, plan
from copal.gpu.replay import GpuReplay
from copal.gpu.resident import ResidentLearner, replay_for
from fake_cupy import install

ROWS, COUNT = 90, 3
SETTINGS = {"alpha": 0.7, "eps": 1e-3, "seed": 5}


class Pair:
    """A learner with its replay on one device, and both by hand on another."""

    def __init__(self, name: str, rng: np.random.Generator, device: GpuDevice) -> None:
        # Sizes are the same in every test: a build of the kernels serves them all.
        self.case = cases.make(name, np.random.default_rng(4))
        update, rows = self.case.built.update, self.case.rows
        start = cases.parameters(self.case, rng)
        planned = plan(update, rows)
        stored = cases.Case(self.case.built, self.case.width, self.case.actions, ROWS)
        self.rows = cases.batch(stored, rng, noise=False)
        del self.rows["weight"]
        self.replay = replay_for(device, planned, 64, **SETTINGS)
        self.learner = ResidentLearner(device, planned, updates=COUNT)
        self.learner.replay = self.replay
        apart = EmulatedDevice()
        self.replay_apart = replay_for(apart, planned, 64, **SETTINGS)
        self.learner_apart = GpuLearner(apart, planned)
        self._start(start)

    def _start(self, start: dict[str, Any]) -> None:
        for learner in (self.learner, self.learner_apart):
            learner.begin(start)
        for replay in (self.replay, self.replay_apart):
            replay.set_beta(0.5)

    def add(self, rows: dict[str, Any]) -> None:
        """To both replays."""
        for replay in (self.replay, self.replay_apart):
            replay.add(rows)

    def by_hand(self, count: int) -> np.ndarray:
        """Draws to the host, updates, and sets priorities, one after another."""
        found = []
        for _ in range(count):
            drawn = self.replay_apart.sample(0.5)
            batch = {**drawn.columns, "weight": drawn.weight}
            td = self.learner_apart.run([[batch]])
            self.replay_apart.update_priorities(td[0, 0])
            found.append(td[0])
        return np.stack(found)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[[], CupyDevice]:
    """Opens a GPU that interprets PTX, with shared memory watched."""
    install(monkeypatch, 2**28, races=True)
    return CupyDevice


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_one_launch_is_drawing_updating_and_writing_back(
    rng: np.random.Generator, name: str
) -> None:
    """Bit for bit, over several launches, with rows added between and around the ring."""
    pair = Pair(name, rng, EmulatedDevice(seed=4))
    for count, part in ((1, slice(0, 40)), (COUNT, slice(40, 90)), (2, slice(0, 5))):
        pair.add({n: v[part] for n, v in pair.rows.items()})
        np.testing.assert_array_equal(pair.learner.run_drawn(count), pair.by_hand(count))
        leaves = pair.replay.priorities()
        np.testing.assert_array_equal(leaves, pair.replay_apart.priorities())
        for network in pair.learner.plan.layouts:
            ours, apart = (
                learner.vector("parameters", network)
                for learner in (pair.learner, pair.learner_apart)
            )
            np.testing.assert_array_equal(ours, apart)
    assert pair.learner.updates == 6


def test_ptx_of_a_launch(cuda: Callable[[], CupyDevice], rng: np.random.Generator) -> None:
    """The interpreted kernels, in a graph, agree with the CPU's to rounding."""
    pair = Pair("dqn", rng, cuda())
    apart = []
    for part in (slice(0, 60), slice(60, 75)):
        # More rows go up while the launch before may still run.
        pair.add({n: v[part] for n, v in pair.rows.items()})
        pair.learner.submit_drawn()
        apart.append(pair.by_hand(1))
    np.testing.assert_allclose(pair.learner.collect(), apart[-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        pair.replay.priorities(), pair.replay_apart.priorities(), rtol=1e-4, atol=1e-5
    )
    pair.learner.close()


def test_bad_row(rng: np.random.Generator) -> None:
    """A reward that is NaN ends the launch; the error names its rows in the batch."""
    pair = Pair("dqn", rng, EmulatedDevice())
    rows = {n: v[:20].copy() for n, v in pair.rows.items()}
    rows["reward"][:] = np.nan
    pair.add(rows)
    before = pair.learner.vector("parameters", "q")
    with pytest.raises(LearnerFailedError, match="reward") as caught:
        pair.learner.run_drawn(2)
    assert len(caught.value.rows) >= 1
    np.testing.assert_array_equal(pair.learner.vector("parameters", "q"), before)
    assert pair.learner.updates == 0


def test_nothing_to_draw_and_bad_counts(rng: np.random.Generator) -> None:
    """Typed, before anything is launched."""
    pair = Pair("dqn", rng, EmulatedDevice())
    with pytest.raises(EmptyReplayError, match="add rows first"):
        pair.learner.run_drawn()
    with pytest.raises(ConfigError, match="count"):
        pair.learner.run_drawn(COUNT + 1)
    two = plan(pair.case.built.update, 8, PlanOptions(agents=2))
    with pytest.raises(ConfigError, match="agents"):
        replay_for(EmulatedDevice(), two, 10)
    assert isinstance(pair.replay, GpuReplay)
