# SPDX-License-Identifier: MIT
"""The PTX interpreter's instructions against NumPy, whole numbers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fpga_operands import bits, pairs
from ptx_snippets import evaluate

from ptx import floats

Values = npt.NDArray[Any]
N = 512


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Overflow and invalid operands are among what is tested."""
    with np.errstate(all="ignore"):
        yield


def _words(rng: np.random.Generator, dtype: str = "u4") -> Values:
    """Random bits, with the ends of the range among them."""
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    values[:6] = info.min, info.max, 0, 1, info.max - 1, info.min + 1
    return values


def _same(got: Values, want: Values) -> None:
    """Equal bits, any NaN for a NaN."""
    want = want.astype(got.dtype) if want.dtype.kind == got.dtype.kind else want.view(got.dtype)
    np.testing.assert_array_equal(got, want)
    if got.dtype == np.float32:
        real = ~np.isnan(want)
        np.testing.assert_array_equal(bits(got)[real], bits(want)[real])


@pytest.mark.parametrize(
    ("opcode", "oracle"),
    [
        ("add.rn.f32", np.add),
        ("sub.f32", np.subtract),
        ("mul.rn.f32", np.multiply),
        ("div.rn.f32", np.divide),
        ("add.ftz.f32", lambda a, b: floats.flush(floats.flush(a) + floats.flush(b))),
    ],
)
def test_float_operation(
    rng: np.random.Generator, opcode: str, oracle: Callable[..., Values]
) -> None:
    """Subnormals, infinities and NaN included."""
    x, y = pairs(rng, N)
    _same(evaluate(opcode, "f32", ("f32", x), ("f32", y)), oracle(x, y))


def test_fma_rounds_once(rng: np.random.Generator) -> None:
    """Equal to the rational result rounded to nearest even, also near ties and subnormals."""
    a, b = (rng.choice([1, 1.5, 3, 1 + 2**-12, 1 + 2**-23], N).astype(np.float32) for _ in "ab")
    scale = np.float32(2.0) ** rng.choice([-75, -70, -12, 0, 12], N).astype(np.float32)
    c = (rng.choice([0, 1, -1, 2**-24, 1 + 2**-23], N) * scale * scale).astype(np.float32)
    random = slice(N // 2, None)
    a[random], b[random], c[random] = rng.standard_normal((3, N // 2))
    a, b = a * scale, b * scale
    got = evaluate("fma.rn.f32", "f32", ("f32", a), ("f32", b), ("f32", c))
    for x, y, z, result in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        off = exact - Fraction(float(result))
        beside = np.nextafter(result, np.float32(np.inf if off > 0 else -np.inf))
        other = abs(exact - Fraction(float(beside)))
        assert abs(off) < other or (abs(off) == other and not bits(result) & 1)


def test_fma_of_special_values(rng: np.random.Generator) -> None:
    """Infinities, NaN, zeros and overflow are those of float64, which holds the product."""
    x, y = pairs(rng, N)
    z = rng.permutation(x)
    got = evaluate("fma.rn.f32", "f32", ("f32", x), ("f32", y), ("f32", z))
    want = (x.astype(np.float64) * y + z).astype(np.float32)
    apart = ~((got == want) | (np.isnan(got) & np.isnan(want)))
    assert not np.any(apart & ~np.isclose(got, want, rtol=2e-7, atol=3e-45))
    assert np.array_equal(np.isfinite(got), np.isfinite(want))


@pytest.mark.parametrize(("opcode", "pick"), [("max.f32", max), ("min.f32", min)])
def test_extreme_of_floats(
    rng: np.random.Generator, opcode: str, pick: Callable[..., float]
) -> None:
    """NaN loses, and -0 is below +0."""
    x, y = pairs(rng, N)
    x[:4], y[:4] = [0, -0.0, np.nan, 1], [-0.0, 0, 2, np.nan]

    def key(value: np.float32) -> tuple[float, float]:
        return float(value), math.copysign(1, value)

    want = [
        b if math.isnan(a) else a if math.isnan(b) else pick(a, b, key=key)
        for a, b in zip(x, y, strict=True)
    ]
    _same(evaluate(opcode, "f32", ("f32", x), ("f32", y)), np.array(want, np.float32))


@pytest.mark.parametrize("name", sorted(floats.APPROXIMATE))
def test_approximation_stays_in_its_bound(rng: np.random.Generator, name: str) -> None:
    """Off from float64, by no more than the manual's bound and half a unit of rounding."""
    x = rng.uniform(0.1, 3, N).astype(np.float32)
    function, relative, absolute = floats.APPROXIMATE[name]
    want = function(x.astype(np.float64))
    got = evaluate(f"{name}.approx.ftz.f32", "f32", ("f32", x))
    bound = np.abs(want) * (relative + 2**-24) + absolute
    assert np.all(np.abs(got - want) <= bound)
    assert np.any(got != want.astype(np.float32))


@pytest.mark.parametrize(
    ("opcode", "kind", "oracle"),
    [
        ("add.s32", "u32", lambda a, b: a + b),
        ("sub.s32", "u32", lambda a, b: a - b),
        ("mul.lo.s32", "u32", lambda a, b: a * b),
        ("mul.hi.u32", "u32", lambda a, b: a * b >> 32),
        ("mul.hi.s32", "s32", lambda a, b: a * b >> 32),
        ("and.b32", "u32", lambda a, b: a & b),
        ("or.b32", "u32", lambda a, b: a | b),
        ("xor.b32", "u32", lambda a, b: a ^ b),
        ("max.s32", "s32", max),
        ("min.u32", "u32", min),
        ("div.u32", "u32", lambda a, b: a // b if b else 0),
        ("div.s32", "s32", lambda a, b: int(Fraction(a, b)) if b else 0),
        ("rem.u32", "u32", lambda a, b: a % b if b else 0),
        ("rem.s32", "s32", lambda a, b: a - b * int(Fraction(a, b)) if b else 0),
        ("mul.hi.u64", "u64", lambda a, b: a * b >> 64),
        ("mul.lo.s64", "s64", lambda a, b: a * b),
    ],
)
def test_integer_operation(
    rng: np.random.Generator, opcode: str, kind: str, oracle: Callable[[int, int], int]
) -> None:
    """As on whole numbers, cut to the width."""
    dtype = kind.replace("u", "uint").replace("s", "int")
    x, y = _words(rng, dtype), _words(rng, dtype)
    if opcode.startswith(("div", "rem")):
        y[6 : N // 2] = rng.integers(1, 100, N // 2 - 6)
        y[y == 0] = 3
    width = int(kind[1:])
    want = [oracle(int(a), int(b)) % 2**width for a, b in zip(x, y, strict=True)]
    got = evaluate(opcode, f"u{width}", (kind, x), (kind, y))
    assert got.tolist() == want


def test_wide_products(rng: np.random.Generator) -> None:
    """`mul.wide` and `mad.wide` keep all 64 bits, signed or not."""
    x, y, z = _words(rng, "int32"), _words(rng, "int32"), _words(rng, "int64")
    got = evaluate("mad.wide.s32", "s64", ("s32", x), ("s32", y), ("s64", z))
    _same(got, x.astype(np.int64) * y + z)
    u, v = _words(rng), _words(rng)
    _same(evaluate("mul.wide.u32", "u64", ("u32", u), ("u32", v)), u.astype(np.uint64) * v)


@pytest.mark.parametrize(
    ("opcode", "kind", "oracle"),
    [
        ("shl.b32", "u32", lambda a, n: a << n if n < 32 else 0),
        ("shr.u32", "u32", lambda a, n: a >> n if n < 32 else 0),
        ("shr.s32", "s32", lambda a, n: a >> min(n, 31)),
    ],
)
def test_shift_beyond_the_width(
    rng: np.random.Generator, opcode: str, kind: str, oracle: Callable[[int, int], int]
) -> None:
    """Shifting by 32 and more leaves nothing, or the sign."""
    x = _words(rng, kind.replace("u", "uint").replace("s", "int"))
    by = rng.integers(0, 70, N, dtype=np.uint32)
    want = [oracle(int(a), int(n)) % 2**32 for a, n in zip(x, by, strict=True)]
    assert evaluate(opcode, "u32", (kind, x), ("u32", by)).tolist() == want


def test_bit_instructions(rng: np.random.Generator) -> None:
    """Fields, counts, bytes, three-way logic and funnel shifts as on whole numbers."""
    x, y, z = (_words(rng) for _ in range(3))
    start, count = (rng.integers(0, 17, N, dtype=np.uint32) for _ in range(2))
    whole = [tuple(int(v) for v in row) for row in zip(x, y, z, start, count, strict=True)]
    fields = evaluate("bfe.u32", "u32", ("u32", x), ("u32", start), ("u32", count))
    assert fields.tolist() == [a >> s & ((1 << c) - 1) for a, _, _, s, c in whole]
    put = evaluate("bfi.b32", "u32", ("u32", x), ("u32", y), ("u32", start), ("u32", count))
    assert put.tolist() == [
        b & ~(((1 << c) - 1) << s) | (a & ((1 << c) - 1)) << s for a, b, _, s, c in whole
    ]
    assert evaluate("popc.b32", "u32", ("u32", x)).tolist() == [a.bit_count() for a, *_ in whole]
    assert evaluate("clz.b32", "u32", ("u32", x)).tolist() == [
        32 - a.bit_length() for a, *_ in whole
    ]
    assert evaluate("bfind.u32", "u32", ("u32", x)).tolist() == [
        (a.bit_length() - 1) % 2**32 for a, *_ in whole
    ]
    assert evaluate("bfind.shiftamt.u32", "u32", ("u32", x)).tolist() == [
        (32 - a.bit_length() if a else -1) % 2**32 for a, *_ in whole
    ]
    logic = evaluate("lop3.b32", "u32", ("u32", x), ("u32", y), ("u32", z), "0xE8")
    _same(logic, x & y | x & z | y & z)
    turned = evaluate("shf.l.wrap.b32", "u32", ("u32", x), ("u32", y), ("u32", start))
    assert turned.tolist() == [((b << 32 | a) << s >> 32) % 2**32 for a, b, _, s, _ in whole]
    moved = evaluate("prmt.b32", "u32", ("u32", x), ("u32", y), "0x5410")
    _same(moved, x & 0xFFFF | y << 16)


def test_bit_instructions_of_64_bits(rng: np.random.Generator) -> None:
    """Fields up to the whole word, and bits in reverse."""
    x, y = _words(rng, "uint64"), _words(rng, "uint64")
    start, count = (rng.integers(0, 33, N, dtype=np.uint32) for _ in range(2))
    start[:2], count[:2] = 0, 64
    whole = [tuple(int(v) for v in row) for row in zip(x, y, start, count, strict=True)]
    put = evaluate("bfi.b64", "u64", ("u64", x), ("u64", y), ("u32", start), ("u32", count))
    assert put.tolist() == [
        (b & ~(((1 << c) - 1) << s) | (a & ((1 << c) - 1)) << s) % 2**64 for a, b, s, c in whole
    ]
    got = evaluate("bfe.u64", "u64", ("u64", x), ("u32", start), ("u32", count))
    assert got.tolist() == [a >> s & ((1 << c) - 1) for a, _, s, c in whole]
    turned = evaluate("brev.b64", "u64", ("u64", x))
    assert turned.tolist() == [int(f"{a:064b}"[::-1], 2) for a, *_ in whole]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_float_comparison_with_nan(rng: np.random.Generator, name: str) -> None:
    """The plain one is false for NaN, the one with `u` true."""
    x, y = pairs(rng, N)
    y[: N // 4] = x[: N // 4]
    x[: N // 8] = np.nan
    function = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                "gt": np.greater, "ge": np.greater_equal}[name]  # fmt: skip
    nan = np.isnan(x) | np.isnan(y)
    for suffix, want in (("", function(x, y) & ~nan), ("u", function(x, y) | nan)):
        got = evaluate(f"setp.{name}{suffix}.f32", "pred", ("f32", x), ("f32", y))
        _same(got, want.astype(np.uint32))


@pytest.mark.parametrize(
    ("opcode", "to", "oracle"),
    [
        ("cvt.rzi.s32.f32", "s32", math.trunc),
        ("cvt.rni.s32.f32", "s32", round),
        ("cvt.rmi.s32.f32", "s32", math.floor),
        ("cvt.rpi.u32.f32", "u32", math.ceil),
    ],
)
def test_float_to_integer(
    rng: np.random.Generator, opcode: str, to: str, oracle: Callable[[float], int]
) -> None:
    """Rounded as asked, saturated at the ends; NaN gives zero."""
    x = (rng.standard_normal(N) * 2.0 ** rng.integers(-2, 40, N)).astype(np.float32)
    x[:5] = np.nan, np.inf, -np.inf, 2.5, -0.5
    info = np.iinfo(to.replace("u", "uint").replace("s", "int"))

    def want(v: float) -> int:
        if math.isnan(v):
            return 0
        return info.max if v > info.max else info.min if v < info.min else oracle(v)

    expected = [min(max(want(float(v)), int(info.min)), int(info.max)) for v in x]
    assert evaluate(opcode, to, ("f32", x)).tolist() == expected


def test_integer_to_float(rng: np.random.Generator) -> None:
    """To nearest, from 32 and 64 bits."""
    x, y = _words(rng, "int32"), _words(rng, "uint64")
    _same(evaluate("cvt.rn.f32.s32", "f32", ("s32", x)), x.astype(np.float32))
    _same(evaluate("cvt.rn.f32.u64", "f32", ("u64", y)), y.astype(np.float32))
    _same(evaluate("cvt.s64.s32", "s64", ("s32", x)), x.astype(np.int64))
