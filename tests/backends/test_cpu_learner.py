# SPDX-License-Identifier: MIT
"""Whole updates of the cpu backend against the float64 reference, and what must not matter."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from cpu_cases import (
    BATCH_SIZES,
    batch,
    dqn_update,
    learner,
    parameters,
    policy_program,
    relative,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from copal import native as modules
from copal.backends.base import LearnerState
from copal.backends.cpu import CpuBackend
from copal.errors import ConfigError, LearnerFailedError, ProgramError, SchemaError
from copal.program import Adam, Target
from copal.program.reference import ReferenceLearner

SHAPES = ((3, 17, 5, 2), (8, 64, 64, 4), (1, 1, 1), (33, 70, 7), (5, 3))


@pytest.mark.parametrize("gemm", ["auto", "eigen"])
@pytest.mark.parametrize("sizes", SHAPES)
def test_gradient_equals_float64(sizes, gemm):
    """Gradient, TD errors and loss, at every way to cut a batch into blocks."""
    rng = np.random.default_rng(sum(sizes))
    update = dqn_update(sizes)
    start = parameters(update, rng)
    reference = ReferenceLearner(update, start)
    for rows in BATCH_SIZES:
        columns = batch(sizes, rows, rng)
        expected, td, loss = reference.gradient(columns)
        actual, actual_td, actual_loss = learner(update, start, rows, gemm=gemm).gradient(columns)
        assert relative(actual, expected) < 1e-5, rows
        assert relative(actual_td, td) < 1e-5, rows
        assert actual_loss == pytest.approx(loss, rel=1e-5)


@settings(max_examples=25)
@given(data=st.data())
def test_gradient_of_a_random_network_equals_float64(data):
    """Any depth, any widths, any batch, any number of learners."""
    sizes = tuple(data.draw(st.lists(st.integers(1, 90), min_size=2, max_size=5)))
    rows = data.draw(st.integers(1, 200))
    count = data.draw(st.integers(1, min(rows, 5)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    update = dqn_update(sizes)
    start = parameters(update, rng)
    columns = batch(sizes, rows, rng)
    expected, td, _ = ReferenceLearner(update, start).gradient(columns)
    actual, actual_td, _ = learner(update, start, rows, learners=count).gradient(columns)
    # Terms of a sum may cancel, so a gradient of nearly nothing is judged on an absolute scale.
    assert np.linalg.norm(actual - expected) <= 1e-5 * max(np.linalg.norm(expected), 1e-3)
    assert relative(actual_td, td) < 1e-5


@pytest.mark.parametrize("gemm", ["auto", "eigen"])
@pytest.mark.parametrize("max_grad_norm", [None, 0.05])
@pytest.mark.parametrize("learners", [1, 3])
def test_twenty_updates_equal_float64(gemm, max_grad_norm, learners):
    """Adam, clipping and target averaging."""
    sizes = (6, 40, 24, 3)
    rng = np.random.default_rng(7)
    update = dqn_update(sizes, max_grad_norm=max_grad_norm)
    start = parameters(update, rng)
    reference = ReferenceLearner(update, start)
    cpu = learner(update, start, 50, gemm=gemm, learners=learners)
    for _ in range(20):
        columns = batch(sizes, 50, rng)
        assert relative(cpu.step(columns), reference.step(columns)) < 1e-4
    state = cpu.state()
    for name in ("q", "q_target"):
        moved = np.linalg.norm(reference.parameters[name] - start[name])
        wrong = np.linalg.norm(state.parameters[name] - reference.parameters[name])
        assert wrong < 1e-3 * moved, name
    assert relative(state.first_moment["q"], reference.first_moment["q"]) < 1e-4
    assert relative(state.second_moment["q"], reference.second_moment["q"]) < 1e-4
    assert state.optimiser_steps == {"q": 20}
    assert state.updates == cpu.updates == 20


@pytest.mark.parametrize(
    "targets",
    [
        (Target("q", "q_target", 1.0, 3),),
        (Target("q", "q_target", 0.1, 2),),
        (Target("q", "q_target", 0.1), Target("q_target", "third", 0.3)),
        (Target("q", "third", 0.1), Target("q", "q_target", 0.2, 4)),
    ],
)
def test_targets_follow_in_order(targets):
    """Periodic copies, periodic averaging, chains and several followers."""
    sizes = (4, 20, 3)
    rng = np.random.default_rng(3)
    update = dqn_update(sizes, targets=targets)
    program = update.phases[0].program
    third = dataclasses.replace(program.networks[0], name="third")
    program = dataclasses.replace(program, networks=(*program.networks, third))
    phase = dataclasses.replace(update.phases[0], program=program)
    update = dataclasses.replace(update, phases=(phase,))
    start = parameters(update, rng)
    reference, cpu = ReferenceLearner(update, start), learner(update, start, 32)
    for i in range(7):
        columns = batch(sizes, 32, rng)
        reference.step(columns)
        cpu.step(columns)
        state = cpu.state()
        for name in ("q_target", "third"):
            assert relative(state.parameters[name], reference.parameters[name]) < 1e-4, (i, name)
    if targets[0].tau == 1.0:
        cpu = learner(update, start, 32)
        for _ in range(3):
            cpu.step(columns)
        copied = cpu.state().parameters
        np.testing.assert_array_equal(copied["q"], copied["q_target"])


def two_phases(sizes, every):
    """A second phase that trains the target network on the same loss, now and then."""
    update = dqn_update(sizes, targets=())
    second = dataclasses.replace(update.phases[0].program, name="second", gradient="q_target")
    ops = tuple(
        dataclasses.replace(op, attrs=swapped(op.attrs)) if "network" in op.attrs else op
        for op in second.ops
    )
    second = dataclasses.replace(second, ops=ops)
    phase = dataclasses.replace(update.phases[0], program=second, every=every)
    return dataclasses.replace(update, phases=(update.phases[0], phase))


def swapped(attrs):
    """The other network."""
    other = {"q": "q_target", "q_target": "q"}
    return {**attrs, "network": other[attrs["network"]]}


@pytest.mark.parametrize("every", [1, 3])
def test_phases_run_in_order(every):
    """The second phase sees the parameters that the first one made."""
    sizes = (5, 18, 4)
    rng = np.random.default_rng(11)
    update = two_phases(sizes, every)
    start = parameters(update, rng)
    reference, cpu = ReferenceLearner(update, start), learner(update, start, 40, learners=2)
    for _ in range(7):
        columns = batch(sizes, 40, rng)
        assert relative(cpu.step(columns), reference.step(columns)) < 1e-4
    assert cpu.state().optimiser_steps == {"q": 7, "q_target": 7 // every}
    for name, expected in reference.parameters.items():
        moved = np.linalg.norm(expected - start[name])
        assert np.linalg.norm(cpu.state().parameters[name] - expected) < 1e-3 * moved


@pytest.mark.parametrize("rows", [4, 37, 64])
def test_learners_share_the_batch_and_change_nothing(rows):
    """The gradient of 2, 3 and 4 learners is that of one."""
    sizes = (7, 50, 30, 3)
    rng = np.random.default_rng(rows)
    update = dqn_update(sizes)
    start, columns = parameters(update, rng), batch(sizes, rows, rng)
    one, td, _ = learner(update, start, rows).gradient(columns)
    for count in (2, 3, 4):
        some, some_td, _ = learner(update, start, rows, learners=count).gradient(columns)
        assert np.abs(some - one).max() < 1e-6
        assert np.abs(some_td - td).max() < 1e-6


@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_threads_do_not_matter_bit_for_bit(max_grad_norm):
    """Blocks and the order of every sum are fixed by the learners."""
    sizes = (8, 100, 40, 4)
    update = dqn_update(sizes, max_grad_norm=max_grad_norm)
    start = parameters(update, np.random.default_rng(5))
    states = []
    for threads in (1, 2, 4):
        rng = np.random.default_rng(6)
        cpu = learner(update, start, 90, learners=4, threads=threads)
        for _ in range(30):
            cpu.step(batch(sizes, 90, rng))
        states.append(cpu.state())
    for other in states[1:]:
        for name in start:
            np.testing.assert_array_equal(states[0].parameters[name], other.parameters[name])
        np.testing.assert_array_equal(states[0].second_moment["q"], other.second_moment["q"])


@pytest.mark.parametrize("isa", modules.supported())
def test_every_instruction_set_agrees(isa):
    """The modules of other instruction sets compute the same update."""
    sizes = (9, 33, 20, 5)
    rng = np.random.default_rng(2)
    update = dqn_update(sizes)
    start, columns = parameters(update, rng), batch(sizes, 77, rng)
    reference = ReferenceLearner(update, start)
    native = modules.load(isa).Learner(json.loads(update.to_json()), 77, 2)
    for name, vector in start.items():
        native.set_parameters(name, vector)
    expected, _, _ = reference.gradient(columns)
    assert relative(native.gradient(columns)[0], expected) < 1e-5
    for _ in range(10):
        assert relative(native.step(columns), reference.step(columns)) < 1e-4
    assert relative(native.parameters("q"), reference.parameters["q"]) < 1e-4


@pytest.mark.parametrize("column", ["obs", "next_obs", "reward", "weight"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("learners", [1, 2])
def test_bad_number_in_a_batch_changes_nothing(column, bad, learners):
    """The learner fails with the phase's name; parameters, moments and counters stay."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = two_phases(sizes, 1)
    cpu = learner(update, parameters(update, rng), 20, learners=learners)
    cpu.step(batch(sizes, 20, rng))
    before = cpu.state()
    columns = batch(sizes, 20, rng)
    columns["terminated"][:] = False
    columns[column][-1] = bad
    with pytest.raises(LearnerFailedError, match="dqn"):
        cpu.step(columns)
    assert_same(before, cpu.state())
    cpu.step(batch(sizes, 20, rng))
    assert cpu.updates == 2


def test_failure_of_the_second_phase_takes_back_the_first():
    """An update is done whole or not at all."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = two_phases(sizes, 1)
    second = update.phases[1]
    renamed = tuple(
        dataclasses.replace(op, inputs=tuple("late" if i == "reward" else i for i in op.inputs))
        for op in second.program.ops
    )
    inputs = tuple(
        dataclasses.replace(b, name="late") if b.name == "reward" else b
        for b in second.program.inputs
    )
    program = dataclasses.replace(second.program, ops=renamed, inputs=inputs)
    second = dataclasses.replace(second, program=program)
    targets = (Target("q", "follower", 0.1),)
    follower = dataclasses.replace(update.policy.networks[0], name="follower")
    policy = dataclasses.replace(update.policy, networks=(*update.policy.networks, follower))
    update = dataclasses.replace(
        update, phases=(update.phases[0], second), targets=targets, policy=policy
    )
    cpu = learner(update, parameters(update, rng), 20)
    columns = {**batch(sizes, 20, rng), "late": np.zeros(20, np.float32)}
    cpu.step(columns)
    before = cpu.state()
    columns["late"][3] = np.nan
    with pytest.raises(LearnerFailedError, match="second"):
        cpu.step(columns)
    assert_same(before, cpu.state())


def assert_same(a: LearnerState, b: LearnerState) -> None:
    """Two states are equal bit for bit."""
    for field in ("parameters", "first_moment", "second_moment"):
        for name, vector in getattr(a, field).items():
            np.testing.assert_array_equal(vector, getattr(b, field)[name])
    assert (a.optimiser_steps, a.updates) == (b.optimiser_steps, b.updates)


def test_action_outside_the_network_fails_and_reads_nothing():
    """An index that points outside the row is reported like a NaN."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = dqn_update(sizes)
    cpu = learner(update, parameters(update, rng), 20)
    for action in (3, -1, 2**31 - 1, 2**40, -(2**40)):
        columns = batch(sizes, 20, rng)
        columns["action"][7] = action
        with pytest.raises(LearnerFailedError, match="row 7"):
            cpu.step(columns)


def test_columns_of_other_dtypes_and_layouts_are_converted():
    """float64, int32, uint8 and strided columns give the same update."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = dqn_update(sizes)
    start, columns = parameters(update, rng), batch(sizes, 20, rng)
    expected = learner(update, start, 20).step(columns)
    other = {
        **columns,
        "obs": columns["obs"].astype(np.float64),
        "next_obs": np.asfortranarray(columns["next_obs"]),
        "action": columns["action"].astype(np.int32),
        "terminated": columns["terminated"].astype(np.uint8),
        "reward": columns["reward"][:, None],
        "weight": np.repeat(columns["weight"], 2)[::2],
    }
    np.testing.assert_array_equal(learner(update, start, 20).step(other), expected)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("obs", np.zeros((20, 5), np.float32)),
        ("obs", np.zeros((19, 4), np.float32)),
        ("action", np.zeros(20, np.float32)),
        ("reward", np.zeros(20, np.complex64)),
        ("discount", 0.99),
        ("weight", None),
    ],
)
def test_wrong_column_is_named(column, value):
    """Shape, dtype and absence are typed errors before anything happens."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = dqn_update(sizes)
    cpu = learner(update, parameters(update, rng), 20)
    columns = batch(sizes, 20, rng)
    columns[column] = value
    if value is None:
        del columns[column]
    with pytest.raises(SchemaError, match=column):
        cpu.step(columns)
    assert cpu.updates == 0


@pytest.mark.parametrize(
    "options", [{"learners": 0}, {"learners": 21}, {"learners": 2, "threads": 3}, {"gemm": "mkl"}]
)
def test_setting_out_of_range_is_a_config_error(options):
    """Learners need rows, threads need learners."""
    update = dqn_update((4, 16, 3))
    with pytest.raises(ConfigError):
        learner(update, parameters(update, np.random.default_rng(0)), 20, **options)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", float("nan")),
        ("learning_rate", -1e-3),
        ("learning_rate", float("inf")),
        ("eps", 0.0),
        ("beta1", 1.0),
        ("beta2", float("nan")),
    ],
)
def test_optimiser_settings_out_of_range_are_refused(field, value):
    """They would turn every parameter to NaN, or away from the minimum."""
    update = dqn_update((4, 16, 3))
    phase = dataclasses.replace(update.phases[0], optimiser=Adam(**{field: value}))
    with pytest.raises(ProgramError, match="optimiser"):
        learner(
            dataclasses.replace(update, phases=(phase,)),
            parameters(update, np.random.default_rng(0)),
            20,
        )


def test_state_continues_bit_for_bit():
    """A learner that loads the state of another one goes on like it."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = dqn_update(sizes)
    first = learner(update, parameters(update, rng), 20, learners=2)
    batches = [batch(sizes, 20, rng) for _ in range(6)]
    for columns in batches[:3]:
        first.step(columns)
    second = CpuBackend().learner(update, first.state(), batch_size=20, learners=2)
    for columns in batches[3:]:
        np.testing.assert_array_equal(first.step(columns), second.step(columns))
    assert_same(first.state(), second.state())


def test_state_of_another_network_is_refused():
    """A vector of the wrong size is named and nothing is changed."""
    update = dqn_update((4, 16, 3))
    cpu = learner(update, parameters(update, np.random.default_rng(0)), 20)
    before = cpu.state()
    state = cpu.state()
    state.second_moment["q"] = state.second_moment["q"][:-1]
    state.parameters["q"] += 1
    with pytest.raises(SchemaError, match="second_moment"):
        cpu.load_state(state)
    assert_same(before, cpu.state())


def test_metrics_are_means_over_the_batch():
    """Loss and |TD| as the reference has them."""
    sizes = (4, 16, 3)
    rng = np.random.default_rng(0)
    update = dqn_update(sizes)
    start, columns = parameters(update, rng), batch(sizes, 37, rng)
    gradient, td, loss = ReferenceLearner(update, start).gradient(columns)
    cpu = learner(update, start, 37)
    cpu.step(columns)
    assert cpu.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert cpu.metrics["td_error_abs"] == pytest.approx(np.abs(td).mean(), rel=1e-5)
    assert cpu.metrics["grad_norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-5)


def test_backend_supports_every_operation():
    """Nothing of a Program is ever run elsewhere."""
    assert CpuBackend().unavailable() is None
    assert CpuBackend().supports(dqn_update((4, 16, 3)).phases[0].program) is None
    assert CpuBackend().supports(policy_program((4, 16, 3))) is None


def test_update_without_phases_is_refused():
    """An update has at least one phase."""
    update = dqn_update((4, 16, 3))
    plain = json.loads(update.to_json())
    plain["phases"] = []
    with pytest.raises(ProgramError, match="phases"):
        modules.native.Learner(plain, 20)
