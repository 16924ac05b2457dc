# SPDX-License-Identifier: MIT
"""Operands that float32 arithmetic goes wrong on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[np.uint32]

_SPECIAL = (
    *(0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x4B000000),
    *(0x4B7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF),
)


def pairs(rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Pairs: all special ones, any bits, near each other, few bits, products near the smallest."""
    special = np.array(_SPECIAL, np.uint32)
    signed = np.concatenate([special, special | 0x80000000])
    x, y = (v.ravel() for v in np.meshgrid(signed, signed))
    any_x, any_y = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    near = any_x + rng.integers(-64, 64, count).astype(np.uint32)
    near ^= rng.integers(0, 2, count, dtype=np.uint32) << 31
    close = (any_x & 0x807FFFFF) | (rng.integers(100, 130, count, dtype=np.uint32) << 23)
    short = (any_y & 0x80FF0000) | (rng.integers(100, 130, count, dtype=np.uint32) << 23)
    tiny = (any_x & 0x807FFFFF) | (rng.integers(1, 64, count, dtype=np.uint32) << 23)
    small = (any_y & 0x807FFFFF) | (rng.integers(60, 128, count, dtype=np.uint32) << 23)
    border_x, border_y = _near_smallest(rng, count)
    xs = np.concatenate([x, any_x, any_x, close, short, tiny, border_x])
    ys = np.concatenate([y, any_y, near, short, close, small, border_y])
    return xs.astype(np.uint32).view(np.float32), ys.astype(np.uint32).view(np.float32)


def numbers(rng: np.random.Generator, count: int) -> Floats:
    """Ordinary numbers of all magnitudes that exp, log, tanh and integers care about."""
    wide = rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 2.2, count)
    near_one = 1 + rng.uniform(-0.6, 0.6, count) * 2.0 ** -rng.integers(0, 23, count)
    halves = rng.integers(-3000, 3000, count) / 2
    return np.concatenate([wide, near_one, halves]).astype(np.float32)


def bits(x: Floats) -> Bits:
    """The bits, to compare exactly."""
    return np.asarray(x, np.float32).view(np.uint32)


def _near_smallest(rng: np.random.Generator, count: int) -> tuple[Bits, Bits]:
    """Factors whose product, divisors whose quotient rounds up to the smallest normal number."""
    x = rng.uniform(1, 2, count).astype(np.float32)
    y = np.where(rng.random(count) < 0.5, 2 / x, x).astype(np.float32)
    y = (bits(y) + rng.integers(-2, 3, count).astype(np.uint32)).view(np.float32)
    scale = np.float32(2.0**-100)
    return bits(x * scale), bits(y * np.float32(2.0**-27))
