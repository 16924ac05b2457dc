# SPDX-License-Identifier: MIT
"""The engine's float32 arithmetic in NumPy against correctly rounded arithmetic and float64."""

from __future__ import annotations

import numpy as np
import pytest

from copal.fpga import floats

SPECIAL = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x4B000000]
    + [0x4B7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF],
    np.uint32,
)


def _operands(rng: np.random.Generator, count: int) -> tuple[floats.Floats, floats.Floats]:
    """Pairs: any bits, near each other, few significant bits, and all special pairs."""
    signed = np.concatenate([SPECIAL, SPECIAL | 0x80000000])
    x, y = (v.ravel() for v in np.meshgrid(signed, signed))
    any_x, any_y = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    near = any_x + rng.integers(-64, 64, count).astype(np.uint32)
    near ^= rng.integers(0, 2, count, dtype=np.uint32) << 31
    close = (any_x & 0x807FFFFF) | (rng.integers(100, 130, count, dtype=np.uint32) << 23)
    other = (any_y & 0x80FF0000) | (rng.integers(100, 130, count, dtype=np.uint32) << 23)
    xs = np.concatenate([x, any_x, any_x, close, other])
    ys = np.concatenate([y, any_y, near, other, close])
    return xs.astype(np.uint32).view(np.float32), ys.astype(np.uint32).view(np.float32)


def _plain(x: floats.Floats) -> floats.Floats:
    """Subnormals to zero and one NaN, element by element."""
    tiny = (x.view(np.uint32) & 0x7F800000) == 0
    zeros = np.where(tiny, x.view(np.uint32) & 0x80000000, x.view(np.uint32)).view(np.float32)
    return np.where(np.isnan(zeros), floats.NAN, zeros)


@pytest.mark.parametrize(
    ("name", "oracle"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)],
)
def test_arithmetic_flushes_before_and_after(
    rng: np.random.Generator, name: str, oracle: np.ufunc
) -> None:
    """Operands and results have no subnormals and one NaN; `out` and scalars give the same."""
    x, y = _operands(rng, 2000)
    function = getattr(floats, name)
    with np.errstate(all="ignore"):
        expected = _plain(oracle(_plain(x), _plain(y)))
        got = function(x, y)
        out = np.empty_like(x)
        assert function(x, y, out=out) is out
        ones = [function(a, b) for a, b in zip(x[:200], y[:200], strict=True)]
    assert got.dtype == np.float32
    for actual in (got, out):
        np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))
    np.testing.assert_array_equal(np.array(ones, np.float32), expected[:200])
