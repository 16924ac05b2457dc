# SPDX-License-Identifier: MIT
"""Asynchronous learners: each on batches of its own, gradients applied as they come."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from cpu_cases import relative
from parallel_cases import ALGORITHMS, BATCH, build, learner_of, replay_of, run

from copal.errors import ConfigError, LearnerFailedError
from copal.native import native

WAIT_S = 60.0


def loop_of(cpu, replay, store=None, learners=3):
    """A loop of several asynchronous learners."""
    return native.LearnerLoop(cpu.native, replay, store, async_learners=learners)


def gate_with(updates):
    """A gate behind which so many updates are due."""
    gate = native.RatioGate(1, 0, updates)
    assert gate.acquire_steps(updates)
    gate.inserted(updates)
    return gate


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_one_asynchronous_learner_equals_a_synchronous_one(algo):
    """Bit for bit: parameters, moments, steps, priorities; delayed phases and noise included."""
    built = build(algo)
    one, other = replay_of(built, 3), replay_of(built, 3)
    expected = run(built, one, 15).state()
    got = run(built, other, 15, async_learners=1).state()
    for vectors in ("parameters", "first_moment", "second_moment"):
        for name, vector in getattr(expected, vectors).items():
            np.testing.assert_array_equal(getattr(got, vectors)[name], vector)
    assert got.optimiser_steps == expected.optimiser_steps
    assert got.updates == expected.updates == 15
    assert one.total_priority == other.total_priority


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_update_that_is_due_is_applied_once(algo):
    """Three threads drain the gate; phases with a delay step as often as with one learner."""
    built = build(algo)
    cpu, replay = learner_of(built), replay_of(built, 4)
    loop, gate = loop_of(cpu, replay), gate_with(200)
    loop.start(gate)
    gate.drain()
    assert loop.join(WAIT_S)
    loop.raise_if_failed()
    counters, state = loop.counters(), cpu.state()
    assert gate.updates == cpu.updates == counters["updates"] == 200
    assert sum(counters["staleness"]) == 200
    assert counters["staleness_max"] <= counters["staleness_sum"] < 200 * 200
    assert replay.stats()["sampled"] == 200 * BATCH
    expected = run(built, replay_of(built, 4), 200).state()
    assert state.optimiser_steps == expected.optimiser_steps
    assert all(np.isfinite(vector).all() for vector in state.parameters.values())


def test_staleness_counts_the_gradients_in_between():
    """Two learners in lockstep cannot happen; one alone is never stale."""
    built = build("dqn")
    cpu, replay = learner_of(built), replay_of(built, 5)
    loop = loop_of(cpu, replay, learners=2)
    for _ in range(20):
        loop.run_once()
    counters = loop.counters()
    assert counters["staleness"] == [20, 0, 0, 0, 0, 0, 0, 0, 0]
    assert counters["staleness_sum"] == counters["staleness_max"] == 0


def test_new_parameters_reach_every_learner():
    """What is loaded between two updates is what the next gradient is of."""
    built = build("td3")
    cpu, replay = learner_of(built), replay_of(built, 6)
    loop = loop_of(cpu, replay)
    loop.run_once()
    start = learner_of(built).state()
    cpu.load_state(start)
    loop.run_once()
    expected = learner_of(built)
    other = replay_of(built, 6)
    skipped = learner_of(built)
    native.LearnerLoop(skipped.native, other, None).run_once()
    native.LearnerLoop(expected.native, other, None).run_once()
    for name, vector in expected.state().parameters.items():
        assert relative(cpu.state().parameters[name], vector) == 0.0


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_pause_leaves_a_consistent_state(algo):
    """While paused nothing changes, and no update is half done; afterwards it goes on."""
    built = build(algo)
    cpu, replay = learner_of(built), replay_of(built, 8)
    store = native.WeightStore(native.Policy(built.update.policy.to_dict()).size)
    loop, gate = loop_of(cpu, replay, store), gate_with(1_000_000)
    loop.start(gate)
    deadline = time.monotonic() + 60
    while gate.updates == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    for _ in range(5):
        loop.pause()
        before = cpu.state()
        assert before.updates == gate.updates == loop.counters()["updates"]
        threading.Event().wait(0.01)
        after = cpu.state()
        for name, vector in before.parameters.items():
            np.testing.assert_array_equal(after.parameters[name], vector)
        store.read()
        loop.resume()
    loop.stop()
    assert not loop.running
    assert cpu.updates == gate.updates > 0
    loop.publish()
    weights, version = store.read()
    assert version == cpu.updates
    state = cpu.state()
    acting = [state.parameters[n.name] for n in built.update.policy.networks]
    np.testing.assert_array_equal(weights, np.concatenate(acting))


@pytest.mark.parametrize("algo", ["dqn", "td3"])
def test_failure_stops_all_and_leaves_finite_parameters(algo):
    """NaN names its phase; the gate closes, so that no actor waits for ever."""
    built = build(algo)
    cpu, replay = learner_of(built), replay_of(built, 9)
    row = {
        name: np.zeros((5, *shape), np.dtype(dtype))
        for name, (shape, dtype) in built.columns.items()
    }
    replay.add(**{**row, "reward": np.full(5, np.nan, np.float32)})
    loop, gate = loop_of(cpu, replay), gate_with(100_000)
    loop.start(gate)
    assert loop.join(WAIT_S)
    assert gate.closed
    assert not loop.running
    with pytest.raises(LearnerFailedError, match=built.update.phases[0].program.name):
        loop.raise_if_failed()
    state = cpu.state()
    for vectors in (state.parameters, state.first_moment, state.second_moment):
        assert all(np.isfinite(vector).all() for vector in vectors.values())


def test_learner_that_shares_batches_is_refused():
    """Either the learners share a batch or each has its own."""
    built = build("dqn")
    cpu = learner_of(built, learners=2)
    with pytest.raises(ConfigError, match="async_learners"):
        loop_of(cpu, replay_of(built, 1))
