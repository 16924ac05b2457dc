# SPDX-License-Identifier: MIT
"""Float32 arithmetic of PTX in NumPy.

Exact, that is correctly rounded: add, sub, mul, div.rn, rcp.rn, sqrt.rn, fma, conversions. The
`.approx` functions are computed in float64 and then disturbed by a random error of up to the bound
that the PTX manual gives, so that nothing can depend on their last bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx.kinds import Array

_TINY = 2.0**-126
APPROXIMATE: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "ex2": (np.exp2, 2.0**-22, 0),
    "lg2": (np.log2, 2.0**-23, 2.0**-22),
    "rcp": (np.reciprocal, 2.0**-23, 0),
    "sqrt": (np.sqrt, 2.0**-22, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0**-22.4, 0),
    "sin": (np.sin, 0, 2.0**-20.5),
    "cos": (np.cos, 0, 2.0**-20.5),
    "tanh": (np.tanh, 2.0**-11, 0),
}
"""Function, bound of the relative error, bound of the absolute error."""


def flush(value: Array) -> Array:
    """Subnormal numbers as zeros of their sign, which `.ftz` asks for."""
    return np.where(np.abs(value) < np.float32(_TINY), np.copysign(np.float32(0), value), value)


def fma(a: Array, b: Array, c: Array) -> Array:
    """A * b + c of float32 values, rounded once.

    The product is exact in float64 and the sum nearly so. Rounding that sum to float32 goes wrong
    only where it lies exactly between two float32 numbers or is subnormal; there it is first
    rounded to odd, after which rounding again is right (Boldo and Melquiond 2008).
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    result = total.astype(np.float32)
    bits = total.view(np.int64)
    middle = (bits & 0x1FFFFFFF) == 0x10000000
    small = np.abs(result) < 2 * _TINY
    if middle.any() or (small.any() and total[small].any()):
        return _to_odd(product, np.asarray(c, np.float64), total).astype(np.float32)
    return result


def _to_odd(a: Array, b: Array, total: Array) -> Array:
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    away = np.where((error > 0) == (total > 0), 1, -1)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    return np.where(inexact, bits + away, bits).view(np.float64)


def largest(x: Array, y: Array) -> Array:
    """The greater one; NaN only if both are, +0 above -0."""
    return _extreme(np.fmax, np.bitwise_and, x, y)


def smallest(x: Array, y: Array) -> Array:
    """The lesser one; NaN only if both are, -0 below +0."""
    return _extreme(np.fmin, np.bitwise_or, x, y)


def _extreme(choose: np.ufunc, join: np.ufunc, x: Array, y: Array) -> Array:
    kind = f"u{x.dtype.itemsize}"
    same = join(x.view(kind), y.view(kind)).view(x.dtype)
    result: Array = np.where(x == y, same, choose(x, y))
    return result


def approximate(name: str, x: Array, random: np.random.Generator) -> Array:
    """One of the functions with `.approx`, off by as much as the hardware may be."""
    function, relative, absolute = APPROXIMATE[name]
    exact = function(np.asarray(x, np.float64))
    spread = 2 * random.random((2, *np.shape(exact))) - 1
    off = exact * (1 + relative * spread[0]) + absolute * spread[1]
    # Powers of two, zeros and infinities are right in hardware, and programs count on it.
    special = (exact == 0) | ~np.isfinite(exact) | (np.abs(np.frexp(exact)[0]) == 0.5)
    return np.where(special, exact, off).astype(np.float32)


def to_integer(value: Array, dtype: np.dtype[np.generic], rounding: str) -> Array:
    """Float to integer: rounded, saturated, NaN as zero."""
    whole = rounded(np.asarray(value, np.float64), rounding)
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    top = float(limits.max)
    inside = np.clip(np.nan_to_num(whole, nan=0.0, posinf=top, neginf=limits.min), limits.min, top)
    result = np.where(inside >= top, 0.0, inside).astype(dtype)
    return np.where(inside >= top, np.array(limits.max, dtype), result)


def rounded(value: Array, rounding: str) -> Array:
    """To a whole number: `rni` nearest even, `rzi` towards zero, `rmi` down, `rpi` up."""
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding]
    result: Array = function(value)
    return result
