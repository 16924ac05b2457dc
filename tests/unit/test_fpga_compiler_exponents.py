# SPDX-License-Identifier: MIT
"""Exponents: chosen from a batch, following the ranges, written into code."""

from __future__ import annotations

import numpy as np
import pytest
from fpga_engine import Engine, engine, random_batch
from test_fpga_compiler import ALGORITHMS, algorithm, dqn_built, relative

from copal.errors import ProgramError
from copal.fpga.compiler import ExponentFollower, Plan, bounded, calibrate, compile_update
from copal.fpga.compiler.exponents import PATIENCE, PATIENCE_BOUND
from copal.fpga.isa import BEATS, Instruction
from copal.program import reference
from copal.program.noise import with_noise


@pytest.fixture
def plan() -> Plan:
    return compile_update(dqn_built().update, engine(), 8)


def entry(magnitude: int, saturated: int = 0) -> np.uint64:
    """An entry of RANGE."""
    return np.uint64(magnitude << 32 | saturated)


def ranges(plan: Plan) -> list[np.ndarray]:
    """Entries of one update in which nothing was counted."""
    return [np.zeros(len(plan.scales), np.uint64)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_calibrated_exponents_hold_the_batch(name: str, rng: np.random.Generator) -> None:
    """No value that they were chosen from saturates, and no more bits than the room are free."""
    built = algorithm(name)
    plan = compile_update(built.update, engine(), 12)
    batch = random_batch(built.update, 12, rng)
    exponents = calibrate(plan, built.parameters, batch)
    columns = with_noise(built.update, batch, 0)
    result = reference.run(built.update.phases[0].program, built.parameters, columns)
    for info, e in zip(plan.scales.values(), exponents, strict=True):
        own = [s for s in info.samples if s.what == "parameters"]
        for s in own:
            top = np.abs(built.parameters[s.name][s.offset : s.offset + s.size]).max()
            assert 0.5 <= top * 2.0**e / 2 ** (info.bits - info.room) < 1 or len(own) > 1
        first = [s for s in info.samples if s.phase == 0 and s.what == "buffer"]
        for s in first:
            assert np.abs(result.buffers[s.name]).max() * 2.0**e < 2**info.bits


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_field_holds_what_exponents_ask_for(name: str, rng: np.random.Generator) -> None:
    """Whatever the numbers are, from 1e-45 to 1e38: no shift is negative or too large."""
    plan = compile_update(algorithm(name).update, engine(), 8)
    number = {name: i for i, name in enumerate(plan.scales)}
    for _ in range(50):
        low, high = np.sort(rng.integers(-130, 170, 2))
        wanted = rng.integers(low, high, len(plan.scales), endpoint=True)
        found = bounded(plan, wanted)
        for limit in plan.limits:
            a, b = (found[number[n]] for n in limit.operands)
            assert 0 <= a + b - found[number[limit.result]] <= 63
        np.testing.assert_array_equal(bounded(plan, found), found)
        plan.encode(found)


def test_encoding_is_that_of_the_instructions(plan: Plan, rng: np.random.Generator) -> None:
    """Beats with patched fields, against instructions encoded one by one."""
    exponents = bounded(plan, rng.integers(-5, 30, len(plan.scales)))
    named = dict(zip(plan.scales, exponents.tolist(), strict=True))
    values: dict[int, dict[str, int]] = {}
    for f in plan.fields:
        value = f.scale.constant + sum(named[n] * k for n, k in f.scale.terms)
        values.setdefault(f.instruction, {})[f.name] = value
    code = plan.encode(exponents).reshape(-1, BEATS)
    for pc, ins in enumerate(plan.instructions):
        fields = {**ins.fields, **values.get(pc, {})}
        whole = Instruction(ins.op, fields, ins.fence).encode()
        assert sum(int(b) << 64 * i for i, b in enumerate(code[pc])) == whole


def test_exponents_beyond_reason_are_refused(plan: Plan) -> None:
    """A field that cannot hold its value is named."""
    with pytest.raises(ProgramError, match="of instruction"):
        plan.encode(np.where(np.arange(len(plan.scales)) % 2, 300, -300))


def test_saturation_makes_coarser_at_once(plan: Plan) -> None:
    """By what was too large, and the room."""
    follower = ExponentFollower(plan, np.full(len(plan.scales), 12))
    name = next(n for n, s in plan.scales.items() if not s.bound and s.bits == 17)
    i = list(plan.scales).index(name)
    info = plan.scales[name]
    rows = ranges(plan)
    rows[0][i] = entry((1 << info.bits + 2) - 1, 3)
    assert follower.follow(rows) == (True, False)
    assert follower.exponents[i] <= 12 - 2 - info.room
    assert follower.saturated[i] == 3


def test_unused_bits_make_finer_after_a_while(plan: Plan) -> None:
    """Not at once, and by no more than the smallest number of free bits allows."""
    name = next(n for n, s in plan.scales.items() if not s.bound and s.bits == 17)
    i, info = list(plan.scales).index(name), plan.scales[name]
    follower = ExponentFollower(plan, np.full(len(plan.scales), 4))
    rows = ranges(plan)
    rows[0][i] = entry((1 << info.bits - info.room - 3) - 1)
    for _ in range(PATIENCE - 1):
        assert follower.follow(rows) == (False, False)
    assert follower.follow(rows)[0]
    assert follower.exponents[i] == 7


def test_a_change_of_weights_asks_for_new_copies(plan: Plan) -> None:
    """Their integers are stored, and so are the biases that depend on inputs."""
    name = next(n for n, s in plan.scales.items() if s.bound)
    i, info = list(plan.scales).index(name), plan.scales[name]
    follower = ExponentFollower(plan, np.full(len(plan.scales), 10))
    rows = ranges(plan)
    rows[0][i] = entry((1 << info.bits - info.room - 1) - 1)
    for _ in range(PATIENCE_BOUND - 1):
        assert follower.follow(rows) == (False, False)
    assert follower.follow(rows) == (True, True)
    rows[0][i] = entry((1 << info.bits + 1) - 1, 1)
    assert follower.follow(rows) == (True, True)


def test_silent_entries_change_nothing(plan: Plan) -> None:
    """Phases that did not run, and tensors that are all zero."""
    follower = ExponentFollower(plan, np.full(len(plan.scales), 9))
    for _ in range(PATIENCE_BOUND + 2):
        assert follower.follow(ranges(plan)) == (False, False)


def test_a_training_with_growing_numbers_stays_exact(rng: np.random.Generator) -> None:
    """Rewards that grow by a factor of 1,000 saturate for an update, no longer."""
    built = dqn_built(max_grad_norm=None, huber=False)
    plan = compile_update(built.update, engine(), 16)
    run = Engine(plan, built.parameters, rng)
    errors = []
    for u in range(12):
        batch = random_batch(built.update, 16, rng)
        batch["reward"] = batch["reward"] * np.float32(1 if u < 3 else 1000)
        program = built.update.phases[0].program
        run.step(batch)
        want = reference.run(program, run.starts[0], batch).gradient / 16
        errors.append(relative(run.gradients[0], want))
    assert max(errors[:3]) < 0.05
    assert np.median(errors[6:]) < 5e-3
    assert run.follower.saturated.sum() > 0
