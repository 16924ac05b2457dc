# SPDX-License-Identifier: MIT
"""Random memories and well-formed random instructions, for benches and tests of the engine."""

from __future__ import annotations

import numpy as np

from copal.fpga.config import Depths, EngineConfig
from copal.fpga.isa import NO_RANGE, Instruction, Op, Vop
from copal.fpga.model import Memories

FUNCTIONS = (Vop.EXP, Vop.LOG, Vop.TANH)
SMALL = Depths(
    code=16, vector=160, a=256, b=256, parameters=256, bias=24, mask=256, range=8
)  # fmt: skip


def small_config(p: int, w: int = 18, wb: int = 22) -> EngineConfig:
    """An engine whose memories random instructions reach the ends of."""
    return EngineConfig(
        array_size=p, a_bits=w, b_bits=wb, vector_lanes=p // 2, adam_lanes=2, depths=SMALL
    )


def random_floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Float32 of few to many magnitudes, some zeros, some equal to each other."""
    x = rng.normal(size=shape) * 2.0 ** rng.integers(-8, 8, shape)
    x = np.where(rng.random(shape) < 0.2, rng.integers(-2, 3, shape), x)
    return x.astype(np.float32)


def fill(memories: Memories, config: EngineConfig, rng: np.random.Generator) -> None:
    """Puts random numbers into every memory but CODE."""
    for x, bits in ((memories.a, config.a_bits), (memories.b, config.b_bits)):
        top = 1 << bits - 1
        scale = int(rng.choice([200, top]))
        x[:] = rng.integers(-scale, scale, x.shape)
    for y in (memories.v, memories.w, memories.t, memories.m, memories.k):
        y[:] = random_floats(rng, y.shape)
    memories.s[:] = np.abs(random_floats(rng, memories.s.shape))
    for g in (memories.g, memories.gb):
        g[:] = rng.integers(-(2 ** int(rng.integers(8, 32))), 2**28, g.shape)
    memories.bias[:] = rng.integers(-(2**24), 2**24, memories.bias.shape)
    memories.mask[:] = rng.random(memories.mask.shape) < 0.5
    memories.norm[0] = int(rng.integers(2**40))


def fill_program(config: EngineConfig) -> list[Instruction]:
    """Code that fills what cannot be loaded: A, B, G, GB, BIAS, MASK, from V, W and T.

    For the depths of `SMALL` and P of 4 and 8.
    """
    p = config.array_size
    m, n = 64 // p, 4
    tiles = {"mt": m - 1, "nt": n - 1, "c_m": n * p, "c_n": p}
    product = {
        **tiles, "c_i": 1, "kn": p, "a_m": 1, "a_k": 1, "a_col": 1, "b_n": 3, "b_k": 1,
        "range": 255,
    }  # fmt: skip
    quant = {**tiles, "cols": 64, "x_c": 2, "range": 255, "exponent": 12}
    bias = {"bias": 1, "count": 11, "bt_base": 12, "copy_w": 1, "copy_t": 1, "e_w": 20, "e_t": 22}
    column = {"mt": 11, "kn": p + 3, "a_m": 1, "a_k": 2, "bgrad": 1, "range": 255}
    return [
        Instruction(Op.QUANT, {**quant, "to_a": 1}, fence=1),
        Instruction(Op.QUANT, {**quant, "to_b": 1, "x_base": 9}, fence=1),
        Instruction(Op.PRODUCT, {**product, "to_g": 1, "shift": 3}, fence=1),
        Instruction(Op.PRODUCT, {**product, "relu": 1, "b_col": 1}, fence=1),
        Instruction(Op.PRODUCT, column, fence=1),
        Instruction(Op.PRODUCT, {**column, "bias_base": 12, "a_base": 5, "a_col": 1}, fence=1),
        Instruction(Op.UPDATE, {**bias, "range_w": 255, "range_t": 255}, fence=1),
    ]


def random_instruction(op: Op, config: EngineConfig, rng: np.random.Generator) -> Instruction:
    """An instruction of kind `op` that stays inside the memories and does not read its results."""
    make = {
        Op.PRODUCT: _product,
        Op.VECTOR: _vector,
        Op.QUANT: _quant,
        Op.UPDATE: _update,
        Op.NORM: _norm,
        Op.BROADCAST: _broadcast,
        Op.SCALAR: _scalar,
    }
    fields = make[op](config, rng) if op in make else {}
    return Instruction(op, fields, int(rng.integers(2)))


def _product(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    p, bit = config.array_size, lambda: int(rng.integers(2))
    limits = (4, 4, 2 * p + 2) if p < 16 else (3, 4, p + 2)
    m, n, steps = (int(rng.integers(1, limit)) for limit in limits)
    k = (steps + p - 1) // p
    tiles, half = SMALL.a // p, SMALL.a // p // 2
    outer_first = bit()
    # Results lie in the upper half of A and B, operands in the lower one.
    way = rng.choice(["to_a", "to_b", "to_v", "to_g", "both"])
    c_m, c_n = (n * p, p) if outer_first else (p, m * p)
    fields = {
        "mt": m - 1, "nt": n - 1, "kn": steps - 1,
        "a_base": int(rng.integers(half - m * k + 1)), "a_m": k, "a_k": 1, "a_col": bit(),
        "b_base": int(rng.integers(half - n * k + 1)), "b_n": 1, "b_k": n, "b_col": bit(),
        "c_base": int(rng.integers(half, tiles - m * n + 1)) * p,
        "c_m": c_m, "c_n": c_n, "c_i": 1,
        "mask_base": int(rng.integers(SMALL.mask - m * n * p + 1)),
        "bias_base": int(rng.integers(SMALL.bias - m + 1)),
        "use_bias": bit(), "shift": int(rng.integers(24)), "relu": bit(), "use_mask": bit(),
        "bgrad": int(rng.random() < 0.3), "range": int(rng.choice([0, 3, NO_RANGE])),
        "m_tail": int(rng.integers(p + 1)), "n_tail": int(rng.integers(p + 1)),
    }  # fmt: skip
    if fields["relu"] and fields["use_mask"]:
        fields[str(rng.choice(["relu", "use_mask"]))] = 0
    if way == "both":
        fields |= {"to_a": 1, "to_b": 1}
    else:
        fields[str(way)] = 1
    if way == "to_v":
        # Features a row of V apart: row i of tile m, n is word (m * P + i) * n_tiles + n.
        fields |= {"c_i": n, "c_m": n * p, "c_n": 1}
        fields["c_base"] = int(rng.integers(SMALL.vector - m * n * p + 1))
        if n > 1:
            # Masks lie at the addresses of tiles; these would overlap.
            fields |= {"relu": 0, "use_mask": 0}
    return fields


def _vector(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    known = [v for v in Vop if v not in FUNCTIONS]
    cols, nt = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    third = SMALL.vector // 3
    spread = third - cols * nt
    bits = np.float32(rng.choice([0.0, -0.0, 1.0, -2.0, 0.3])).view(np.uint32)
    flags = ("x_imm", "y_imm", "x_abs", "x_neg", "y_abs", "y_neg")
    fields = {name: int(rng.random() < 0.3) for name in flags}
    return fields | {
        "vop": int(rng.choice(known)), "cols": cols - 1, "nt": nt - 1,
        "d_base": int(rng.integers(spread)), "d_c": nt,
        "x_base": third + int(rng.integers(spread)), "x_c": int(rng.integers(nt + 1)),
        "y_base": 2 * third + int(rng.integers(spread)), "y_c": int(rng.integers(nt + 1)),
        "imm": int(bits), "exponent": int(rng.integers(-8, 30)), "pred": int(rng.integers(3)),
    }  # fmt: skip


def _quant(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    p = config.array_size
    m, n = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    cols = int(rng.integers(m * p + 1))
    return {
        "cols": cols, "mt": m - 1, "nt": n - 1, "x_c": n,
        "x_base": int(rng.integers(SMALL.vector - cols * n + 1)),
        "c_base": int(rng.integers(SMALL.a // p - m * n + 1)) * p, "c_m": n * p, "c_n": p,
        "exponent": int(rng.integers(-4, 24)), "to_a": int(rng.integers(2)), "to_b": 1,
        "range": int(rng.choice([2, 7, NO_RANGE])), "n_tail": int(rng.integers(p + 1)),
    }  # fmt: skip


def _update(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    bias, copied = int(rng.integers(2)), rng.integers(2, size=4)
    # The copies of w and t keep apart.
    count = int(rng.integers(1, 7))
    words = (SMALL.bias if bias else SMALL.a) // 2
    low, high = (int(rng.integers(words - count + 1)) for _ in range(2))
    return {
        "count": count - 1, "p_base": int(rng.integers(SMALL.parameters - count + 1)),
        "adam": int(copied[0]), "average": int(copied[1]), "bias": bias,
        "b_base": low if bias else 0, "bt_base": words + high if bias else 0,
        "aw_base": low, "at_base": words + high,
        "copy_w": int(copied[2]), "copy_t": int(copied[3]),
        "e_g": int(rng.integers(-4, 40)), "e_w": int(rng.integers(0, 30)),
        "e_t": int(rng.integers(0, 30)), "set": int(rng.integers(4)),
        "range_w": int(rng.choice([0, NO_RANGE])), "range_t": int(rng.choice([1, NO_RANGE])),
    }  # fmt: skip


def _norm(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    count, gb = int(rng.integers(1, 9)), int(rng.integers(2))
    words = SMALL.bias if gb else SMALL.parameters
    return {
        "count": count - 1, "p_base": int(rng.integers(words - count + 1)), "gb": gb,
        "first": int(rng.integers(2)), "last": int(rng.integers(2)),
        "shift": int(rng.integers(40)), "d_base": int(rng.integers(SMALL.vector)),
    }  # fmt: skip


def _broadcast(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    n = int(rng.integers(1, 9))
    return {
        "p_base": int(rng.integers(SMALL.parameters)),
        "lane": int(rng.integers(config.array_size)), "target": int(rng.integers(2)),
        "d_base": int(rng.integers(SMALL.vector - n + 1)), "nt": n - 1,
    }  # fmt: skip


def _scalar(config: EngineConfig, rng: np.random.Generator) -> dict[str, int]:
    return {"x_base": int(rng.integers(SMALL.vector)), "index": int(rng.integers(64))}
