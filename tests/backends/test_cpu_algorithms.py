# SPDX-License-Identifier: MIT
"""Whole updates of the actor-critic algorithms on the native executor, against float64."""

from __future__ import annotations

import functools
import json

import gymnasium as gym
import numpy as np
import pytest
from cpu_cases import learner, relative

from copal import algorithms
from copal import native as modules
from copal.program.reference import ReferenceLearner

ALGORITHMS = ("ddpg", "td3", "sac")


@functools.cache
def build(name, observations=7, actions=3, hidden=(33, 20), **settings):
    """An agent that is quick to run."""
    algorithm = algorithms.get(name)
    spaces = gym.spaces.Box(-1, 1, (observations,)), gym.spaces.Box(-1, 1, (actions,))
    return algorithm.build(*spaces, algorithm.config(hidden=hidden, **settings), 3)


def batch(built, rng, rows):
    """Random transitions in the dtypes of a replay; the learner makes the noise."""
    columns = {"discount": np.full(rows, 0.97, np.float32)}
    columns["weight"] = rng.random(rows).astype(np.float32)
    for name, (shape, dtype) in built.columns.items():
        values = rng.standard_normal((rows, *shape))
        columns[name] = values > 1 if dtype == "bool" else values.astype(dtype)
    return columns


def close(actual, expected, start):
    """Whether parameters have moved to the same place, but for a thousandth of the way."""
    moved = np.linalg.norm(expected - start)
    return np.linalg.norm(actual - expected) <= 1e-3 * moved + 1e-7


@pytest.mark.parametrize("isa", modules.supported())
@pytest.mark.parametrize("name", ALGORITHMS)
def test_twelve_updates_equal_float64(name, isa):
    """Every phase, delayed actors, noise, targets; a number of rows that fills no block."""
    built = build(name)
    rng = np.random.default_rng(5)
    native = modules.load(isa).Learner(json.loads(built.update.to_json()), 77, 2)
    for network, vector in built.parameters.items():
        native.set_parameters(network, vector)
    reference = ReferenceLearner(built.update, built.parameters)
    for _ in range(12):
        columns = batch(built, rng, 77)
        assert relative(native.step(columns), reference.step(columns)) < 1e-4
    for network, start in built.parameters.items():
        assert close(native.parameters(network), reference.parameters[network], start), network


@pytest.mark.parametrize("gemm", ["auto", "eigen"])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("rows", [4, 37, 100])
def test_learners_share_the_batch_and_change_nothing(name, rows, gemm):
    """The gradient of 2, 3 and 4 learners, whose shares are uneven, is that of one."""
    built = build(name)
    columns = batch(built, np.random.default_rng(rows), rows)
    one, td, _ = learner(built.update, built.parameters, rows, gemm=gemm).gradient(columns)
    expected, _, _ = ReferenceLearner(built.update, built.parameters).gradient(columns)
    assert relative(one, expected) < 1e-5
    for count in (2, 3, 4):
        some, some_td, _ = learner(
            built.update, built.parameters, rows, learners=count, gemm=gemm
        ).gradient(columns)
        assert np.abs(some - one).max() < 1e-6
        assert np.abs(some_td - td).max() < 1e-6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_whole_updates_of_several_learners_equal_one(name):
    """All phases: the networks of 3 learners are those of one after an update."""
    built = build(name, learning_rate=1e-3)
    rng = np.random.default_rng(2)
    one = learner(built.update, built.parameters, 50)
    some = learner(built.update, built.parameters, 50, learners=3)
    for _ in range(2):
        columns = batch(built, rng, 50)
        assert np.abs(one.step(columns) - some.step(columns)).max() < 1e-5
    for network in built.parameters:
        # Adam's first steps are lr * sign(g): a gradient near 0 may go either way.
        off = np.abs(one.parameters(network) - some.parameters(network))
        assert np.quantile(off, 0.99) < 1e-6, network


@pytest.mark.parametrize("name", ALGORITHMS)
def test_threads_do_not_matter_bit_for_bit(name):
    """Also not for several phases."""
    built = build(name, max_grad_norm=0.5)
    states = []
    for threads in (1, 3):
        rng = np.random.default_rng(6)
        cpu = learner(built.update, built.parameters, 90, learners=3, threads=threads)
        for _ in range(10):
            cpu.step(batch(built, rng, 90))
        states.append(cpu.state().parameters)
    for network, vector in states[0].items():
        np.testing.assert_array_equal(vector, states[1][network])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_state_of_all_networks_continues_bit_for_bit(name):
    """Delays and noise go on where they were, since both count the updates."""
    built = build(name)
    rng = np.random.default_rng(0)
    batches = [batch(built, rng, 20) for _ in range(9)]
    whole = learner(built.update, built.parameters, 20)
    for columns in batches[:5]:
        whole.step(columns)
    rest = learner(built.update, built.parameters, 20)
    rest.load_state(whole.state())
    for columns in batches[5:]:
        np.testing.assert_array_equal(whole.step(columns), rest.step(columns))
    a, b = whole.state(), rest.state()
    assert a.optimiser_steps == b.optimiser_steps
    for network, vector in a.parameters.items():
        np.testing.assert_array_equal(vector, b.parameters[network])


def test_metrics_are_named_by_phase():
    """Those of the first phase without a prefix; the means are those of the reference."""
    built = build("sac")
    columns = batch(built, np.random.default_rng(0), 40)
    cpu = learner(built.update, built.parameters, 40)
    reference = ReferenceLearner(built.update, built.parameters)
    assert all(np.isnan(v) for v in cpu.metrics.values())
    cpu.step(columns)
    reference.step(columns)
    names = set(cpu.metrics)
    assert {"loss", "q", "td_error_abs", "grad_norm", "sac-actor/entropy"} <= names
    assert {"sac-actor/grad_norm", "sac-temperature/grad_norm"} <= names
    alpha = float(np.exp(built.parameters["temperature"][0]))
    assert cpu.metrics["sac-temperature/temperature"] == pytest.approx(alpha, rel=1e-5)
    assert cpu.metrics["sac-actor/entropy"] == pytest.approx(reference.metrics["entropy"], rel=1e-4)
    assert cpu.metrics["q"] == pytest.approx(reference.metrics["q"], rel=1e-3, abs=1e-5)
