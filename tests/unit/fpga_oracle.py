# SPDX-License-Identifier: MIT
"""The engine once more, one scalar at a time: what the model is tested against."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from copal.fpga.config import EngineConfig
from copal.fpga.isa import NO_RANGE, Instruction, Op, Vop
from copal.fpga.model import Memories

F = np.float32
NAN = np.uint32(0x7FC00000).view(F)
TINY = 2.0**-126


def saturate(x: int, bits: int) -> int:
    """The nearest signed number of `bits` bits."""
    top = 1 << bits - 1
    return max(-top, min(top - 1, x))


def flush(x: float) -> np.float32:
    """`x` as the engine keeps it: no subnormals, one NaN."""
    with np.errstate(over="ignore", under="ignore"):
        y = F(x)
    if math.isnan(y):
        return NAN
    return F(math.copysign(0.0, y)) if abs(y) < TINY else y


def rounded(x: float, exponent: int, bits: int) -> int:
    """Float to integer, ties to even."""
    x = float(flush(x))
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return saturate((1 << 200) * (1 if x > 0 else -1), bits)
    return saturate(round(math.ldexp(x, exponent)), bits)


def arithmetic(f: Callable[[float, float], float]) -> Callable[[F, F], F]:
    """A float32 operation from one on Python's floats, which have enough bits to round twice."""

    def apply(x: np.float32, y: np.float32) -> np.float32:
        try:
            return flush(f(float(flush(x)), float(flush(y))))
        except ZeroDivisionError:
            with np.errstate(all="ignore"):
                return flush(F(flush(x)) / F(flush(y)))

    return apply


add = arithmetic(lambda x, y: x + y)
mul = arithmetic(lambda x, y: x * y)
div = arithmetic(lambda x, y: x / y)
root = arithmetic(lambda x, _: math.nan if x < 0 else math.sqrt(x))


def either_nan(x: np.float32, y: np.float32) -> bool:
    """Whether a comparison is unordered."""
    return math.isnan(x) or math.isnan(y)


class Oracle:
    """Executes one instruction on a copy of the memories.

    Attributes:
        mem: Memories after the instruction.
    """

    def __init__(self, config: EngineConfig, memories: Memories) -> None:
        self.config, self.mem = config, memories

    def run(self, f: Instruction, accumulate: bool = False) -> None:
        """Executes `f`, which is well formed."""
        method = getattr(self, f.op.name.lower())
        if f.op == Op.PRODUCT:
            method(f, accumulate)
        else:
            method(f)

    def count(self, entry: int, value: int, bits: int) -> None:
        """Adds a value before saturation to RANGE."""
        if entry == NO_RANGE:
            return
        old = int(self.mem.range[entry, 0])
        number = (old & 0xFFFFFFFF) + (saturate(value, bits) != value)
        magnitude = old >> 32 | min(abs(value), 0xFFFFFFFF)
        self.mem.range[entry, 0] = number | magnitude << 32

    def product(self, f: Instruction, accumulate: bool) -> None:
        """A lane at a time."""
        p, mem = self.config.array_size, self.mem
        a, b = mem.a.copy(), mem.b.copy()
        for m in range(f["mt"] + 1):
            for n in range(f["nt"] + 1):
                for i in range(p):
                    lane_a = [self.element(a, f, "a", m, k, i) for k in range(f["kn"] + 1)]
                    for j in range(p):
                        total = int(mem.bias[f["bias_base"] + m, i]) if f["use_bias"] else 0
                        for k, x in enumerate(lane_a):
                            total += x * self.element(b, f, "b", n, k, j)
                        self.drain(f, total, (m, n, i, j), accumulate)
                    if f["bgrad"] and n == 0:
                        old = int(mem.gb[f["bias_base"] + m, i]) if accumulate else 0
                        mem.gb[f["bias_base"] + m, i] = saturate(sum(lane_a) + old, 32)

    def element(
        self, memory: np.ndarray, f: Instruction, x: str, tile: int, k: int, lane: int
    ) -> int:
        """Operand of `lane` in step `k`."""
        p = self.config.array_size
        stride = f["a_m"] if x == "a" else f["b_n"]
        number = f[f"{x}_base"] + tile * stride + k // p * f[f"{x}_k"]
        row, column = (lane, k % p) if f[f"{x}_col"] else (k % p, lane)
        return int(memory[number * p + row, column])

    def operand_bits(self, f: Instruction) -> int:
        """The fewest bits of the memories that a result goes to."""
        bits = [32]
        if f["to_a"]:
            bits.append(self.config.a_bits)
        if f["to_b"]:
            bits.append(self.config.b_bits)
        return min(bits)

    def drain(
        self, f: Instruction, total: int, at: tuple[int, int, int, int], accumulate: bool
    ) -> None:
        """A sum's way to the memories."""
        m, n, i, j = at
        mem, w = self.mem, self.operand_bits(f)
        offset = m * f["c_m"] + n * f["c_n"]
        address = f["c_base"] + offset + i * f["c_i"]
        half = 1 << self.config.sum_bits - 1
        total = (total + half) % (2 * half) - half
        value = (total + (1 << f["shift"] >> 1)) >> f["shift"]
        if f["relu"]:
            mem.mask[f["mask_base"] + offset + i, j] = total > 0
            value = max(value, 0)
        if f["use_mask"] and not mem.mask[f["mask_base"] + offset + i, j]:
            value = 0
        if f["to_a"]:
            mem.a[address, j] = saturate(value, w)
        if f["to_b"]:
            mem.b[address, j] = saturate(value, w)
        if f["to_v"] and not (m == f["mt"] and f["m_tail"] and i >= f["m_tail"]):
            mem.v.view(np.int32)[address, j] = saturate(value, 32)
        if f["to_g"]:
            old = int(mem.g[address, j]) if accumulate else 0
            mem.g[address, j] = saturate(saturate(value, 32) + old, 32)
        if not (n == f["nt"] and f["n_tail"] and j >= f["n_tail"]):
            self.count(f["range"], value, w if f["to_a"] or f["to_b"] else 32)

    def vector(self, f: Instruction) -> None:
        """A lane at a time, operands before results."""
        v = self.mem.v.copy()
        for c in range(f["cols"] + 1):
            for n in range(f["nt"] + 1):
                for lane in range(self.config.array_size):
                    imm = np.uint32(f["imm"]).view(F)
                    x = imm if f["x_imm"] else v[f["x_base"] + c * f["x_c"] + n, lane]
                    y = v[f["y_base"] + c * f["y_c"] + n, lane]
                    if f["y_imm"] and f["pred"] != 2:
                        y = imm
                    x, y = signed(x, f["x_abs"], f["x_neg"]), signed(y, f["y_abs"], f["y_neg"])
                    if f["pred"] == 1 and flush(y) == 0:
                        continue
                    if f["pred"] == 2 and flush(y) != flush(imm):
                        continue
                    result = operate(Vop(f["vop"]), x, y, imm, f["exponent"])
                    self.mem.v.view(np.uint32)[f["d_base"] + c * f["d_c"] + n, lane] = result.view(
                        np.uint32
                    )

    def quant(self, f: Instruction) -> None:
        """A lane at a time."""
        p, w = self.config.array_size, self.operand_bits(f)
        for m in range(f["mt"] + 1):
            for n in range(f["nt"] + 1):
                for i in range(p):
                    for j in range(p):
                        feature, value = m * p + i, 0
                        if feature < f["cols"]:
                            x = self.mem.v[f["x_base"] + feature * f["x_c"] + n, j]
                            value = rounded(x, f["exponent"], 32)
                        address = f["c_base"] + m * f["c_m"] + n * f["c_n"] + i
                        if f["to_a"]:
                            self.mem.a[address, j] = saturate(value, w)
                        if f["to_b"]:
                            self.mem.b[address, j] = saturate(value, w)
                        if not (n == f["nt"] and f["n_tail"] and j >= f["n_tail"]):
                            self.count(f["range"], value, w)

    def update(self, f: Instruction) -> None:
        """A parameter at a time."""
        mem, bits = self.mem, self.config.a_bits
        k = [F(x) for x in mem.k[f["set"] * 16 : f["set"] * 16 + 9, 0]]
        for word in range(f["count"] + 1):
            for j in range(self.config.array_size):
                at = (f["p_base"] + word, j)
                g = int(mem.gb[f["b_base"] + word, j] if f["bias"] else mem.g[at])
                if f["adam"]:
                    gs = mul(flush(math.ldexp(float(F(g)), -f["e_g"])), k[8])
                    mem.m[at] = add(mul(k[0], mem.m[at]), mul(k[1], gs))
                    mem.s[at] = add(mul(k[2], mem.s[at]), mul(k[3], mul(gs, gs)))
                    step = div(mul(k[4], mem.m[at]), add(root(mem.s[at], F(0)), k[5]))
                    mem.w[at] = add(mem.w[at], -step)
                if f["average"]:
                    mem.t[at] = add(mul(k[7], mem.t[at]), mul(k[6], mem.w[at]))
                for copied, x, base, e, entry in (
                    ("copy_w", mem.w[at], "b_base" if f["bias"] else "aw_base", "e_w", "range_w"),
                    ("copy_t", mem.t[at], "bt_base" if f["bias"] else "at_base", "e_t", "range_t"),
                ):
                    if not f[copied]:
                        continue
                    whole = rounded(x, f[e], self.config.sum_bits)
                    if f["bias"]:
                        mem.bias[f[base] + word, j] = whole
                    else:
                        mem.a[f[base] + word, j] = saturate(whole, bits)
                        self.count(f[entry], whole, bits)

    def norm(self, f: Instruction) -> None:
        """A gradient's element at a time."""
        total = 0 if f["first"] else int(self.mem.norm[0])
        for word in range(f["count"] + 1):
            for g in (self.mem.gb if f["gb"] else self.mem.g)[f["p_base"] + word]:
                total += saturate((int(g) + (1 << 14)) >> 15, 17) ** 2
        self.mem.norm[0] = total = total % (1 << 56)
        if f["last"]:
            self.mem.v.view(np.int32)[f["d_base"]] = min(total >> f["shift"], 2**31 - 1)

    def broadcast(self, f: Instruction) -> None:
        """A word at a time."""
        value = (self.mem.t if f["target"] else self.mem.w)[f["p_base"], f["lane"]]
        for n in range(f["nt"] + 1):
            self.mem.v[f["d_base"] + n] = value

    def scalar(self, f: Instruction) -> None:
        """One number."""
        self.mem.k[f["index"], 0] = self.mem.v[f["x_base"], 0]


def signed(x: np.float32, absolute: int, negative: int) -> np.float32:
    """An operand's flags."""
    bits = int(np.float32(x).view(np.uint32))
    bits = bits & 0x7FFFFFFF if absolute else bits
    return np.uint32(bits ^ 0x80000000 if negative else bits).view(F)


def operate(vop: Vop, x: np.float32, y: np.float32, imm: np.float32, exponent: int) -> np.float32:
    """One lane of the vector unit, without exp, log and tanh."""
    fx, fy = flush(x), flush(y)
    match vop:
        case Vop.MOV:
            return x
        case Vop.ITOF:
            return flush(math.ldexp(float(F(int(x.view(np.int32)))), -exponent))
        case Vop.ADD | Vop.MUL | Vop.DIV:
            return {Vop.ADD: add, Vop.MUL: mul, Vop.DIV: div}[vop](x, y)
        case Vop.MIN | Vop.MAX:
            if either_nan(fx, fy):
                return NAN
            smaller = fy < fx if vop == Vop.MIN else fy > fx
            return fy if smaller else fx
        case Vop.LT | Vop.LE | Vop.EQ:
            return F({Vop.LT: fx < fy, Vop.LE: fx <= fy, Vop.EQ: fx == fy}[vop])
        case Vop.SIGN:
            return NAN if math.isnan(fx) else F(0 if fx == 0 else math.copysign(1, fx))
        case Vop.RELUG:
            return fx if fy > 0 else F(0)
        case Vop.SELZ:
            return fx if fy == flush(imm) else F(0)
        case Vop.SQRT:
            return root(x, F(0)) if fx != 0 else fx
    raise AssertionError(vop)
