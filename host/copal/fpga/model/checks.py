# SPDX-License-Identifier: MIT
"""What the engine refuses in an instruction: fields (error 2) and addresses (error 3)."""

from __future__ import annotations

from collections.abc import Iterator

from copal.fpga.config import Depths, EngineConfig
from copal.fpga.isa import NO_RANGE, ErrorCode, Instruction, Op, Vop

FUNCTIONS = (Vop.EXP, Vop.LOG, Vop.TANH)
READS_Y = frozenset(
    {
        Vop.ADD,
        Vop.MUL,
        Vop.DIV,
        Vop.MIN,
        Vop.MAX,
        Vop.LT,
        Vop.LE,
        Vop.EQ,
        Vop.RELUG,
        Vop.SELZ,
    }
)
"""Operations with a second operand."""


def check(f: Instruction, config: EngineConfig) -> ErrorCode:
    """The error that stops `f` before it writes, or NONE."""
    if not _fields_are_good(f, config):
        return ErrorCode.FIELD
    inside = all(last < words for last, words in _last_addresses(f, config))
    return ErrorCode.NONE if inside else ErrorCode.ADDRESS


def _fields_are_good(f: Instruction, config: EngineConfig) -> bool:
    p = config.array_size
    if f["m_tail"] > p or f["n_tail"] > p:
        return False
    if f.op == Op.VECTOR:
        known = f["vop"] in Vop.__members__.values()
        return known and f["pred"] <= 2 and (config.functions or f["vop"] not in FUNCTIONS)
    return f.op != Op.BROADCAST or f["lane"] < p


def _last_addresses(f: Instruction, config: EngineConfig) -> Iterator[tuple[int, int]]:
    """Highest address of every access of `f`, and the words of the memory it goes to."""
    depths = config.depths
    match f.op:
        case Op.PRODUCT:
            yield from _product(f, config.array_size, depths)
        case Op.VECTOR:
            c, n = f["cols"], f["nt"]
            yield f["d_base"] + c * f["d_c"] + n, depths.vector
            if not f["x_imm"]:
                yield f["x_base"] + c * f["x_c"] + n, depths.vector
            if f["pred"] == 2 or (not f["y_imm"] and (f["pred"] or f["vop"] in READS_Y)):
                yield f["y_base"] + c * f["y_c"] + n, depths.vector
        case Op.QUANT:
            if f["cols"]:
                last = min(f["cols"], (f["mt"] + 1) * config.array_size) - 1
                yield f["x_base"] + last * f["x_c"] + f["nt"], depths.vector
            c = f["c_base"] + f["mt"] * f["c_m"] + f["nt"] * f["c_n"] + config.array_size - 1
            yield c if f["to_a"] else 0, depths.a
            yield c if f["to_b"] else 0, depths.b
            yield from _range(f["range"], depths)
        case Op.UPDATE:
            yield from _update(f, depths)
        case Op.NORM:
            yield f["p_base"] + f["count"], depths.bias if f["gb"] else depths.parameters
            yield f["d_base"] if f["last"] else 0, depths.vector
        case Op.BROADCAST:
            yield f["p_base"], depths.parameters
            yield f["d_base"] + f["nt"], depths.vector
        case Op.SCALAR:
            yield f["x_base"], depths.vector


def _product(f: Instruction, p: int, depths: Depths) -> Iterator[tuple[int, int]]:
    m, n, k = f["mt"], f["nt"], f["kn"] // p
    yield (f["a_base"] + m * f["a_m"] + k * f["a_k"]) * p + p - 1, depths.a
    yield (f["b_base"] + n * f["b_n"] + k * f["b_k"]) * p + p - 1, depths.b
    tiles = m * f["c_m"] + n * f["c_n"]
    c = f["c_base"] + tiles + (p - 1) * f["c_i"]
    yield c if f["to_a"] else 0, depths.a
    yield c if f["to_b"] else 0, depths.b
    yield c if f["to_g"] else 0, depths.parameters
    if f["to_v"]:
        # The last address that is written lies in the last tile or, if that has fewer rows, maybe
        # in the one before.
        rows = f["m_tail"] or p
        short = f["c_base"] + tiles + (rows - 1) * f["c_i"]
        yield max(short, c - f["c_m"] if m else 0), depths.vector
    if f["relu"] or f["use_mask"]:
        yield f["mask_base"] + tiles + p - 1, depths.mask
    if f["use_bias"] or f["bgrad"]:
        yield f["bias_base"] + m, depths.bias
    yield from _range(f["range"], depths)


def _update(f: Instruction, depths: Depths) -> Iterator[tuple[int, int]]:
    last = f["count"]
    yield f["p_base"] + last, depths.parameters
    w, t = ("b_base", "bt_base") if f["bias"] else ("aw_base", "at_base")
    words = depths.bias if f["bias"] else depths.a
    if f["bias"]:
        yield f["b_base"] + last, depths.bias
    yield f[w] + last if f["copy_w"] else 0, words
    yield f[t] + last if f["copy_t"] else 0, words
    yield from _range(f["range_w"], depths)
    yield from _range(f["range_t"], depths)


def _range(entry: int, depths: Depths) -> Iterator[tuple[int, int]]:
    if entry != NO_RANGE:
        yield entry, depths.range
