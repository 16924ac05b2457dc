# SPDX-License-Identifier: MIT
"""What a failed update says: phase, first bad operation or input, rows, and ids in the replay."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from cpu_cases import Builder, learner

from copal import algorithms
from copal.algorithms import CommonConfig
from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.networks import mlp
from copal.backends import registry
from copal.backends.base import LearnerState
from copal.errors import LearnerFailedError
from copal.native import native
from copal.program import Adam, Buffer, Network, Phase, Program, Update
from copal.program.reference import ReferenceLearner
from copal.replay import LinearSchedule, PrioritizedReplay
from copal.runtime.host_loop import HostLoop

ROWS = 30
ALGORITHMS = ("ddpg", "td3", "sac")


def build(name):
    """A small agent on 5 observations and 2 actions."""
    algorithm = algorithms.get(name)
    spaces = gym.spaces.Box(-1, 1, (5,)), gym.spaces.Box(-1, 1, (2,))
    return algorithm.build(*spaces, algorithm.config(hidden=(12, 12)), 3)


def batch(built, rng, rows=ROWS):
    """Random transitions, noise among them."""
    columns = {}
    for phase in built.update.phases:
        for b in phase.program.inputs:
            shape = (rows, b.width) if b.width > 1 else (rows,)
            columns[b.name] = rng.standard_normal(shape).astype(np.float32)
    columns["terminated"] = np.zeros(rows, bool)
    columns["weight"] = rng.random(rows).astype(np.float32) + np.float32(0.1)
    return columns


def message(step, columns):
    """The error of an update that has to fail."""
    with pytest.raises(LearnerFailedError) as caught:
        step(columns)
    return caught.value


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("learners", [1, 3])
def test_bad_column_is_named_with_its_rows(name, learners):
    """Every column that a loss reads, NaN and infinity, some rows and more than eight."""
    built = build(name)
    rng = np.random.default_rng(0)
    cpu = learner(built.update, built.parameters, ROWS, learners=learners)
    reference = ReferenceLearner(built.update, built.parameters)
    before = cpu.state()
    for count in (1, 3, 12):
        for column in ("obs", "action", "reward", "next_obs", "weight", "discount"):
            columns = batch(built, rng)
            bad = np.sort(rng.choice(ROWS, count, replace=False))
            columns[column][bad] = rng.choice([np.nan, np.inf])
            actual = message(cpu.step, columns)
            rows = ", ".join(map(str, bad[:8]))
            assert f"first from the input `{column}` in row" in actual.got
            assert rows in actual.got
            expected = message(reference.step, columns)
            assert actual.field == expected.field == f"phases[0] {name}-critic"
            assert actual.got.endswith(expected.got.split(", first from ")[1])
            assert expected.rows == tuple(bad)
    after = cpu.state()
    for vectors in ("parameters", "first_moment", "second_moment"):
        for network, vector in getattr(before, vectors).items():
            np.testing.assert_array_equal(vector, getattr(after, vectors)[network])
    assert after.optimiser_steps == before.optimiser_steps
    cpu.step(batch(built, rng))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bad_parameter_is_named(name):
    """What was NaN before the update is said to be so."""
    built = build(name)
    parameters = {n: v.copy() for n, v in built.parameters.items()}
    parameters["critic_target"][17] = np.nan
    columns = batch(built, np.random.default_rng(0))
    for step in (
        learner(built.update, parameters, ROWS).step,
        ReferenceLearner(built.update, parameters).step,
    ):
        got = message(step, columns).got
        assert "the parameters of `critic_target`, first in number 17" in got


def test_failure_of_a_later_phase_takes_back_the_earlier_ones():
    """The actor's noise alone is bad: the critic has stepped, and its target moved, by then."""
    built = build("sac")
    rng = np.random.default_rng(1)
    cpu = learner(built.update, built.parameters, ROWS, learners=2)
    cpu.step(batch(built, rng))
    before = cpu.state()
    columns = batch(built, rng)
    columns["noise"][4, 1] = np.nan
    error = message(cpu.step, columns)
    assert error.field == "phases[1] sac-actor"
    assert "the input `noise` in row 4" in error.got
    after = cpu.state()
    for network, vector in before.parameters.items():
        np.testing.assert_array_equal(vector, after.parameters[network])
    assert cpu.updates == 1


def odd_update():
    """log(x) is bad for x < 0; exp(y) overflows, but in a branch that is never taken."""
    b = Builder()
    large = b.add("exp", b.add("mul", "y", b.add("const", value=1000.0)))
    never = b.add("where", b.add("less", "y", "y"), large, "y")
    root = b.add("log", "x")
    td = b.add("tanh", b.add("add", never, b.add("neg", root)))
    b.add_sum("sum_over_rows", b.add("mul", td, "scale"), offset=0)
    net = Network("p", 1)
    inputs = (Buffer("x", 1), Buffer("y", 1), Buffer("scale", 1))
    program = Program("odd", (net,), inputs, tuple(b.ops), {"td_error": td}, "p")
    policy = Program("none", (net,), (Buffer("x", 1),), (), {"x": "x"})
    return Update("odd", (Phase(program, Adam()),), (), policy), root


def odd_columns(rows):
    """Positive numbers."""
    return {name: np.ones(rows, np.float32) for name in ("x", "y", "scale")}


def test_first_bad_operation_is_named_and_a_masked_infinity_is_not():
    """Infinity that `where` takes away is no cause; the logarithm of a negative number is."""
    update, root = odd_update()
    start = {"p": np.zeros(1, np.float32)}
    for step in (
        learner(update, start, 70, learners=2).step,
        ReferenceLearner(update, start).step,
    ):
        step(odd_columns(70))
        columns = odd_columns(70)
        columns["x"][[2, 69]] = -1
        got = message(step, columns).got
        position = next(i for i, op in enumerate(update.phases[0].program.ops) if op.kind == "log")
        assert f"first from ops[{position}] log (`{root}`) in rows 2, 69" in got


def test_gradient_that_overflows_is_named():
    """Each row is finite, the sum over them is not."""
    update, _ = odd_update()
    columns = odd_columns(70)
    columns["scale"][:] = 3e38
    got = message(learner(update, {"p": np.zeros(1, np.float32)}, 70).step, columns).got
    assert "sum_over_rows, the gradient" in got


@pytest.mark.parametrize("name", ["dqn", *ALGORITHMS])
def test_torch_backend_names_the_input_too(name):
    """By running the captured Program once more."""
    if name == "dqn":
        algorithm = algorithms.get("dqn")
        spaces = gym.spaces.Box(-1, 1, (5,)), gym.spaces.Discrete(3)
        built = algorithm.build(*spaces, algorithm.config(hidden=(12,)), 3)
    else:
        built = build(name)
    state = LearnerState.initial(built.update, built.parameters)
    backend = registry.require("torch")
    runs = registry.learner(backend, built, state, batch_size=ROWS, learners=1)
    columns = batch(built, np.random.default_rng(0))
    columns["action"] = columns["action"] if name != "dqn" else np.zeros(ROWS, np.int64)
    columns["reward"][[3, 5]] = np.nan
    error = message(runs.step, columns)
    assert "the input `reward` in rows 3, 5" in error.got
    assert error.rows == (3, 5)


@pytest.mark.parametrize("output", ["loss", "td_error", "extra"])
def test_torch_backend_looks_at_every_result_of_a_loss(output):
    """A NaN whose gradient is zero stops it too, as it stops the other backends."""

    def loss(nets, b):
        error = nets.q(b.obs)[:, 0] - b.reward
        nan = torch.log(b.reward.abs() * 0 - 1)
        results = {"loss": error**2, "td_error": error, "extra": error}
        results[output] = results[output].detach() + nan if output != "loss" else error**2 + nan
        return results["loss"], results["td_error"], {"extra": results["extra"]}

    built = assemble(
        "case",
        CommonConfig(),
        networks={"q": mlp((5, 3), 0)},
        steps=[Step("q", loss)],
        acting=Acting(lambda nets, b: nets.q(b.obs).argmax(1), ("q",), ("action",)),
        columns=transitions(5, ((), "int64")),
    )
    state = LearnerState.initial(built.update, built.parameters)
    columns = batch(built, np.random.default_rng(0))
    columns["action"] = np.zeros(ROWS, np.int64)
    for name in ("cpu", "torch", "reference"):
        backend = registry.require(name)
        runs = registry.learner(backend, built, state, batch_size=ROWS, learners=1)
        error = message(runs.step, columns)
        assert "log" in error.got, name
        np.testing.assert_array_equal(runs.parameters("q"), built.parameters["q"])


def filled(built, bad):
    """A replay with one bad reward."""
    replay = PrioritizedReplay(capacity=256, columns=built.columns, seed=0, gamma=0.9)
    columns = batch(built, np.random.default_rng(0), 64)
    columns["reward"][bad] = np.nan
    kept = {k: columns[k] for k in ("obs", "action", "reward", "next_obs", "terminated")}
    replay.add(**kept, truncated=np.zeros(64, bool))
    return replay


def test_loops_add_the_ids_of_the_rows():
    """In the native loop, in its thread, and in the one in Python."""
    built = build("sac")
    replay = filled(built, 37)
    cpu = learner(built.update, built.parameters, 60)
    loop = native.LearnerLoop(cpu.native, replay)
    found = message(lambda _: [loop.run_once() for _ in range(50)], None)
    assert "the input `reward` in row" in found.got
    assert "; batch ids 37" in found.got
    gate = native.RatioGate(1, 0, 100_000)
    assert gate.acquire_steps(50_000)
    gate.inserted(50_000)
    loop.start(gate)
    assert loop.join(60.0)
    assert "; batch ids 37" in message(lambda _: loop.raise_if_failed(), None).got
    state = LearnerState.initial(built.update, built.parameters)
    host = HostLoop(
        registry.learner(registry.require("reference"), built, state, batch_size=60, learners=1),
        replay,
        gate,
        native.WeightStore(built.update.policy.networks[0].size),
        acting=("actor",),
        batch_size=60,
        beta=LinearSchedule(0.4, 1.0, 10),
    )
    found = message(lambda _: [host.run_once() for _ in range(50)], None)
    assert "; batch ids 37" in found.got
