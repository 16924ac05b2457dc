# SPDX-License-Identifier: MIT
"""Noise inputs of the native executor against `copal.program.noise`, in learners and policies."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from cpu_cases import Builder, learner, network, relative
from hypothesis import given, settings
from hypothesis import strategies as st

from copal import native as modules
from copal.errors import ConfigError, ProgramError, SchemaError
from copal.native import native
from copal.program import Adam, Buffer, Network, Phase, Program, Update
from copal.program.noise import normal
from copal.program.reference import run
from copal.replay import PrioritizedReplay

ISAS = modules.supported()


def noisy_update(widths, seed, phases=1):
    """Each phase's gradient is the sum of its noise inputs over the rows, one beside another."""
    size = sum(widths)
    made = []
    for number in range(phases):
        b, at = Builder(), 0
        inputs = [Buffer("x", 1)]
        for k, width in enumerate(widths):
            name = f"noise_{number}_{k}"
            inputs.append(Buffer(name, width, source="normal"))
            b.add_sum("sum_over_rows", name, offset=at)
            at += width
        td = b.add("add", "x", b.add("row_sum", inputs[1].name))
        net = Network(f"p{number}", size)
        outputs = {"td_error": td}
        made.append(Program(f"f{number}", (net,), tuple(inputs), tuple(b.ops), outputs, net.name))
    policy = Program("none", made[0].networks, (Buffer("x", 1),), (), {"x": "x"})
    return Update("noisy", tuple(Phase(p, Adam()) for p in made), (), policy, seed)


def load(isa, update, rows, learners, number=0):
    """A learner of one instruction set, at update `number`."""
    cpu = modules.load(isa).Learner(json.loads(update.to_json()), rows, learners)
    cpu.updates = number
    return cpu


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_noise_equals_the_definition(isa, data):
    """Any seed, stream, update and row, for any number of learners."""
    widths = data.draw(st.lists(st.integers(1, 11), min_size=1, max_size=3))
    seed = data.draw(st.integers(0, 2**64 - 1))
    number = data.draw(st.integers(0, 2**63) | st.integers(2**32 - 2, 2**32 + 2))
    rows = data.draw(st.integers(1, 150))
    learners = data.draw(st.integers(1, min(rows, 4)))
    update = noisy_update(widths, seed)
    cpu = load(isa, update, rows, learners, number)
    gradient, td, _ = cpu.gradient({"x": np.zeros(rows, np.float32)})
    streams = [
        normal(rows, width, seed=seed, stream=stream, update=number)
        for stream, width in enumerate(widths)
    ]
    np.testing.assert_allclose(td, streams[0].astype(float).sum(1), rtol=0, atol=3e-5)
    expected = np.concatenate(streams, axis=1).astype(float).mean(0)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("isa", ISAS)
def test_every_single_number_is_good_to_a_millionth(isa):
    """The TD error of a program that is nothing but noise."""
    update = noisy_update([1], 12345)
    for number in range(40):
        cpu = load(isa, update, 300, 1, number)
        td = cpu.step({"x": np.zeros(300, np.float32)})
        expected = normal(300, 1, seed=12345, stream=0, update=number)[:, 0]
        np.testing.assert_allclose(td, expected, rtol=1e-6, atol=1e-9)


def test_each_update_and_each_phase_has_its_own_numbers():
    """Streams count through the phases, updates follow the learner's own count."""
    update = noisy_update([3, 2], 9, phases=2)
    cpu = load(ISAS[0], update, 20, 3)
    before = {name: np.zeros(5) for name in ("p0", "p1")}
    for number in range(3):
        cpu.step({"x": np.zeros(20, np.float32)})
        for phase, name in enumerate(before):
            parts = [
                normal(20, width, seed=9, stream=2 * phase + k, update=number)
                for k, width in enumerate((3, 2))
            ]
            before[name] = 0.9 * before[name] + 0.1 * np.concatenate(parts, 1).mean(0)
            np.testing.assert_allclose(cpu.optimiser(name)[0], before[name], atol=1e-6)


def test_a_column_of_the_batch_takes_the_place_of_the_noise():
    """So that a test, or a replayed update, sees given numbers; its shape is checked."""
    update = noisy_update([4], 0)
    cpu = load(ISAS[0], update, 10, 2)
    rng = np.random.default_rng(0)
    columns = {
        "x": np.zeros(10, np.float32),
        "noise_0_0": rng.standard_normal((10, 4)).astype(np.float32),
    }
    np.testing.assert_allclose(
        cpu.gradient(columns)[0], columns["noise_0_0"].mean(0), rtol=1e-5, atol=1e-6
    )
    columns["noise_0_0"] = columns["noise_0_0"][:, :3]
    with pytest.raises(SchemaError, match="noise_0_0"):
        cpu.gradient(columns)
    with pytest.raises(SchemaError, match="x"):
        cpu.gradient({})


@pytest.mark.parametrize("change", [{"dtype": "int32"}, {"source": "uniform"}, {"source": 3}])
def test_malformed_noise_is_refused(change):
    """Another source, or noise in integers."""
    plain = json.loads(noisy_update([4], 0).to_json())
    plain["phases"][0]["program"]["inputs"][1].update(change)
    with pytest.raises(ProgramError):
        native.Learner(plain, 10)


def test_an_input_is_noise_in_every_phase_or_in_none():
    """One name stands for one thing."""
    update = noisy_update([4], 0, phases=2)
    second = json.loads(update.to_json())
    second["phases"][1]["program"]["inputs"][0]["source"] = "normal"
    with pytest.raises(ProgramError, match="x"):
        native.Learner(second, 10)


def random_policy(rng):
    """Two networks, the first one scaling the observation; an action, and a random one."""
    scale, actor = Network("scale", 3), network("actor", (3, 20, 4))
    b = Builder()
    factor = b.add("param", width=3, network="scale", offset=0)
    mean = b.forward(actor, b.add("mul", "obs", factor, width=3))[-1]
    spread = b.add("exp", b.add("slice", mean, width=2, start=2, stop=4), width=2)
    mean = b.add("slice", mean, width=2, start=0, stop=2)
    action = b.add("tanh", mean, width=2)
    moved = b.add("add", mean, b.add("mul", spread, "noise", width=2), width=2)
    sample = b.add("tanh", moved, width=2)
    inputs = (Buffer("obs", 3), Buffer("noise", 2, source="normal"))
    outputs = {"action": action, "sample": sample}
    program = Program("policy", (scale, actor), inputs, tuple(b.ops), outputs)
    vectors = {
        n.name: (rng.standard_normal(n.size) / 3).astype(np.float32) for n in program.networks
    }
    return program, vectors


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("gemm", ["auto", "eigen"])
def test_policy_with_noise_and_two_networks_equals_float64(isa, gemm):
    """The networks lie one behind another in one vector, noise is the caller's."""
    rng = np.random.default_rng(3)
    program, vectors = random_policy(rng)
    policy = modules.load(isa).Policy(program.to_dict(), gemm)
    assert policy.networks == ["scale", "actor"]
    weights = np.concatenate([vectors[name] for name in policy.networks])
    assert policy.size == len(weights)
    for n in (1, 3, 5, 16, 70):
        obs, noise = (rng.standard_normal((n, w)).astype(np.float32) for w in (3, 2))
        expected = run(program, vectors, {"obs": obs, "noise": noise}).outputs
        actual = policy.act(weights, obs, noise)
        assert actual.keys() == expected.keys()
        for role, value in expected.items():
            assert relative(actual[role], value) < 3e-6
        out = np.zeros((n, 2), np.float32)
        policy.act_into(weights, obs, out, role="sample", noise=noise)
        np.testing.assert_array_equal(out, actual["sample"])
        policy.act_into(weights, obs, out)
        np.testing.assert_array_equal(out, actual["action"])
        quiet = policy.act(weights, obs)
        assert list(quiet) == ["action"]
        np.testing.assert_array_equal(quiet["action"], actual["action"])


def test_missing_or_misshapen_noise_is_named():
    """Only where the output that is asked for needs it."""
    program, vectors = random_policy(np.random.default_rng(0))
    policy = native.Policy(program.to_dict())
    weights = np.concatenate(list(vectors.values()))
    obs, out = np.zeros((5, 3), np.float32), np.zeros((5, 2), np.float32)
    for noise in (None, np.zeros((5, 3), np.float32), np.zeros((5, 2)), 0.0):
        with pytest.raises(SchemaError, match="noise"):
            policy.act_into(weights, obs, out, role="sample", noise=noise)
    policy.act_into(weights, obs, out, noise=np.zeros(1))
    only = dataclasses.replace(program, outputs={"sample": program.outputs["sample"]})
    with pytest.raises(SchemaError, match="noise"):
        native.Policy(only.to_dict()).act(weights, obs)


@pytest.mark.parametrize(
    "inputs",
    [
        (Buffer("obs", 3), Buffer("noise", 2)),
        (Buffer("obs", 3, source="normal"), Buffer("noise", 2, source="normal")),
        (Buffer("obs", 3), Buffer("noise", 2, source="normal"), Buffer("more", 1, source="normal")),
    ],
)
def test_policy_reads_one_observation_and_one_noise(inputs):
    """Anything else could not be given to `act`."""
    program, _ = random_policy(np.random.default_rng(0))
    with pytest.raises(ProgramError, match="inputs"):
        native.Policy(dataclasses.replace(program, inputs=inputs).to_dict())


def acting_update(rng):
    """A learner of that policy's actor."""
    policy, vectors = random_policy(rng)
    actor = policy.network("actor")
    b = Builder()
    values = b.forward(actor, "obs")
    b.backward(actor, values, values[-1])
    td = b.add("row_sum", values[-1])
    program = Program("fit", (actor,), (Buffer("obs", 3),), tuple(b.ops), {"td_error": td}, "actor")
    return Update("fit", (Phase(program, Adam()),), (), policy), vectors


def test_loop_publishes_the_networks_one_behind_another():
    """What the store holds is what the policy takes."""
    update, vectors = acting_update(np.random.default_rng(1))
    cpu = learner(update, vectors, 8)
    replay = PrioritizedReplay(capacity=64, columns={"obs": ((3,), "float32")})
    size = sum(n.size for n in update.policy.networks)
    store = native.WeightStore(size)
    loop = native.LearnerLoop(cpu.native, replay, store)
    loop.publish()
    expected = np.concatenate([cpu.parameters(n.name) for n in update.policy.networks])
    np.testing.assert_array_equal(store.read()[0], expected)
    with pytest.raises(ConfigError, match="store"):
        native.LearnerLoop(cpu.native, replay, native.WeightStore(size - 1))
