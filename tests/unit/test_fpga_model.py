# SPDX-License-Identifier: MIT
"""The model of the FPGA engine against one that computes a scalar at a time."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from fpga_oracle import Oracle

from copal.fpga.config import EngineConfig
from copal.fpga.isa import ErrorCode, Instruction, Memory, Op, Vop, beats
from copal.fpga.model import Memories, Model, machine
from copal.native import load, supported
from random_code import fill, random_instruction, small_config

NAMES = ("v", "w", "t", "m", "s", "g", "gb", "k", "range", "a", "b", "bias", "mask", "norm")


def program(model: Model, *code: Instruction) -> None:
    """Loads instructions and an END."""
    model.memories.load(Memory.CODE, 0, beats([*code, Instruction(Op.END)]))


def assert_same(found: Memories, wanted: Memories, about: object) -> None:
    """Every memory, bit for bit."""
    for name in NAMES:
        one, other = getattr(found, name), getattr(wanted, name)
        np.testing.assert_array_equal(
            one.view(np.uint8), other.view(np.uint8), err_msg=f"{name} after {about}"
        )


@pytest.mark.parametrize("use_native", [False, True])
@pytest.mark.parametrize("p", [4, 8, 16])
@pytest.mark.parametrize("op", [op for op in Op if op != Op.END])
def test_instruction_does_what_its_definition_says(
    op: Op, p: int, use_native: bool, rng: np.random.Generator
):
    """Random instructions of every kind, all flags, tails and strides; NumPy and compiled code."""
    config = small_config(p, int(rng.choice([16, 18])), int(rng.choice([18, 22, 25])))
    for _ in range(3 if op == Op.PRODUCT and p == 16 else 20):
        model = Model(config, use_native=use_native)
        fill(model.memories, config, rng)
        instruction = random_instruction(op, config, rng)
        accumulate = bool(rng.integers(2))
        program(model, instruction)
        wanted = copy.deepcopy(model.memories)
        if not accumulate:
            wanted.range[:] = 0
        Oracle(config, wanted).run(instruction, accumulate)
        result = model.run(accumulate=accumulate)
        assert result.error == ErrorCode.NONE, instruction
        assert result.pc == 1
        assert_same(model.memories, wanted, instruction)


def test_vector_operations_on_special_values(rng: np.random.Generator):
    """NaN, infinities, both zeros and subnormals as either operand of every operation."""
    config, use_native = small_config(4), bool(rng.integers(2))
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.5], np.float32)
    for vop in [v for v in Vop if v not in (Vop.EXP, Vop.LOG, Vop.TANH)]:
        model = Model(config, use_native=use_native)
        model.memories.v[:] = rng.choice(special, model.memories.v.shape)
        fields = {"vop": int(vop), "cols": 3, "nt": 3, "d_c": 4}
        fields |= {"x_base": 40, "x_c": 4, "y_base": 80, "y_c": 4, "pred": int(rng.integers(3))}
        instruction = Instruction(Op.VECTOR, fields)
        program(model, instruction)
        wanted = copy.deepcopy(model.memories)
        Oracle(config, wanted).run(instruction)
        model.run()
        assert_same(model.memories, wanted, instruction)


@pytest.mark.parametrize("isa", supported())
def test_all_instruction_sets_compute_the_same_bits(
    isa: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    """Programs of several random instructions, compiled for each processor and in NumPy."""
    monkeypatch.setattr(machine, "native", load(isa))
    config = small_config(8)
    for _ in range(20):
        models = Model(config), Model(config, use_native=False)
        kinds = rng.choice([Op.PRODUCT, Op.VECTOR, Op.QUANT, Op.UPDATE, Op.NORM], 8)
        code = [random_instruction(Op(kind), config, rng) for kind in kinds]
        seed = int(rng.integers(1 << 30))
        for model in models:
            fill(model.memories, config, np.random.default_rng(seed))
            program(model, *code)
        assert models[0].run() == models[1].run()
        assert_same(models[0].memories, models[1].memories, code)


@pytest.mark.parametrize("vop", [Vop.EXP, Vop.LOG, Vop.TANH])
def test_functions_are_the_same_in_compiled_code(vop: Vop, rng: np.random.Generator):
    """Bits of all kinds, ordinary numbers, special ones, and the borders of the table's parts."""
    config = EngineConfig(array_size=8)
    bits = rng.integers(0, 1 << 32, (256, 8), dtype=np.uint32)
    bits[::2] = (rng.normal(size=(128, 8)) * rng.choice([1, 10, 100])).astype(np.float32).view("u4")
    borders = np.outer([0, 1, 2, 4, 8, 16, 64, 88, 104, 128, np.inf], [1, -1]).astype(np.float32)
    near = (borders / np.float32(np.log2(np.e))).reshape(-1)
    near = np.concatenate([borders.reshape(-1), near, np.nextafter(near, 0), [np.nan, 0.75, 1.5]])
    bits.reshape(-1)[: len(near)] = near.astype(np.float32).view(np.uint32)
    models = Model(config), Model(config, use_native=False)
    for model in models:
        model.memories.v[:256] = bits.view(np.float32)
        fields = {"vop": int(vop), "cols": 255, "d_base": 256, "d_c": 1, "x_c": 1}
        program(model, Instruction(Op.VECTOR, fields))
        assert model.run().error == ErrorCode.NONE
    assert_same(models[0].memories, models[1].memories, vop)
    found, x = models[0].memories.v[256:512:2], models[0].memories.v[:256:2]
    with np.errstate(all="ignore"):
        wanted = {Vop.EXP: np.exp, Vop.LOG: np.log, Vop.TANH: np.tanh}[vop](x.astype(float))
        wanted = wanted.astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-37)


def test_sums_reach_the_ends_of_their_width():
    """Extreme operands over a long sum stay exact."""
    config = EngineConfig(array_size=4, vector_lanes=4, adam_lanes=2)
    model = Model(config)
    model.memories.a[:] = -(1 << 17)
    model.memories.b[:] = -(1 << 17)
    fields = {"kn": 510, "a_k": 1, "b_k": 1, "shift": 26, "to_v": 1, "c_i": 1}
    program(model, Instruction(Op.PRODUCT, fields))
    assert model.run().slots == 511
    assert (model.memories.v.view(np.int32)[:4] == 511 << 34 - 26).all()


def test_a_target_and_a_gradient_share_a_run(rng: np.random.Generator):
    """RUNs that accumulate add to G, GB and RANGE; one that does not starts afresh."""
    config = small_config(4)
    model = Model(config)
    fill(model.memories, config, rng)
    fields = {"kn": 3, "to_g": 1, "bgrad": 1, "range": 1, "c_i": 1, "shift": 8}
    program(model, Instruction(Op.PRODUCT, fields))
    model.run()
    first = model.memories.g[:4].copy(), model.memories.gb[0].copy()
    model.run(accumulate=True)
    np.testing.assert_array_equal(model.memories.g[:4], 2 * first[0])
    np.testing.assert_array_equal(model.memories.gb[0], 2 * first[1])
    model.run()
    np.testing.assert_array_equal(model.memories.g[:4], first[0])


BAD = {
    "c beyond A": (Op.PRODUCT, {"c_base": 255, "c_i": 1, "to_a": 1}, ErrorCode.ADDRESS),
    "tile beyond B": (Op.PRODUCT, {"b_base": 64, "to_v": 1}, ErrorCode.ADDRESS),
    "mask beyond": (Op.PRODUCT, {"mask_base": 253, "relu": 1}, ErrorCode.ADDRESS),
    "bias beyond": (Op.PRODUCT, {"bias_base": 24, "bgrad": 1}, ErrorCode.ADDRESS),
    "range beyond": (Op.PRODUCT, {"range": 8}, ErrorCode.ADDRESS),
    "m_tail": (Op.PRODUCT, {"m_tail": 5, "range": 255}, ErrorCode.FIELD),
    "n_tail": (Op.QUANT, {"n_tail": 5, "range": 255}, ErrorCode.FIELD),
    "V beyond": (Op.VECTOR, {"d_base": 159, "nt": 1}, ErrorCode.ADDRESS),
    "unknown operation": (Op.VECTOR, {"vop": 17}, ErrorCode.FIELD),
    "unknown predicate": (Op.VECTOR, {"pred": 3}, ErrorCode.FIELD),
    "parameters beyond": (Op.UPDATE, {"count": 256}, ErrorCode.ADDRESS),
    "copies beyond": (Op.UPDATE, {"aw_base": 256, "copy_w": 1}, ErrorCode.ADDRESS),
    "lane": (Op.BROADCAST, {"lane": 4}, ErrorCode.FIELD),
    "gradient beyond": (Op.NORM, {"gb": 1, "p_base": 24}, ErrorCode.ADDRESS),
    "scalar beyond": (Op.SCALAR, {"x_base": 160}, ErrorCode.ADDRESS),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_instruction_ends_the_run(case: str, rng: np.random.Generator):
    """Its code and address are reported, it writes nothing, and what came before stays."""
    op, fields, code = BAD[case]
    config = small_config(4)
    model = Model(config)
    fill(model.memories, config, rng)
    program(model, Instruction(Op.SCALAR, {"index": 5}), Instruction(op, fields))
    wanted = copy.deepcopy(model.memories)
    wanted.k[5] = wanted.v[0, 0]
    wanted.range[:] = 0
    result = model.run()
    assert (result.error, result.pc) == (code, 1)
    assert_same(model.memories, wanted, case)


def test_operations_that_were_not_built_in_are_refused():
    """An engine without functions."""
    model = Model(EngineConfig(array_size=4, adam_lanes=2, functions=False))
    program(model, Instruction(Op.VECTOR, {"vop": int(Vop.TANH)}))
    assert model.run().error == ErrorCode.FIELD


def test_malformed_words_and_the_end_of_the_code():
    """Unknown kinds, reserved bits, and no END."""
    model = Model(small_config(4))
    model.memories.code[0, 0] = 15
    result = model.run()
    assert (result.error, result.pc, result.slots) == (ErrorCode.OPCODE, 0, 0)
    model.memories.code[0] = (7, 0, 0, 0, 1)
    assert model.run().error == ErrorCode.FIELD
    model.memories.code[:] = beats([Instruction(Op.SCALAR)])
    result = model.run()
    assert (result.error, result.pc) == (ErrorCode.ADDRESS, 16)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_input_of_products_stops_the_run(value: float, rng: np.random.Generator):
    """In a valid lane only: rows behind the batch and columns behind the tensor do not matter."""
    config = small_config(4)
    model = Model(config)
    program(model, Instruction(Op.QUANT, {"cols": 3, "nt": 1, "x_c": 2, "n_tail": 2, "to_b": 1}))
    model.memories.v[:6] = random_row = rng.normal(size=(6, 4))
    model.memories.v[5, 2] = value
    model.memories.v[6, 0] = value
    assert model.run().error == ErrorCode.NONE
    model.memories.v[:6] = random_row
    model.memories.v[5, 1] = value
    result = model.run()
    assert (result.error, result.pc) == (ErrorCode.NOT_FINITE, 0)


@pytest.mark.parametrize("p", [4, 8])
def test_dump_of_operands_is_in_bank_order(p: int, rng: np.random.Generator):
    """Element (i, j) of a tile lies in bank (i + j) mod P, from any address on."""
    config = small_config(p)
    memories = Memories(config)
    fill(memories, config, rng)
    first, count = int(rng.integers(20)), 3 * p
    found = memories.dump(Memory.A, first, count).view(np.int32).reshape(count, p)
    for word in range(count):
        i = (first + word) % p
        for j in range(p):
            assert found[word, (i + j) % p] == memories.a[first + word, j]
