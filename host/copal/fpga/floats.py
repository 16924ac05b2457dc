# SPDX-License-Identifier: MIT
"""The engine's float32 arithmetic in NumPy, bit for bit: docs/hardware.md, "Numbers".

Every function takes float32 arrays of any shape that broadcast, and returns a new float32 array
unless `out` is given. Operands are made canonical first: a subnormal is a zero of its sign, a NaN
is 0x7fc00000. Results are canonical. Values that cannot be represented are no errors here; callers
that do not want NumPy's warnings wrap their work in `np.errstate(all="ignore")` once.

`hls/dslx/vec.x` and `hls/dslx/adam.x` are the same functions; a test compares them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copal.fpga import functions

Floats = NDArray[np.float32]
Ints = NDArray[np.integer]

TINY = np.float32(2.0**-126)
"""Smallest normal number."""
NAN = np.uint32(0x7FC00000).view(np.float32)
"""The quiet NaN of all results."""


def canonical(x: Floats) -> Floats:
    """`x` without subnormals and with one NaN; `x` itself if nothing has to change."""
    normal = np.abs(x) >= TINY
    if 0 not in normal.tobytes():
        return x
    return _without_nan(x * normal)


def add(x: Floats, y: Floats, out: Floats | None = None) -> Floats:
    """`x + y`."""
    return _finish(np.add(canonical(x), canonical(y), out=out))


def sub(x: Floats, y: Floats, out: Floats | None = None) -> Floats:
    """`x - y`."""
    return _finish(np.subtract(canonical(x), canonical(y), out=out))


def mul(x: Floats, y: Floats, out: Floats | None = None) -> Floats:
    """`x * y`."""
    return _finish(np.multiply(canonical(x), canonical(y), out=out))


def div(x: Floats, y: Floats, out: Floats | None = None) -> Floats:
    """`x / y`."""
    return _finish(np.divide(canonical(x), canonical(y), out=out))


def sqrt(x: Floats, out: Floats | None = None) -> Floats:
    """Square root; NaN below zero, -0 of -0."""
    return _finish(np.sqrt(canonical(x), out=out))


def minimum(x: Floats, y: Floats) -> Floats:
    """`y < x ? y : x`, NaN if one is."""
    x, y = canonical(x), canonical(y)
    return _either_nan(np.where(y < x, y, x), x, y)


def maximum(x: Floats, y: Floats) -> Floats:
    """`x < y ? y : x`, NaN if one is."""
    x, y = canonical(x), canonical(y)
    return _either_nan(np.where(x < y, y, x), x, y)


def less(x: Floats, y: Floats) -> Floats:
    """1 where `x < y`, else 0."""
    return (canonical(x) < canonical(y)).astype(np.float32)


def less_equal(x: Floats, y: Floats) -> Floats:
    """1 where `x <= y`, else 0."""
    return (canonical(x) <= canonical(y)).astype(np.float32)


def equal(x: Floats, y: Floats) -> Floats:
    """1 where `x == y`, else 0."""
    return np.equal(canonical(x), canonical(y)).astype(np.float32)


def sign(x: Floats) -> Floats:
    """-1, +0 or 1; NaN of NaN."""
    signs: Floats = np.sign(canonical(x)) + np.float32(0)
    return _without_nan(signs)


def relug(x: Floats, y: Floats) -> Floats:
    """`y > 0 ? x : 0`, the gradient of ReLU."""
    return np.where(canonical(y) > 0, canonical(x), np.float32(0))


def selz(x: Floats, y: Floats, imm: Floats) -> Floats:
    """`y == imm ? x : 0`."""
    return np.where(canonical(y) == canonical(imm), canonical(x), np.float32(0))


def exp(x: Floats) -> Floats:
    """Exponential function; relative error below 4e-7."""
    return _finish(functions.exp(canonical(x)))


def log(x: Floats) -> Floats:
    """Natural logarithm, relative error below 4e-7; NaN below zero, -infinity of zeros."""
    return _finish(functions.log(canonical(x)))


def tanh(x: Floats) -> Floats:
    """Hyperbolic tangent; relative error below 4e-7."""
    return _finish(functions.tanh(canonical(x)))


def itof(integers: Ints, exponent: int) -> Floats:
    """int32 `integers * 2^-exponent`, rounded to nearest even; exponent -256 to 255."""
    exact = integers.astype(np.float64)
    exact *= 2.0**-exponent
    return _finish(exact.astype(np.float32))


def ftoi(x: Floats, exponent: int, bits: int = 32) -> NDArray[np.int64]:
    """`rint(x * 2^exponent)`, ties to even, saturated to `bits` signed bits; 0 of NaN."""
    exact = canonical(x).astype(np.float64)
    exact *= 2.0**exponent
    np.rint(exact, out=exact)
    least = -(2.0 ** (bits - 1))
    np.clip(exact, least, -least - 1, out=exact)
    nan = exact != exact
    if 1 in nan.tobytes():
        exact = np.where(nan, 0.0, exact)
    return exact.astype(np.int64)


def adam(
    w: Floats,
    t: Floats,
    m: Floats,
    s: Floats,
    g: Ints,
    k: Floats,
    *,
    e_g: int,
    adam: bool = True,
    average: bool = True,
) -> tuple[Floats, Floats, Floats, Floats]:
    """One step of the optimiser (Kingma and Ba, 2015) and of target averaging: UPDATE.

    Args:
        w: Parameters, float32 [n].
        t: Target parameters, float32 [n].
        m: First moments, float32 [n].
        s: Second moments, float32 [n].
        g: Sums of the gradient, int32 [n], at the scale 2^-e_g.
        k: A set of K, float32 [9 or more].
        e_g: Exponent of `g`, -256 to 255.
        adam: Whether `w`, `m` and `s` are stepped; they are returned as they are otherwise.
        average: Whether `t` is; it is returned as it is otherwise.

    Returns:
        New w, t, m, s.
    """
    c = canonical(k)
    if adam:
        gs = itof(g, e_g)
        _finish(np.multiply(gs, c[8], out=gs))
        m, s = canonical(m) * c[0], canonical(s) * c[2]
        _finish(m)
        _finish(s)
        r = _finish(gs * c[1])
        _finish(np.add(m, r, out=m))
        _finish(np.multiply(gs, gs, out=gs))
        _finish(np.multiply(gs, c[3], out=gs))
        _finish(np.add(s, gs, out=s))
        _finish(np.sqrt(s, out=gs))
        _finish(np.add(gs, c[5], out=gs))
        _finish(np.multiply(m, c[4], out=r))
        _finish(np.divide(r, gs, out=r))
        w = _finish(canonical(w) - r)
    if average:
        t = _finish(canonical(t) * c[7])
        t += _finish(canonical(w) * c[6])
        _finish(t)
    return w, t, m, s


def _finish(result: Floats) -> Floats:
    """`result` of one rounding made canonical, in place where it is an array."""
    normal = np.abs(result) >= TINY
    if 0 not in normal.tobytes():
        return result
    result *= normal
    return _without_nan(result)


def _without_nan(x: Floats) -> Floats:
    nan = x != x
    if 1 not in nan.tobytes():
        return x
    if x.ndim == 0:
        return np.asarray(NAN)
    np.copyto(x, NAN, where=nan)
    return x


def _either_nan(result: Floats, x: Floats, y: Floats) -> Floats:
    nan = (x != x) | (y != y)
    if 1 in nan.tobytes():
        np.copyto(result, NAN, where=nan)
    return result
