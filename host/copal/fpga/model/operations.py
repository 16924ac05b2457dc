# SPDX-License-Identifier: MIT
"""What each instruction does to the memories. docs/hardware.md defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from copal.fpga import floats
from copal.fpga.config import EngineConfig
from copal.fpga.isa import NO_RANGE, SET_SIZE, ErrorCode, Instruction, Op, Vop
from copal.fpga.model.memories import Float, Int, Memories

Wide = NDArray[np.int64]
Index = NDArray[np.intp]
Values = TypeVar("Values", Float, Wide)

SUM_BITS = 56
"""Bits of NORM's sum."""


class Stop(Exception):  # noqa: N818 - an end of the RUN, not a failure of the model
    """An instruction met an error while it ran.

    Attributes:
        code: What STATUS reports.
    """

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def saturate(x: Wide, bits: int) -> Wide:
    """`x` in the range of signed numbers of `bits` bits."""
    top = 1 << bits - 1
    return np.clip(x, -top, top - 1)


def wrap(x: Wide, bits: int) -> Wide:
    """The low `bits` bits of `x` as signed numbers, as an adder of that width leaves them."""
    spare = 64 - bits
    return x << spare >> spare


def note_range(memories: Memories, entry: int, before: Wide, bits: int) -> None:
    """Adds values `before` saturation to `bits` bits to an entry of RANGE."""
    if entry == NO_RANGE or not before.size:
        return
    count = int(np.count_nonzero(saturate(before, bits) != before))
    magnitude = int(np.bitwise_or.reduce(np.minimum(np.abs(before), 0xFFFFFFFF), axis=None))
    old = int(memories.range[entry, 0])
    count = min((old & 0xFFFFFFFF) + count, 0xFFFFFFFF)
    memories.range[entry, 0] = count | (old >> 32 | magnitude) << 32


class Units:
    """The units of the engine on its memories: a method an instruction.

    Attributes:
        accumulate: Whether the RUN adds to what G and GB hold.
    """

    def __init__(self, memories: Memories, config: EngineConfig) -> None:
        self.memories, self.config = memories, config
        self.accumulate = False
        self.execute: Mapping[Op, Callable[[Instruction], None]] = {
            Op.END: self.end,
            Op.PRODUCT: self.product,
            Op.VECTOR: self.vector,
            Op.QUANT: self.quant,
            Op.UPDATE: self.update,
            Op.NORM: self.norm,
            Op.BROADCAST: self.broadcast,
            Op.SCALAR: self.scalar,
        }

    def product(self, f: Instruction) -> None:
        """Sums of products of tiles, then bias, shift, mask, ranges, and their ways out."""
        mem = self.memories
        p = self.config.array_size
        mt, nt, kn = f["mt"] + 1, f["nt"] + 1, f["kn"] + 1
        a = _operand(
            mem.a, p, (f["a_base"], f["a_m"], mt), f["a_k"], kn, by_column=bool(f["a_col"])
        )
        b = _operand(
            mem.b, p, (f["b_base"], f["b_n"], nt), f["b_k"], kn, by_column=bool(f["b_col"])
        )
        # Integers below 2^53 in float64: exact in any order.
        sums = (a @ b.T).astype(np.int64).reshape(mt, p, nt, p).transpose(0, 2, 1, 3)
        if f["use_bias"]:
            sums = sums + mem.bias[f["bias_base"] : f["bias_base"] + mt][:, None, :, None]
        sums = wrap(sums, self.config.sum_bits)
        tiles = f["c_base"] + _outer(mt, f["c_m"], nt, f["c_n"])
        rows = tiles[..., None] + np.arange(p) * f["c_i"]
        mask_rows = (tiles - f["c_base"] + f["mask_base"])[..., None] + np.arange(p)
        shift = f["shift"]
        values = (sums + (1 << shift >> 1)) >> shift
        if f["relu"]:
            mem.mask[mask_rows] = sums > 0
            values = np.maximum(values, 0)
        if f["use_mask"]:
            values = np.where(mem.mask[mask_rows], values, 0)
        bits = self._operand_bits(f)
        narrow = saturate(values, bits)
        if f["to_a"]:
            mem.a[rows] = narrow
        if f["to_b"]:
            mem.b[rows] = narrow
        if f["to_v"]:
            kept = np.ones((mt, nt, p), bool)
            kept[-1, :, f["m_tail"] or p :] = False
            mem.v.view(np.int32)[rows[kept]] = saturate(values, 32)[kept]
        if f["to_g"]:
            old = mem.g[rows] if self.accumulate else 0
            mem.g[rows] = saturate(saturate(values, 32) + old, 32)
        for part in _counted(values, f["n_tail"]):
            note_range(mem, f["range"], part, bits)
        if f["bgrad"]:
            at = slice(f["bias_base"], f["bias_base"] + mt)
            totals = saturate(a.sum(axis=1).astype(np.int64).reshape(mt, p), 32)
            mem.gb[at] = saturate(totals + (mem.gb[at] if self.accumulate else 0), 32)

    def vector(self, f: Instruction) -> None:
        """One operation of the vector lanes on columns of V."""
        mem = self.memories
        cols, nt, vop, pred = f["cols"] + 1, f["nt"] + 1, Vop(f["vop"]), f["pred"]
        imm = np.array(f["imm"], np.uint32).view(np.float32)
        at = {name: f[f"{name}_base"] + _outer(cols, f[f"{name}_c"], nt, 1) for name in "dxy"}
        y_from_v = pred == 2 or not f["y_imm"]
        x = imm if f["x_imm"] else mem.v[at["x"]]
        y = mem.v[at["y"]] if y_from_v else imm
        x = _signed(x, f["x_abs"], f["x_neg"])
        y = _signed(y, f["y_abs"], f["y_neg"])
        shape = (cols, nt, self.config.array_size)
        result = np.broadcast_to(_apply(vop, x, y, imm, f["exponent"]), shape)
        write = np.broadcast_to(_predicate(pred, y, imm), shape)
        for c in range(cols):
            words = slice(int(at["d"][c, 0]), int(at["d"][c, 0]) + nt)
            mem.v.view(np.uint32)[words][write[c]] = result[c][write[c]].view(np.uint32)

    def quant(self, f: Instruction) -> None:
        """Floats of V as integers in A and B."""
        mem = self.memories
        p, cols = self.config.array_size, f["cols"]
        mt, nt = f["mt"] + 1, f["nt"] + 1
        feature = np.arange(mt)[:, None, None] * p + np.arange(p)  # [m, 1, i]
        valid = feature < cols
        words = f["x_base"] + feature * f["x_c"] + np.arange(nt)[None, :, None]
        x = mem.v[np.where(valid, words, 0)]
        x = np.where(valid[..., None], x, np.float32(0))  # [m, n, i, lane]
        if any(not np.isfinite(part).all() for part in _counted(x, f["n_tail"])):
            raise Stop(ErrorCode.NOT_FINITE)
        values = floats.ftoi(x, f["exponent"], 32).astype(np.int64)
        rows = (f["c_base"] + _outer(mt, f["c_m"], nt, f["c_n"]))[..., None] + np.arange(p)
        bits = self._operand_bits(f)
        narrow = saturate(values, bits)
        if f["to_a"]:
            mem.a[rows] = narrow
        if f["to_b"]:
            mem.b[rows] = narrow
        for part in _counted(values, f["n_tail"]):
            note_range(mem, f["range"], part, bits)

    def _operand_bits(self, f: Instruction) -> int:
        """Bits of a result: those of the narrower memory that it goes to; 32: to neither."""
        if f["to_a"]:
            return self.config.a_bits
        return self.config.b_bits if f["to_b"] else 32

    def update(self, f: Instruction) -> None:
        """Adam, target averaging, and the integer copies of the new parameters."""
        mem = self.memories
        count = f["count"] + 1
        at = slice(f["p_base"], f["p_base"] + count)
        source = slice(f["b_base"], f["b_base"] + count)
        gradient = mem.gb[source] if f["bias"] else mem.g[at]
        scalars = mem.k[f["set"] * SET_SIZE : (f["set"] + 1) * SET_SIZE, 0]
        w, t, m, s = floats.adam(
            mem.w[at], mem.t[at], mem.m[at], mem.s[at], gradient, scalars,
            e_g=f["e_g"], adam=bool(f["adam"]), average=bool(f["average"]),
        )  # fmt: skip
        mem.w[at], mem.t[at], mem.m[at], mem.s[at] = w, t, m, s
        bits = self.config.sum_bits if f["bias"] else self.config.a_bits
        target: Wide | Int = mem.bias if f["bias"] else mem.a
        bases = (f["b_base"], f["bt_base"]) if f["bias"] else (f["aw_base"], f["at_base"])
        for copied, value, base, exponent, entry in (
            (f["copy_w"], w, bases[0], f["e_w"], f["range_w"]),
            (f["copy_t"], t, bases[1], f["e_t"], f["range_t"]),
        ):
            if copied:
                whole = floats.ftoi(value, exponent, self.config.sum_bits).astype(np.int64)
                target[base : base + count] = saturate(whole, bits)
                if not f["bias"]:
                    note_range(mem, entry, whole, bits)

    def norm(self, f: Instruction) -> None:
        """Sum of squares of a gradient."""
        mem = self.memories
        memory = mem.gb if f["gb"] else mem.g
        g = memory[f["p_base"] : f["p_base"] + f["count"] + 1].astype(np.int64)
        q = saturate((g + (1 << 14)) >> 15, 17)
        total = int((q * q).sum()) + (0 if f["first"] else int(mem.norm[0]))
        total %= 1 << SUM_BITS
        mem.norm[0] = total
        if f["last"]:
            mem.v.view(np.int32)[f["d_base"]] = min(total >> f["shift"], (1 << 31) - 1)

    def broadcast(self, f: Instruction) -> None:
        """A parameter to all rows."""
        mem = self.memories
        source = (mem.t if f["target"] else mem.w).view(np.uint32)
        words = slice(f["d_base"], f["d_base"] + f["nt"] + 1)
        mem.v.view(np.uint32)[words] = source[f["p_base"], f["lane"]]

    def scalar(self, f: Instruction) -> None:
        """A word of V to a register of K."""
        mem = self.memories
        mem.k.view(np.uint32)[f["index"]] = mem.v.view(np.uint32)[f["x_base"], 0]

    def end(self, f: Instruction) -> None:
        """Nothing."""


def _outer(count: int, stride: int, inner: int, inner_stride: int) -> Index:
    return np.arange(count)[:, None] * stride + np.arange(inner) * inner_stride


def _operand(
    memory: Int,
    p: int,
    tiles: tuple[int, int, int],
    k_stride: int,
    kn: int,
    *,
    by_column: bool,
) -> NDArray[np.float64]:
    """The operand vectors of all steps, float64 [tiles * P, kn]."""
    base, stride, count = tiles
    numbers = base + _outer(count, stride, (kn + p - 1) // p, k_stride)
    found: Int = memory[numbers[..., None] * p + np.arange(p)]  # [tile, k, i, j]
    order = (0, 2, 1, 3) if by_column else (0, 3, 1, 2)
    return found.transpose(order).reshape(count * p, -1)[:, :kn].astype(np.float64)


def _counted(values: Values, n_tail: int) -> tuple[Values, Values]:
    """Lanes of [m, n, i, lane] that hold rows of the batch: whole tiles, and the last one's."""
    return values[:, :-1], values[:, -1, :, : n_tail or values.shape[-1]]


def _signed(x: Float, absolute: int, negative: int) -> Float:
    bits = x.view(np.uint32)
    if absolute:
        bits = bits & np.uint32(0x7FFFFFFF)
    if negative:
        bits = bits ^ np.uint32(0x80000000)
    return bits.view(np.float32)


def _predicate(pred: int, y: Float, imm: Float) -> NDArray[np.bool_]:
    if pred == 1:
        return ~floats.equal(y, np.zeros((), np.float32)).astype(bool)
    if pred == 2:
        return floats.equal(y, imm).astype(bool)
    return np.array(True)


def _apply(vop: Vop, x: Float, y: Float, imm: Float, exponent: int) -> Float:
    match vop:
        case Vop.MOV:
            return x
        case Vop.SELZ:
            return floats.selz(x, y, imm)
        case Vop.ITOF:
            return floats.itof(x.view(np.int32), exponent)
    if vop in _UNARY:
        return _UNARY[vop](x)
    return _BINARY[vop](x, y)


_UNARY: Mapping[Vop, Callable[[Float], Float]] = {
    Vop.SIGN: floats.sign,
    Vop.SQRT: floats.sqrt,
    Vop.EXP: floats.exp,
    Vop.LOG: floats.log,
    Vop.TANH: floats.tanh,
}
_BINARY: Mapping[Vop, Callable[[Float, Float], Float]] = {
    Vop.ADD: floats.add,
    Vop.MUL: floats.mul,
    Vop.DIV: floats.div,
    Vop.MIN: floats.minimum,
    Vop.MAX: floats.maximum,
    Vop.LT: floats.less,
    Vop.LE: floats.less_equal,
    Vop.EQ: floats.equal,
    Vop.RELUG: floats.relug,
}
