# SPDX-License-Identifier: MIT
"""Instructions that compute: integers, floats, comparisons, logic, bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx import floats
from ptx.kinds import DTYPES, Array, PtxError, cast, wide

Compute = Callable[..., Array]


def compute(opcode: tuple[str, ...]) -> tuple[Compute, list[str]]:
    """What an arithmetic instruction computes.

    Args:
        opcode: Its parts.

    Returns:
        A function of the operands' values, and the PTX type of each operand.

    Raises:
        PtxError: The instruction is not interpreted.
    """
    name, kind = opcode[0], opcode[-1]
    if name not in _BUILDERS:
        raise PtxError(f"instruction {'.'.join(opcode)} is not interpreted")
    function, kinds = _BUILDERS[name](opcode, kind)
    if "ftz" in opcode:
        function = _flushed(function)
    if "sat" in opcode and kind[0] == "f":
        inner = function
        function = lambda *a: np.clip(np.nan_to_num(inner(*a), nan=0.0), 0, 1).astype(DTYPES[kind])  # noqa: E731
    return function, kinds


def _flushed(function: Compute) -> Compute:
    def run(*values: Array) -> Array:
        result = function(*[floats.flush(v) if v.dtype.kind == "f" else v for v in values])
        return floats.flush(result) if result.dtype.kind == "f" else result

    return run


def _binary(integer: Compute, real: Compute) -> Callable[..., tuple[Compute, list[str]]]:
    return lambda _opcode, kind: (real if kind[0] == "f" else integer, [kind, kind])


def _multiply(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    if kind[0] == "f":
        return np.multiply, [kind, kind]
    return _product(opcode, kind), [kind, kind]


def _product(opcode: tuple[str, ...], kind: str) -> Compute:
    if "wide" in opcode:
        double = wide(kind)
        return lambda a, b: a.astype(double) * b.astype(double)
    if "hi" in opcode:
        if kind.endswith("64"):
            return _high64(DTYPES[kind])
        double, bits = wide(kind), int(kind[1:])
        return lambda a, b: (a.astype(double) * b.astype(double) >> bits).astype(DTYPES[kind])
    return np.multiply


def _high64(dtype: np.dtype[np.generic]) -> Compute:
    def high(a: Array, b: Array) -> Array:
        pairs = zip(*np.broadcast_arrays(a, b), strict=True)
        whole = [int(x) * int(y) >> 64 & (2**64 - 1) for x, y in pairs]
        return np.array(whole, np.uint64).view(dtype)

    return high


def _multiply_add(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    if kind == "f32":
        return floats.fma, [kind] * 3
    if kind == "f64":
        return lambda a, b, c: (np.longdouble(1) * a * b + c).astype(np.float64), [kind] * 3
    product = _product(opcode, kind)
    third = f"{kind[0]}{2 * int(kind[1:])}" if "wide" in opcode else kind
    return lambda a, b, c: product(a, b) + c, [kind, kind, third]


def _divide(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    if kind[0] == "f":
        return np.divide, [kind, kind]

    def quotient(a: Array, b: Array) -> Array:
        result = a // np.where(b == 0, 1, b).astype(a.dtype)
        return result + ((result < 0) & (result * b != a)).astype(a.dtype)

    return quotient, [kind, kind]


def _remainder(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    return lambda a, b: np.fmod(a, np.where(b == 0, 1, b).astype(a.dtype)), [kind, kind]


def _unary(function: Compute) -> Callable[..., tuple[Compute, list[str]]]:
    return lambda _opcode, kind: (function, [kind])


def _function(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    name = opcode[0]
    if "approx" in opcode:
        random = np.random.default_rng(len(opcode))
        return lambda x: floats.approximate(name, x, random), [kind]
    return (np.sqrt if name == "sqrt" else np.reciprocal), [kind]


_COMPARE: dict[str, Compute] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip


def compare(name: str, kind: str) -> Compute:
    """A comparison; on floats `ltu` and the like are true for NaN, the others false."""
    if name in ("num", "nan"):
        wanted = name == "nan"
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == wanted
    if kind[0] != "f":
        return _COMPARE[name]
    unordered = len(name) == 3
    base = _COMPARE[name[:2]]

    def run(a: Array, b: Array) -> Array:
        nan = np.isnan(a) | np.isnan(b)
        return base(a, b) | nan if unordered else base(a, b) & ~nan

    return run


def _logic(function: Compute) -> Callable[..., tuple[Compute, list[str]]]:
    return _binary(function, function)


def _not(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    return np.invert, [kind]


def _shift(left: bool) -> Callable[..., tuple[Compute, list[str]]]:
    def build(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
        bits, dtype = int(kind[1:]), DTYPES[kind]
        beyond = bits - 1 if kind[0] == "s" and not left else bits

        def run(a: Array, by: Array) -> Array:
            by = np.minimum(by, beyond)
            safe = np.minimum(by, bits - 1).astype(dtype)
            result = a << safe if left else a >> safe
            return np.where(by == bits, np.zeros(1, dtype), result)

        return run, [kind, "u32"]

    return build


def _funnel(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    left, wrap = opcode[1] == "l", "wrap" in opcode
    if kind != "b32":
        raise PtxError(f"{'.'.join(opcode)} is not interpreted")

    def run(low: Array, high: Array, by: Array) -> Array:
        by = (by & 31 if wrap else np.minimum(by, 32)).astype(np.uint64)
        both = high.astype(np.uint64) << np.uint64(32) | low
        return ((both << by) >> np.uint64(32) if left else both >> by).astype(np.uint32)

    return run, ["u32"] * 3


def _lop3(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    if len(opcode) != 2:
        raise PtxError(f"{'.'.join(opcode)} is not interpreted")

    def run(a: Array, b: Array, c: Array, table: Array) -> Array:
        result = np.zeros(1, np.uint32)
        for row in range(8):
            if int(table[0]) >> row & 1:
                terms = [v if row >> bit & 1 else ~v for v, bit in ((a, 2), (b, 1), (c, 0))]
                result = result | (terms[0] & terms[1] & terms[2])
        return result

    return run, ["u32"] * 4


def _ones(count: Array) -> Array:
    """Words of 64 bits of which the lowest `count` are set."""
    few = (np.uint64(1) << np.minimum(count, 63).astype(np.uint64)) - np.uint64(1)
    return np.where(count >= 64, np.uint64(2**64 - 1), few)


def _extract(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    if kind == "s64":
        raise PtxError("bfe.s64 is not interpreted")
    dtype = DTYPES[kind]

    def run(a: Array, start: Array, count: Array) -> Array:
        if kind == "s32":
            left = np.clip(32 - (start.astype(np.int64) + count), 0, 31)
            top = (a.astype(np.int64) << left).astype(np.uint32).view(np.int32)
            return np.where(count == 0, 0, top >> (32 - count.astype(np.int32))).astype(dtype)
        shifted = a.astype(np.uint64) >> np.minimum(start, 63).astype(np.uint64)
        return (shifted & _ones(count)).astype(dtype)

    return run, [kind, "u32", "u32"]


def _insert(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    unsigned = f"u{kind[1:]}"

    def run(a: Array, b: Array, start: Array, count: Array) -> Array:
        by = np.minimum(start, 63).astype(np.uint64)
        mask = _ones(count) << by
        result = (b.astype(np.uint64) & ~mask) | (a.astype(np.uint64) << by & mask)
        return result.astype(DTYPES[unsigned])

    return run, [unsigned, unsigned, "u32", "u32"]


def _permute(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    if len(opcode) != 2:
        raise PtxError(f"{'.'.join(opcode)} is not interpreted")

    def run(a: Array, b: Array, pick: Array) -> Array:
        both = b.astype(np.uint64) << np.uint64(32) | a
        result = np.zeros(1, np.uint64)
        for place in range(4):
            choice = pick.astype(np.uint64) >> np.uint64(4 * place)
            byte = both >> ((choice & np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)
            sign = np.where(byte >> np.uint64(7), np.uint64(0xFF), np.uint64(0))
            byte = np.where(choice & np.uint64(8), sign, byte)
            result = result | byte << np.uint64(8 * place)
        return result.astype(np.uint32)

    return run, ["u32"] * 3


def _count_bits(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    def leading(x: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        return np.array([bits - int(v).bit_length() for v in x], np.uint32)

    def ones(x: Array) -> Array:
        return np.array([bin(int(v)).count("1") for v in x], np.uint32)

    def reverse(x: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        return np.array([int(f"{int(v):0{bits}b}"[::-1], 2) for v in x], x.dtype)

    def highest(x: Array) -> Array:
        found = np.array([int(v).bit_length() - 1 for v in x], np.int64)
        place = 8 * x.dtype.itemsize - 1 - found if "shiftamt" in opcode else found
        return np.where(found < 0, -1, place).astype(np.int32).view(np.uint32)

    function = {"clz": leading, "popc": ones, "brev": reverse, "bfind": highest}[opcode[0]]
    return function, [kind]


def _select(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    return lambda a, b, p: np.where(p, a, b), [kind, kind, "pred"]


def _copysign(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    return lambda a, b: np.copysign(b, a), [kind, kind]


def _convert(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    to, rounding = opcode[-2], next((m for m in opcode if m in ("rni", "rzi", "rmi", "rpi")), None)
    dtype = DTYPES[to]
    if kind[0] == "f" and to[0] != "f":
        return lambda x: floats.to_integer(x, dtype, rounding or "rzi"), [kind]
    if kind[0] == "f" and rounding:
        return lambda x: floats.rounded(x, rounding).astype(dtype), [kind]
    return lambda x: x.astype(dtype), [kind]


def _move(opcode: tuple[str, ...], kind: str) -> tuple[Compute, list[str]]:
    return lambda x: x.copy(), [kind]


def _negate(x: Array) -> Array:
    if x.dtype.kind == "f":
        return np.negative(x)
    return cast(np.zeros(1, x.dtype) - x, x.dtype)


_BUILDERS: dict[str, Callable[..., tuple[Compute, list[str]]]] = {
    "add": _binary(np.add, np.add),
    "sub": _binary(np.subtract, np.subtract),
    "mul": _multiply,
    "mad": _multiply_add,
    "fma": _multiply_add,
    "div": _divide,
    "rem": _remainder,
    "max": _binary(np.maximum, floats.largest),
    "min": _binary(np.minimum, floats.smallest),
    "neg": _unary(_negate),
    "abs": _unary(np.abs),
    **dict.fromkeys(floats.APPROXIMATE, _function),
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _not,
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "shf": _funnel,
    "lop3": _lop3,
    "bfe": _extract,
    "bfi": _insert,
    "prmt": _permute,
    "clz": _count_bits,
    "popc": _count_bits,
    "brev": _count_bits,
    "bfind": _count_bits,
    "selp": _select,
    "copysign": _copysign,
    "cvt": _convert,
    "mov": _move,
}
