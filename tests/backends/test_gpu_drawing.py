# SPDX-License-Identifier: MIT
"""A replay on the device that follows the native one: rows, priorities, weights, faults."""

from __future__ import annotations

from typing import Any

import algorithm_cases as cases
import numpy as np
import pytest

from copal import PrioritizedReplay, UniformReplay
from copal.backends.base import LearnerState
from copal.backends.gpu import GpuBackend
from copal.backends.gpu_drawing import DrawingLearner
from copal.errors import GpuMemoryError, LearnerFailedError, SchemaError

CAPACITY = 64


class Rig:
    """A native replay, and a learner with a replay of its own that follows it."""

    def __init__(
        self, rng: np.random.Generator, kind: type[PrioritizedReplay] = PrioritizedReplay
    ) -> None:
        # Sizes are the same in every test: a build of the kernels serves them all.
        self.case = cases.make("dqn", np.random.default_rng(4))
        self.rng, self.seed = rng, int(rng.integers(2**31))
        built = self.case.built
        options: dict[str, Any] = {} if kind is UniformReplay else {"alpha": 0.7}
        self.native = kind(CAPACITY, built.columns, seed=self.seed, **options)
        self.state = LearnerState.initial(built.update, cases.parameters(self.case, rng))
        self.learner = self.open()
        self.learner.attach(self.native)

    def open(self, state: LearnerState | None = None) -> DrawingLearner:
        """Another learner of the same Update, attached to nothing."""
        backend = GpuBackend("emulate", replay_device="gpu")
        learner = backend.learner(
            self.case.built.update, state or self.state, batch_size=self.case.rows, learners=1
        )
        assert isinstance(learner, DrawingLearner)
        return learner

    def insert(self, n: int, **changes: Any) -> None:
        """Random rows into the native replay."""
        case = cases.Case(self.case.built, self.case.width, self.case.actions, n)
        rows = {**cases.batch(case, self.rng, noise=False), **changes}
        given = {}
        for name, (shape, dtype) in self.case.built.columns.items():
            values = rows.get(name, np.zeros(n))
            given[name] = np.asarray(values).reshape(n, *shape).astype(dtype)
        self.native.add(**given)

    def same_rows(self, learner: DrawingLearner) -> None:
        """What is drawn is what the native replay holds under the same id."""
        drawn = learner._resident.replay.sample(0.5)
        slots = drawn.ids.astype(int) % CAPACITY
        for name, values in drawn.columns.items():
            if name != "discount":
                native = self.native.column(name)[slots]
                np.testing.assert_array_equal(values, native.reshape(len(slots), -1))


def test_rows_follow(rng: np.random.Generator) -> None:
    """Over laps of the ring, some of them between two calls, at the largest priority present."""
    rig = Rig(rng)
    for n in (5, 1, 30, 60, 3):
        rig.insert(n)
        rig.learner.feed()
        assert rig.learner._resident.replay.inserted == rig.native.next_id
        rig.same_rows(rig.learner)
    for _ in range(5):
        rig.insert(50)
    rig.learner.feed()
    rig.same_rows(rig.learner)


def test_priorities_come_back_and_go_on(rng: np.random.Generator) -> None:
    """A second learner, attached to what was written back, goes on with the same bits."""
    rig = Rig(rng)
    rig.insert(50)
    for n in (7, 13, 4):
        rig.learner.feed()
        rig.learner.step_drawn(0.6)
        rig.insert(n)
    rows = rig.learner.write_back()
    assert rows == rig.native.next_id - 4
    leaves = rig.learner._resident.replay.priorities()
    kept = np.arange(rig.native.next_id - CAPACITY, rows) % CAPACITY
    np.testing.assert_array_equal(rig.native.priorities()[kept], leaves[kept])
    coming = np.arange(rows, rig.native.next_id) % CAPACITY
    assert (rig.native.priorities()[coming] == leaves.max()).all()
    second = rig.open(rig.learner.state())
    second.attach(rig.native, rows)
    for beta in (0.6, 0.7):
        for learner in (rig.learner, second):
            learner.feed()
        np.testing.assert_array_equal(rig.learner.step_drawn(beta), second.step_drawn(beta))
    for learner in (rig.learner, second):
        assert learner._resident.replay.inserted == rig.native.next_id
    np.testing.assert_array_equal(
        rig.learner._resident.replay.priorities(), second._resident.replay.priorities()
    )
    np.testing.assert_array_equal(rig.learner.parameters("q"), second.parameters("q"))


def test_rows_that_wait_at_a_checkpoint(rng: np.random.Generator) -> None:
    """They overwrite the highest priorities, which then do not count as present."""
    rig = Rig(rng)
    rig.insert(CAPACITY)
    leaves = rng.random(CAPACITY).astype(np.float32)
    leaves[:2] = 100
    rig.native.set_priorities(0, leaves)
    learner = rig.open()
    learner.attach(rig.native)
    rig.insert(3)
    rows = learner.write_back()
    assert rows == CAPACITY
    second = rig.open()
    second.attach(rig.native, rows)
    for one in (learner, second):
        one.feed()
        found = one._resident.replay.priorities()
        np.testing.assert_array_equal(found[:3], np.full(3, leaves[3:].max()))
        np.testing.assert_array_equal(found[3:], leaves[3:])


def test_ahead_is_the_same_with_its_exponents(rng: np.random.Generator) -> None:
    """Updates that nobody waits for, each with its own beta, leave the bits of those one by one."""
    rig = Rig(rng)
    rig.insert(60)
    other = rig.open()
    other.attach(rig.native)
    rig.learner.feed()
    betas = rng.random(5)
    one_by_one = [other.step_drawn(beta) for beta in betas]
    ahead = [rig.learner.submit_drawn(beta) for beta in betas]
    assert ahead[0] is None
    for ours, theirs in zip([*ahead[1:], rig.learner.flush()], one_by_one, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(rig.learner.parameters("q"), other.parameters("q"))
    same = rig.open()
    same.attach(rig.native)
    different = [same.step_drawn(1 - beta) for beta in betas]
    assert any((a != b).any() for a, b in zip(different, one_by_one, strict=True))


def test_uniform_draws(rng: np.random.Generator) -> None:
    """Priorities stay 1, so do weights."""
    rig = Rig(rng, UniformReplay)
    rig.insert(40)
    rig.learner.feed()
    rig.learner.step_drawn(0.4)
    assert (rig.learner._resident.replay.priorities() == 1).all()
    assert (rig.learner._resident.replay.sample(0.9).weight == 1).all()
    rig.learner.write_back()
    assert (rig.native.priorities() == 1).all()


def test_failed_update_names_ids(rng: np.random.Generator) -> None:
    """The only bad row, under the id it was drawn by, though more rows came meanwhile."""
    rig = Rig(rng)
    rig.insert(CAPACITY)
    bad = np.zeros(4, np.float32)
    bad[2] = np.nan
    rig.insert(4, reward=bad)
    rig.learner.feed()
    good = [rig.learner.parameters("q")]

    def train() -> None:
        for _ in range(40):
            rig.learner.submit_drawn(0.5)
            rig.insert(1)
            rig.learner.feed()
            good.append(rig.learner.parameters("q"))

    with pytest.raises(LearnerFailedError, match=rf"batch ids {CAPACITY + 2}\b") as caught:
        train()
    assert caught.value.rows
    np.testing.assert_array_equal(rig.learner.parameters("q"), good[-1])


def test_a_replay_without_a_column_is_refused(rng: np.random.Generator) -> None:
    """Before anything is copied."""
    rig = Rig(rng)
    columns = {k: v for k, v in rig.case.built.columns.items() if k != "reward"}
    with pytest.raises(SchemaError, match="reward"):
        rig.open().attach(PrioritizedReplay(CAPACITY, columns))


def test_too_little_memory(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an error that says which setting makes it smaller."""
    rig = Rig(rng)
    learner = rig.open()

    def allocate(name: str, nbytes: int) -> None:
        raise GpuMemoryError(name, f"{nbytes} bytes", "less", "buy a larger one")

    monkeypatch.setattr(learner._resident._device, "allocate", allocate)
    with pytest.raises(GpuMemoryError, match=r"buffer_size.*--replay-device cpu"):
        learner.attach(rig.native)
