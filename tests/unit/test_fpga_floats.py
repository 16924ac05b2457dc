# SPDX-License-Identifier: MIT
"""The engine's float32 arithmetic in NumPy against IEEE arithmetic, whole numbers and float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from fpga_operands import Floats, bits, numbers, pairs

from copal.fpga import floats, functions

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Invalid operands, overflow and the like are what is tested, and no warnings."""
    with np.errstate(all="ignore"):
        yield


def _plain(x: Floats) -> Floats:
    """Subnormals to zero and one NaN, by the bits."""
    tiny = (bits(x) & 0x7F800000) == 0
    zeros = np.where(tiny, bits(x) & 0x80000000, bits(x)).view(np.float32)
    return np.where(np.isnan(zeros), floats.NAN, zeros)


@pytest.mark.parametrize(
    ("name", "oracle"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)],
)
def test_arithmetic_flushes_before_and_after(
    rng: np.random.Generator, name: str, oracle: np.ufunc
) -> None:
    """Operands and results have no subnormals and one NaN; `out` and scalars give the same."""
    x, y = pairs(rng, 2000)
    function = getattr(floats, name)
    expected = _plain(oracle(_plain(x), _plain(y)))
    got = function(x, y)
    out = np.empty_like(x)
    assert function(x, y, out=out) is out
    ones = [function(a, b) for a, b in zip(x[:900], y[:900], strict=True)]
    assert got.dtype == np.float32
    for actual in (got, out, np.concatenate([ones, expected[900:]])):
        np.testing.assert_array_equal(bits(actual), bits(expected))


def test_square_root_flushes_too(rng: np.random.Generator) -> None:
    """The square root is NumPy's, of canonical operands."""
    x, _ = pairs(rng, 2000)
    np.testing.assert_array_equal(bits(floats.sqrt(x)), bits(_plain(np.sqrt(_plain(x)))))


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("minimum", lambda a, b: math.nan if a != a or b != b else b if b < a else a),
        ("maximum", lambda a, b: math.nan if a != a or b != b else b if a < b else a),
        ("less", lambda a, b: float(a < b)),
        ("less_equal", lambda a, b: float(a <= b)),
        ("equal", lambda a, b: float(a == b)),
        ("relug", lambda a, b: a if b > 0 else 0.0),
        ("sign", lambda a, _: math.nan if a != a else float((a > 0) - (a < 0))),
    ],
)
def test_choices_follow_their_definition(
    rng: np.random.Generator, name: str, oracle: Callable[[float, float], float]
) -> None:
    """Comparisons and choices agree with Python's, operand by operand."""
    x, y = pairs(rng, 50)
    got = floats.sign(x) if name == "sign" else getattr(floats, name)(x, y)
    rows = zip(_plain(x).tolist(), _plain(y).tolist(), strict=True)
    expected = np.array([oracle(a, b) for a, b in rows], np.float32)
    np.testing.assert_array_equal(bits(got), bits(_plain(expected)))


def test_selection_compares_with_a_canonical_constant() -> None:
    """A subnormal constant selects zeros of both signs; NaN selects nothing."""
    x = np.array([1, 2, 3, 4], np.float32)
    y = np.array([0, -0.0, 5, np.nan], np.float32)
    assert floats.selz(x, y, np.float32(1e-42)).tolist() == [1, 2, 0, 0]
    assert floats.selz(x, y, np.float32(np.nan)).tolist() == [0, 0, 0, 0]
    assert floats.selz(x, y, np.float32(5)).tolist() == [0, 0, 3, 0]


@pytest.mark.parametrize("bits_out", [18, 32, 48])
def test_integers_are_rounded_to_even_and_saturated(
    rng: np.random.Generator, bits_out: int
) -> None:
    """`ftoi` agrees with exact arithmetic on fractions."""
    x = np.concatenate([numbers(rng, 200), pairs(rng, 60)[0]])
    limit = 1 << bits_out - 1
    for exponent in (0, 1, 9, int(rng.integers(-256, 256))):
        got = floats.ftoi(x, exponent, bits_out)
        for value, whole in zip(_plain(x).tolist(), got.tolist(), strict=True):
            if math.isfinite(value):
                expected = round(Fraction(value) * Fraction(2) ** exponent)
            else:
                expected = 0 if math.isnan(value) else limit * (1 if value > 0 else -1)
            assert whole == max(-limit, min(limit - 1, expected)), (value, exponent)


def test_floats_of_integers_are_rounded_once(rng: np.random.Generator) -> None:
    """`itof` has the 24 bits that are nearest, flushes what is tiny, and overflows to infinity."""
    i = rng.integers(-(1 << 31), 1 << 31, 500) >> rng.integers(0, 31, 500)
    i = np.concatenate([i, [0, 1, -1, (1 << 31) - 1, -(1 << 31), (1 << 24) + 1, (1 << 24) + 3]])
    np.testing.assert_array_equal(bits(floats.itof(i, 0)), bits(i.astype(np.float32)))
    np.testing.assert_array_equal(floats.itof(i, 7), i.astype(np.float32) / np.float32(128))
    assert floats.itof(np.array([3, -3]), 127).tolist() == [3 * 2.0**-127, -3 * 2.0**-127]
    assert not floats.itof(np.array([1, -1]), 127).any()
    assert floats.itof(np.array([1, -1]), -128).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
def test_functions_are_accurate(rng: np.random.Generator, name: str) -> None:
    """The relative error against float64 stays below 4e-7 at all magnitudes."""
    x = numbers(rng, 30_000)
    x = np.abs(x[x != 0]) if name == "log" else x
    exact = getattr(np, name)(x.astype(np.float64))
    got = getattr(floats, name)(x).astype(np.float64)
    there = (np.abs(exact) > 2.0**-126) & (np.abs(exact) < 3.4e38)
    error = np.abs(got - exact)[there] / np.abs(exact)[there]
    assert there.sum() > 10_000
    assert error.max() < 4e-7, x[there][error.argmax()]
    assert not got[np.abs(exact) < 2.0**-127].any()
    assert np.isinf(got[np.abs(exact) > 3.41e38]).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("exp", [(0, 1), (-0.0, 1), (math.inf, math.inf), (-math.inf, 0), (89, math.inf)]),
        ("exp", [(-88, 0), (1e30, math.inf), (-1e30, 0), (1e-41, 1), (1e-9, 1), (-1e-9, 1)]),
        ("log", [(1, 0), (0, -math.inf), (-0.0, -math.inf), (math.inf, math.inf)]),
        ("log", [(-1, math.nan), (-math.inf, math.nan), (1e-41, -math.inf)]),
        ("tanh", [(0, 0), (-0.0, -0.0), (math.inf, 1), (-math.inf, -1), (20, 1), (-1e-40, -0.0)]),
    ],
)
def test_functions_have_their_limits(name: str, values: list[tuple[float, float]]) -> None:
    """Zeros, infinities, overflow and invalid operands have the results of IEEE."""
    values = [*values, (math.nan, math.nan)]
    x, expected = (np.array(column, np.float32) for column in zip(*values, strict=True))
    got = getattr(floats, name)(x)
    ones = [getattr(floats, name)(one) for one in x]
    for actual in (got, np.array(ones, np.float32)):
        np.testing.assert_array_equal(bits(actual), bits(_plain(expected)))


@pytest.mark.parametrize(("adam", "average"), [(True, True), (True, False), (False, True)])
def test_update_rounds_every_operation(rng: np.random.Generator, adam: bool, average: bool) -> None:
    """`adam` agrees with the formula of the documentation, each operation by itself."""
    w, t, m, s = (rng.choice(numbers(rng, 200), 700) for _ in range(4))
    w[:600], s = pairs(rng, 100)[0][900:1500], np.where(s < -1, s, np.abs(s))
    g = rng.integers(-(1 << 31), 1 << 31, 700) >> rng.integers(0, 31, 700)
    k = np.array([0.9, 0.1, 0.999, 0.001, 1e-3, 1e-8, 0.01, 0.99, 1 / 64], np.float32)
    beta1, rest1, beta2, rest2, alpha, eps, tau, rest, scale = k
    add, sub, mul, div, sqrt = floats.add, floats.sub, floats.mul, floats.div, floats.sqrt
    got = floats.adam(w, t, m, s, g, k, e_g=20, adam=adam, average=average)
    if adam:
        gs = mul(floats.itof(g, 20), scale)
        m = add(mul(m, beta1), mul(gs, rest1))
        s = add(mul(s, beta2), mul(mul(gs, gs), rest2))
        w = sub(w, div(mul(m, alpha), add(sqrt(s), eps)))
    if average:
        t = add(mul(t, rest), mul(w, tau))
    for actual, expected in zip(got, (w, t, m, s), strict=True):
        np.testing.assert_array_equal(bits(actual), bits(expected))


def test_tables_of_the_hardware_are_those_of_the_model() -> None:
    """`hls/dslx/tables.x` is what `table_source` makes."""
    assert (ROOT / "hls/dslx/tables.x").read_text() == functions.table_source()
