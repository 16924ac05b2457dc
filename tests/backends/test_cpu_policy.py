# SPDX-License-Identifier: MIT
"""Policy inference of the native executor."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cpu_cases import dqn_program, network, policy_program, relative

from copal import native as modules
from copal.errors import ConfigError, ProgramError, SchemaError
from copal.native import native
from copal.program.reference import run

SHAPES = ((8, 256, 256, 4), (3, 17, 5, 2), (1, 1), (40, 33, 9), (5, 70, 70, 70, 1))


def weights_of(sizes, rng):
    return (rng.standard_normal(network("q", sizes).size) / 4).astype(np.float32)


@pytest.mark.parametrize("isa", modules.supported())
@pytest.mark.parametrize("gemm", ["auto", "eigen"])
@pytest.mark.parametrize("sizes", SHAPES)
def test_outputs_equal_float64(sizes, gemm, isa):
    """Any number of observations, one by one and in blocks."""
    rng = np.random.default_rng(sum(sizes))
    program, weights = policy_program(sizes), weights_of(sizes, rng)
    policy = modules.load(isa).Policy(program.to_dict(), gemm)
    for n in (1, 2, 4, 5, 15, 16, 17, 33, 64, 65, 130):
        obs = rng.standard_normal((n, sizes[0])).astype(np.float32)
        expected = run(program, {"q": weights}, {"obs": obs}).outputs
        actual = policy.act(weights, obs)
        assert relative(actual["q"].reshape(expected["q"].shape), expected["q"]) < 3e-6
        assert actual["q"].shape == (n, sizes[-1])
        assert actual["action"].dtype == np.int64
        np.testing.assert_array_equal(actual["action"], actual["q"].argmax(1))


def test_one_observation_without_a_row_axis():
    """[width] is one row."""
    sizes = (8, 16, 4)
    rng = np.random.default_rng(0)
    policy, weights = native.Policy(policy_program(sizes).to_dict()), weights_of(sizes, rng)
    obs = rng.standard_normal(8).astype(np.float32)
    one, row = policy.act(weights, obs), policy.act(weights, obs[None])
    np.testing.assert_array_equal(one["q"], row["q"])
    assert one["action"].shape == (1,)


def test_acts_with_the_newest_weights_of_a_store():
    """Publishing is seen at the next call, with its version."""
    sizes = (8, 16, 4)
    rng = np.random.default_rng(0)
    policy = native.Policy(policy_program(sizes).to_dict())
    store = native.WeightStore(policy.size)
    obs, out = rng.standard_normal((3, 8)).astype(np.float32), np.zeros(3, np.int64)
    for version in (5, 9):
        weights = weights_of(sizes, rng)
        store.publish(weights, version)
        np.testing.assert_array_equal(policy.act(store, obs)["q"], policy.act(weights, obs)["q"])
        assert policy.act_into(store, obs, out) == version
        np.testing.assert_array_equal(out, policy.act(weights, obs)["action"])


def test_writes_into_a_given_array():
    """Any output by its role."""
    sizes = (8, 16, 4)
    rng = np.random.default_rng(0)
    policy, weights = native.Policy(policy_program(sizes).to_dict()), weights_of(sizes, rng)
    obs, q = rng.standard_normal((20, 8)).astype(np.float32), np.zeros((20, 4), np.float32)
    policy.act_into(weights, obs, q, role="q")
    np.testing.assert_array_equal(q, policy.act(weights, obs)["q"])


@pytest.mark.parametrize(
    "obs",
    [
        np.zeros(8),
        np.zeros((3, 7), np.float32),
        np.zeros((0, 8), np.float32),
        np.zeros((8, 3), np.float32),
        np.zeros((8, 3), np.float32).T,
        [0.0] * 8,
    ],
)
def test_wrong_observation_is_named(obs):
    """Shape, dtype and layout."""
    policy = native.Policy(policy_program((8, 16, 4)).to_dict())
    with pytest.raises(SchemaError, match="obs"):
        policy.act(np.zeros(policy.size, np.float32), obs)


def test_wrong_weights_and_output_are_named():
    """A vector or store of another size, an array that cannot be written."""
    policy = native.Policy(policy_program((8, 16, 4)).to_dict())
    obs, weights = np.zeros(8, np.float32), np.zeros(policy.size, np.float32)
    with pytest.raises(SchemaError, match="source"):
        policy.act(weights[:-1].copy(), obs)
    with pytest.raises(ConfigError, match="source"):
        policy.act(native.WeightStore(3), obs)
    with pytest.raises(SchemaError, match="out"):
        policy.act_into(weights, obs, np.zeros(2, np.int64))
    frozen = np.zeros(1, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(SchemaError, match="out"):
        policy.act_into(weights, obs, frozen)
    with pytest.raises(ProgramError, match="value"):
        policy.act_into(weights, obs, np.zeros(1, np.int64), role="value")


def test_program_with_a_gradient_is_no_policy():
    """Several networks and inputs are refused at construction."""
    with pytest.raises(ProgramError):
        native.Policy(dqn_program((8, 16, 4)).to_dict())


def test_threads_act_at_once():
    """Scratch memory belongs to the thread."""
    sizes = (8, 64, 4)
    rng = np.random.default_rng(0)
    policy, weights = native.Policy(policy_program(sizes).to_dict()), weights_of(sizes, rng)
    inputs = [rng.standard_normal((n, 8)).astype(np.float32) for n in (1, 7, 40, 64)]
    expected = [policy.act(weights, obs)["q"] for obs in inputs]
    wrong = []

    def work(obs, q):
        same = [np.array_equal(policy.act(weights, obs)["q"], q) for _ in range(200)]
        wrong.extend(len(obs) for equal in same if not equal)

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(inputs, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
