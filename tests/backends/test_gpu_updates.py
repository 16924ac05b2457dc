# SPDX-License-Identifier: MIT
"""Whole updates of every algorithm on the emulated GPU, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import algorithm_cases as cases
import numpy as np
import pytest
from cpu_cases import batch as dqn_batch
from cpu_cases import dqn_update, relative
from cpu_cases import parameters as dqn_parameters
from gpu_algorithms import case_of
from gpu_cases import TOLERANCE, bits, start

from copal.errors import ConfigError, LearnerFailedError, SchemaError
from copal.gpu.emulate import EmulatedDevice
from copal.gpu.learner import GpuLearner
from copal.program import Network, Target, Update
from copal.program.reference import ReferenceLearner


def assert_equal(learner: GpuLearner, reference: ReferenceLearner, agent: int = 0) -> None:
    """Parameters, targets and moments agree."""
    for name in learner.plan.layouts:
        found = learner.vector("parameters", name, agent)
        assert relative(found, reference.parameters[name]) < TOLERANCE, name
    for name in learner.plan.update.trained():
        first, second = (learner.vector(what, name, agent) for what in ("first", "second"))
        assert relative(first, reference.first_moment[name]) < TOLERANCE, name
        assert relative(second, reference.second_moment[name]) < TOLERANCE, name
    assert learner.optimiser_steps == reference.optimiser_steps
    assert learner.updates == reference.updates


@pytest.mark.parametrize("name", cases.NAMES)
def test_updates_equal_float64(name: str) -> None:
    """Gradients of each phase, TD errors, weights, moments and outputs of five updates."""
    rng = np.random.default_rng()
    case = case_of(name)
    update, vectors = case.built.update, cases.parameters(case, rng)
    learner = start(update, vectors, case.rows, device=EmulatedDevice(int(rng.integers(1000))))
    reference = ReferenceLearner(update, vectors)
    for noise in (True, False):
        batch = cases.batch(case, rng, noise=noise)
        for phase in range(len(update.phases)):
            gradient, td_error, loss = learner.gradient([batch], phase)
            expected, expected_td, expected_loss = reference.gradient(batch, phase)
            assert relative(gradient[0], expected) < TOLERANCE
            assert relative(td_error[0], expected_td) < TOLERANCE
            assert loss[0].mean() == pytest.approx(expected_loss, rel=1e-4, abs=1e-5)
    for number in range(5):
        batch = cases.batch(case, rng, noise=number % 2 == 0)
        td_error = learner.run([[batch]])[0, 0]
        assert relative(td_error, reference.step(batch)) < TOLERANCE
        # By role, of the last phase that has it, as the reference keeps them.
        means = {role: values.mean() for (_, role), values in learner.outputs().items()}
        for role, mean in means.items():
            assert mean == pytest.approx(reference.metrics[role], rel=1e-4, abs=1e-5)
    assert_equal(learner, reference)


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_any_order_of_threads_gives_the_same_bits(name: str) -> None:
    """Nothing depends on which thread is first, in three updates."""
    rng = np.random.default_rng()
    case = case_of(name)
    vectors = cases.parameters(case, rng)
    batches = [cases.batch(case, rng, noise=False) for _ in range(3)]
    found = []
    for seed in (0, 1, int(rng.integers(2, 2**31))):
        learner = start(case.built.update, vectors, case.rows, device=EmulatedDevice(seed))
        td = [learner.run([[batch]]).tobytes() for batch in batches]
        found.append((td, bits(learner)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, (1, 1, 2)), (37, (3, 65, 3, 2)), (250, (65, 3, 1))]
)
@pytest.mark.parametrize("clip", [None, 0.1])
def test_odd_sizes_equal_float64(rows: int, sizes: tuple[int, ...], clip: float | None) -> None:
    """Batches and widths that no block or warp divides, with and without clipping."""
    rng = np.random.default_rng()
    update = dqn_update(sizes, max_grad_norm=clip)
    vectors = dqn_parameters(update, rng)
    learner, reference = start(update, vectors, rows), ReferenceLearner(update, vectors)
    for _ in range(3):
        batch = dqn_batch(sizes, rows, rng)
        assert relative(learner.run([[batch]])[0, 0], reference.step(batch)) < TOLERANCE
    assert_equal(learner, reference)


def test_updates_in_one_launch_equal_single_ones() -> None:
    """Three at a time and one at a time give the same bits; delayed phases fall on any place."""
    rng = np.random.default_rng()
    case = case_of("td3")
    vectors = cases.parameters(case, rng)
    batches = [cases.batch(case, rng, noise=False) for _ in range(7)]
    many = start(case.built.update, vectors, case.rows, updates=3)
    single = start(case.built.update, vectors, case.rows)
    td = [many.run([[b] for b in batches[i : i + 3]])[:, 0] for i in (0, 3)]
    td.append(many.run([[batches[6]]])[:, 0])
    expected = [single.run([[b]])[0, 0] for b in batches]
    np.testing.assert_array_equal(np.concatenate(td), expected)
    assert bits(many) == bits(single)
    assert many.updates == single.updates == 7
    assert many.optimiser_steps == single.optimiser_steps


def test_agents_are_independent() -> None:
    """Three agents in one launch: each as if alone, with its own networks, batches and noise."""
    rng = np.random.default_rng()
    case = case_of("sac")
    vectors = [cases.parameters(case, rng) for _ in range(3)]
    seeds = [int(s) for s in rng.integers(2**63, size=3)]
    together = start(case.built.update, vectors, case.rows, updates=2, seeds=seeds)
    batches = [[cases.batch(case, rng, noise=False) for _ in range(3)] for _ in range(2)]
    td = together.run(batches)
    for agent, seed in enumerate(seeds):
        alone = start(case.built.update, vectors[agent], case.rows, seeds=[seed])
        for k in range(2):
            np.testing.assert_array_equal(td[k, agent], alone.run([[batches[k][agent]]])[0, 0])
        assert bits(together, agent) == bits(alone)


def test_submitted_updates_equal_ones_that_are_waited_for() -> None:
    """The next batch is copied while an update runs; nothing else changes."""
    rng = np.random.default_rng()
    case = case_of("dqn")
    vectors = cases.parameters(case, rng)
    batches = [cases.batch(case, rng) for _ in range(4)]
    waiting = start(case.built.update, vectors, case.rows)
    ahead = start(case.built.update, vectors, case.rows)
    expected = [waiting.run([[b]]) for b in batches]
    ahead.submit([[batches[0]]])
    for number in range(1, 4):
        td = ahead.collect()
        ahead.submit([[batches[number]]])
        np.testing.assert_array_equal(td, expected[number - 1])
    np.testing.assert_array_equal(ahead.collect(), expected[3])
    assert bits(ahead) == bits(waiting)


@pytest.mark.parametrize("shared_bytes", [16, 1024])
def test_rows_beyond_shared_memory_equal_those_within(shared_bytes: int) -> None:
    """What does not fit lies in global memory, and nothing changes in the last bit."""
    rng = np.random.default_rng()
    case = case_of("sac")
    vectors, batch = cases.parameters(case, rng), cases.batch(case, rng)
    small = start(case.built.update, vectors, case.rows, shared_bytes=shared_bytes)
    large = start(case.built.update, vectors, case.rows)
    phases = small.plan.phases
    assert all(p.placement.shared_floats * 4 <= shared_bytes for p in phases)
    assert any(p.placement.workspace_floats for p in phases)
    assert not any(p.placement.workspace_floats for p in large.plan.phases)
    np.testing.assert_array_equal(small.run([[batch]]), large.run([[batch]]))
    assert bits(small) == bits(large)


@pytest.mark.parametrize(("learners", "rows"), [(1, 600), (5, 43), (43, 43)])
def test_shares_of_any_size_equal_float64(learners: int, rows: int) -> None:
    """A block works through more rows than it can hold; shares differ in length."""
    rng = np.random.default_rng()
    sizes = (3, 8, 2)
    update = dqn_update(sizes)
    vectors = dqn_parameters(update, rng)
    options = {"rows": 2} if learners == 1 else {}
    learner = start(update, vectors, rows, learners=learners, **options)
    shares = learner.plan.shares
    assert shares.count == (100 if learners == 1 else -(-rows // shares.each))
    assert learners in (1, rows) or shares.each > shares.rows
    reference = ReferenceLearner(update, vectors)
    for _ in range(2):
        batch = dqn_batch(sizes, rows, rng)
        assert relative(learner.run([[batch]])[0, 0], reference.step(batch)) < TOLERANCE
    assert_equal(learner, reference)


def test_more_learners_than_rows_are_refused() -> None:
    """A block would have nothing to do."""
    update = dqn_update((3, 4, 2))
    with pytest.raises(ConfigError, match="1 to 4"):
        start(update, dqn_parameters(update, np.random.default_rng()), 4, learners=5)


TARGETS = (
    Target("q_target", "slow", 0.1),
    Target("q", "q_target", 0.3, every=2),
    Target("slow", "slower", 0.5, every=3),
)


def test_targets_of_targets_are_averaged_in_order() -> None:
    """A chain of targets with intervals of their own equals float64."""
    rng = np.random.default_rng()
    sizes = (3, 5, 2)
    one = dqn_update(sizes)
    size = one.networks()["q"]
    networks = (*one.policy.networks, Network("slow", size), Network("slower", size))
    policy = replace(one.policy, networks=networks)
    update = Update("chain", one.phases, TARGETS, policy)
    vectors = dqn_parameters(update, rng)
    learner, reference = start(update, vectors, 6, updates=4), ReferenceLearner(update, vectors)
    for _ in range(2):
        batches = [dqn_batch(sizes, 6, rng) for _ in range(4)]
        learner.run([[b] for b in batches])
        for batch in batches:
            reference.step(batch)
    assert_equal(learner, reference)


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_state_goes_on_with_the_same_bits(name: str) -> None:
    """A learner that continues from another one's state equals it."""
    rng = np.random.default_rng()
    case = case_of(name)
    update, vectors = case.built.update, cases.parameters(case, rng)
    whole = start(update, vectors, case.rows)
    for _ in range(3):
        whole.run([[cases.batch(case, rng, noise=False)]])
    again = start(update, vectors, case.rows)
    read = {w: {n: whole.vector(w, n) for n in update.trained()} for w in ("first", "second")}
    everything = {n: whole.vector("parameters", n) for n in whole.plan.layouts}
    again.load(0, everything, read["first"], read["second"], whole.optimiser_steps, whole.updates)
    for _ in range(3):
        batch = cases.batch(case, rng, noise=False)
        np.testing.assert_array_equal(whole.run([[batch]]), again.run([[batch]]))
    assert bits(whole) == bits(again)


@pytest.mark.parametrize("name", ["dqn", "sac"])
@pytest.mark.parametrize("column", ["reward", "obs"])
def test_nan_changes_nothing(name: str, column: str) -> None:
    """The error names phase, operation and row; the next update is as if nothing had been."""
    rng = np.random.default_rng()
    case = case_of(name)
    vectors = cases.parameters(case, rng)
    learner = start(case.built.update, vectors, case.rows)
    expected = start(case.built.update, vectors, case.rows)
    good = [cases.batch(case, rng, noise=False) for _ in range(2)]
    for one in (learner, expected):
        one.run([[good[0]]])
    bad = cases.batch(case, rng, noise=False)
    row = int(rng.integers(case.rows))
    bad[column][row] = np.nan
    before = bits(learner)
    with pytest.raises(LearnerFailedError, match=rf"phases\[0\].*update 1.*`{column}`") as caught:
        learner.run([[bad]])
    assert caught.value.rows == (row,)
    assert bits(learner) == before
    assert learner.updates == 1
    np.testing.assert_array_equal(learner.run([[good[1]]]), expected.run([[good[1]]]))
    assert bits(learner) == bits(expected)


def test_a_failure_in_a_later_phase_and_update_keeps_the_updates_before() -> None:
    """Phase 0 has stepped when phase 1 fails; two good updates of the launch count."""
    rng = np.random.default_rng()
    case = case_of("sac")
    vectors = cases.parameters(case, rng)
    learner = start(case.built.update, vectors, case.rows, updates=4)
    expected = start(case.built.update, vectors, case.rows)
    batches = [cases.batch(case, rng) for _ in range(4)]
    batches[2]["noise"][3] = np.inf
    with pytest.raises(LearnerFailedError, match=r"phases\[1\] .*update 2"):
        learner.run([[b] for b in batches])
    for batch in batches[:2]:
        expected.run([[batch]])
    assert learner.updates == 2
    assert learner.optimiser_steps == expected.optimiser_steps
    assert bits(learner) == bits(expected)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reward": None}, "`reward`"),
        ({"obs": np.zeros((3, 1))}, "shape"),
        ({"action": 1000}, "indices from 0"),
        ({"action": -1}, "indices from 0"),
    ],
)
def test_bad_columns_are_refused_and_change_nothing(change: dict[str, object], says: str) -> None:
    """Missing, of another shape, or an action that does not exist."""
    rng = np.random.default_rng()
    case = case_of("dqn")
    learner = start(case.built.update, cases.parameters(case, rng), case.rows)
    batch = cases.batch(case, rng)
    for name, value in change.items():
        if value is None:
            del batch[name]
        elif isinstance(value, int):
            batch[name][2] = value
        else:
            batch[name] = value
    before = bits(learner)
    with pytest.raises(SchemaError, match=says):
        learner.run([[batch]])
    assert bits(learner) == before
