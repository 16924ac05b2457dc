# SPDX-License-Identifier: MIT
"""exp, log and tanh of the engine's vector lanes: integer arithmetic that hardware repeats exactly.

Each is a number of 24 bits times a smooth function that a table of 256 parabolas gives, 28 bits:

    exp(x)  = 2^n * 2^f                            n, f: integer part and fraction of x * log2(e)
    tanh(x) = x * (tanh(x) / x)                    below x * log2(e) = 4; above tanh(x) itself
    log(x)  = E * ln(2) + d * (log(1 + d) / d)     x = 2^E * (1 + d), d in [-0.25, 0.5)

The parabola of a segment is c0 + c1 * r + c2 * r^2 with r in [-1, 1) from its middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_Doubles = NDArray[np.float64]
_Ints = NDArray[np.int64]

FRACTION_BITS = 26
"""Fraction bits of the parabolas."""
OFFSET_BITS = 18
"""Bits of the offset in a segment, signed."""
LOG2_E = 12392656037
"""log2(e) with 33 fraction bits."""
LN_2 = 11908177887
"""ln(2) with 34 fraction bits."""
LN_2_SHIFT = 6
"""Bits of |E| * ln(2) that are dropped: 28 fraction bits remain, as in the sum."""

_EXP, _TANH, _TANH_2, _TANH_4, _LOG, _LOG_LOW, _TANH_8 = 0, 64, 128, 160, 192, 224, 240


@cache
def tables() -> dict[str, list[int]]:
    """The 256 parabolas as integers with 26 fraction bits, correctly rounded on every machine.

    Returns:
        `c0`, unsigned, `c1` and `c2`, signed.
    """
    table: dict[str, list[int]] = {"c0": [], "c1": [], "c2": []}
    with localcontext(Context(prec=40)):
        for function, start, width in _segments():
            for name, value in zip(table, _parabola(function, start, width), strict=True):
                table[name].append(value)
    return table


def table_source() -> str:
    """Text of `hls/dslx/tables.x`."""
    types = {"c0": "u27", "c1": "s21", "c2": "s13"}
    lines = ["// SPDX-License-Identifier: MIT"]
    lines += [
        "// Parabolas of exp, log and tanh, as `copal.fpga.functions.table_source` gives them."
    ]
    for name, values in tables().items():
        rows = [", ".join(map(str, values[i : i + 8])) for i in range(0, len(values), 8)]
        lines += [f"pub const {name.upper()} = {types[name]}[{len(values)}]:["]
        lines += [f"  {row}," for row in rows[:-1]] + [f"  {rows[-1]}", "];"]
    return "\n".join(lines) + "\n"


def exp(x: Floats) -> Floats:
    """Exponential of `x`, which is canonical."""
    mantissa, exponent, negative = _parts(x)
    t = _times_log2_e(mantissa, exponent)
    t = np.where(negative, -t, t)
    fraction = t & 0xFFFFFF
    p = _evaluate(_EXP + (fraction >> 18), fraction & 0x3FFFF)
    result = np.ldexp(p.astype(np.float64), (t >> 24) - FRACTION_BITS).astype(np.float32)
    bound = np.where(negative, 0, np.inf).astype(np.float32)
    return np.where(x != x, x, np.where(exponent > 133, bound, result))


def log(x: Floats) -> Floats:
    """Natural logarithm of `x`, which is canonical."""
    mantissa, exponent, _ = _parts(x)
    fraction = mantissa & 0x7FFFFF
    low = fraction >> 22
    power = exponent - 127 + low
    index = np.where(low == 1, _LOG_LOW - 16 + (fraction >> 18), _LOG + (fraction >> 17))
    p = _evaluate(index, np.where(low == 1, fraction & 0x3FFFF, (fraction & 0x1FFFF) << 1))
    d = np.where(low == 1, (1 << 24) - mantissa, fraction << 1)
    near = np.ldexp((d * p).astype(np.float64), -24 - FRACTION_BITS)
    whole = np.abs(power) * LN_2 >> LN_2_SHIFT
    part = d * p >> 22
    same = (power < 0) == (low == 1)
    far = np.ldexp(np.where(same, whole + part, whole - part).astype(np.float64), -28)
    result = np.where(power == 0, np.where(low == 1, -near, near), np.where(power < 0, -far, far))
    result = np.where(x > 0, np.where(x == np.inf, np.inf, result), np.nan)
    return np.where(x == 0, -np.inf, result).astype(np.float32)


def tanh(x: Floats) -> Floats:
    """Hyperbolic tangent of `x`, which is canonical."""
    mantissa, exponent, _ = _parts(x)
    t = np.where(exponent > 133, 16 << 24, _times_log2_e(mantissa, exponent))
    index, offset = np.where(t < 2 << 24, _TANH + (t >> 19), 255), t >> 1
    for least, base, bits in ((2, _TANH_2 - 32, 20), (4, _TANH_4 - 32, 21), (8, 224, 23)):
        inside = t >= least << 24
        index = np.where(inside, np.minimum(base + (t >> bits), 255), index)
        offset = np.where(inside, t >> bits - 18, offset)
    p = _evaluate(index, offset & 0x3FFFF).astype(np.float64) * 2.0**-FRACTION_BITS
    p = np.where(t >= 16 << 24, 1.0, p)
    factor = np.where(t < 4 << 24, x, np.copysign(np.float32(1), x)).astype(np.float64)
    return np.where(x != x, x, (factor * p).astype(np.float32))


def _parts(x: Floats) -> tuple[_Ints, _Ints, NDArray[np.bool_]]:
    """Significand of 24 bits (0 of zeros), biased exponent, sign."""
    bits = np.asarray(x).view(np.int32).astype(np.int64)
    exponent = bits >> 23 & 0xFF
    mantissa = np.where(exponent == 0, 0, bits & 0x7FFFFF | 0x800000)
    return mantissa, exponent, bits < 0


def _times_log2_e(mantissa: _Ints, exponent: _Ints) -> _Ints:
    """|x| * log2(e) with 24 fraction bits, rounded down; of no use from |x| = 128 up."""
    return mantissa * LOG2_E >> np.clip(159 - exponent, 26, 63)


def _evaluate(index: _Ints, offset: _Ints) -> _Ints:
    c0, c1, c2 = _coefficients()
    r = offset - (1 << OFFSET_BITS - 1)
    slope = c1[index] + (c2[index] * r >> OFFSET_BITS - 1)
    value: _Ints = c0[index] + (slope * r >> OFFSET_BITS - 1)
    return value


@cache
def _coefficients() -> tuple[_Ints, _Ints, _Ints]:
    c0, c1, c2 = (np.array(values, np.int64) for values in tables().values())
    return c0, c1, c2


def _segments() -> Iterator[tuple[Callable[[Decimal], Decimal], Decimal, Decimal]]:
    """Function, start and width of every segment, in the order of the table."""
    one = Decimal(1)
    yield from ((_power_of_two, i / Decimal(64), one / 64) for i in range(64))
    yield from ((_tanh_slope, i / Decimal(32), one / 32) for i in range(64))
    yield from ((_tanh_slope, 2 + i / Decimal(16), one / 16) for i in range(32))
    yield from ((_tanh, 4 + i / Decimal(8), one / 8) for i in range(32))
    yield from ((_log_slope, i / Decimal(64), one / 64) for i in range(32))
    yield from ((_log_slope, (i - 16) / Decimal(64), one / 64) for i in range(16))
    yield from ((_tanh, 8 + i / Decimal(2), one / 2) for i in range(16))


def _parabola(
    function: Callable[[Decimal], Decimal], start: Decimal, width: Decimal
) -> tuple[int, int, int]:
    """The parabola through the Chebyshev nodes; c0 makes up for two roundings towards -infinity."""
    half, node = width / 2, Decimal(3).sqrt() / 2
    middle = start + half
    low, c0, high = (function(middle + half * at) for at in (-node, Decimal(0), node))
    c1 = (high - low) / (2 * node)
    c2 = ((high + low) / 2 - c0) / (node * node)
    scale, up = Decimal(1 << FRACTION_BITS), Decimal("0.5")
    c0, c1, c2 = (c0 * scale + up, c1 * scale, c2 * scale)
    c0, c1, c2 = ((c + up).to_integral_value(ROUND_FLOOR) for c in (c0, c1, c2))
    return int(c0), int(c1), int(c2)


def _power_of_two(f: Decimal) -> Decimal:
    return (f * Decimal(2).ln()).exp()


def _tanh(t: Decimal) -> Decimal:
    """tanh(t * ln(2))."""
    e = (2 * t * Decimal(2).ln()).exp()
    return (e - 1) / (e + 1)


def _tanh_slope(t: Decimal) -> Decimal:
    """tanh(x) / x at x = t * ln(2)."""
    return _tanh(t) / (t * Decimal(2).ln())


def _log_slope(d: Decimal) -> Decimal:
    """log(1 + d) / d."""
    return (1 + d).ln() / d
