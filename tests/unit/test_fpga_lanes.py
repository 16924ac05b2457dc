# SPDX-License-Identifier: MIT
"""The lanes of the engine, DSLX under the XLS JIT, against their Python functions, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xls
from fpga_operands import Floats, bits, numbers, pairs
from numpy.typing import NDArray

from copal.fpga import floats, rtl
from copal.fpga.config import EngineConfig
from copal.fpga.isa import Vop

Words = NDArray[np.int64]

VEC = """import vec;
pub fn probe(i: u32[6]) -> u32[4] {
  let f = i[3];
  let (bad, write, integer, result) = vec::vec(
    i[0] as u5, i[1] as s9, i[2], f[0:2], f[2:3], f[3:4], f[4:5], f[5:6], f[6:7], f[7:8], f[8:9],
    i[4], i[5]);
  [bad as u32, write as u32, integer as u32, result]
}
"""
ADAM = """import adam;
fn high(x: s64) -> u32 { ((x as u64) >> u32:32) as u32 }
pub fn probe(i: u32[17]) -> u32[8] {
  let (iw, it, w, t, m, s) = adam::adam(
    i[0][0:1], i[0][1:2], i[0][2:11] as s9, i[0][11:20] as s9, i[0][20:29] as s9, i[1], i[2], i[3],
    i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11], i[12], i[13], i[14] as s32);
  [iw as u32, high(iw as s64), it as u32, high(it as s64), w, t, m, s]
}
"""

X_IMM, Y_IMM, X_ABS, X_NEG, Y_ABS, Y_NEG, QUANT = (1 << i for i in range(2, 9))

ORACLES: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "MOV": lambda x, _: x,
    "ADD": floats.add,
    "MUL": floats.mul,
    "DIV": floats.div,
    "MIN": floats.minimum,
    "MAX": floats.maximum,
    "LT": floats.less,
    "LE": floats.less_equal,
    "EQ": floats.equal,
    "SIGN": lambda x, _: floats.sign(x),
    "RELUG": floats.relug,
    "SQRT": lambda x, _: floats.sqrt(x),
    "EXP": lambda x, _: floats.exp(x),
    "LOG": lambda x, _: floats.log(x),
    "TANH": lambda x, _: floats.tanh(x),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Invalid operands, overflow and the like are what is tested, and no warnings."""
    with np.errstate(all="ignore"):
        yield


class Probe:
    """A DSLX function of 32-bit words, compiled."""

    def __init__(self, source: str, folder: Path, inputs: int, outputs: int) -> None:
        hls = rtl.generator()
        (folder / "params.x").write_text(hls.dslx_parameters(EngineConfig().parameters()))
        paths = [str(folder), str(hls.DSLX)]
        ir = xls.convert_dslx_to_ir(source, "probe.x", "probe", additional_search_paths=paths)
        top = xls.mangle_dslx_name("probe", "probe")
        self._package = xls.Package.parse_ir(xls.optimize_ir(ir, top))
        self._jit = self._package.get_function(top).to_jit()
        self._inputs, self._outputs = inputs, outputs

    def __call__(self, *columns: Any) -> NDArray[np.uint32]:
        """Results [outputs, n] of operands that broadcast to [n]; the rest are zeros."""
        count = max(np.size(column) for column in columns)
        words = np.zeros((count, self._inputs), np.int64)
        for i, column in enumerate(columns):
            words[:, i] = np.asarray(column).astype(np.int64) & 0xFFFFFFFF
        args = (self._jit, words.ravel(), 32, self._inputs, self._outputs)
        result = np.asarray(xls.c_api.jit_fn_predict(*args))
        return result.reshape(count, -1).T.astype(np.uint32)


@pytest.fixture(scope="module")
def vec(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """A lane of the vector unit: vop, exponent, imm, flags, x, y -> bad, write, integer, result."""
    return Probe(VEC, tmp_path_factory.mktemp("vec"), 6, 4)


@pytest.mark.parametrize("name", ORACLES)
def test_vector_operation_has_the_bits_of_python(
    rng: np.random.Generator, vec: Probe, name: str
) -> None:
    """Every operation on any bits, near operands, special values and ordinary numbers."""
    x, y = pairs(rng, 4000)
    x, y = np.concatenate([x, numbers(rng, 6000)]), np.concatenate([y, numbers(rng, 6000)])
    *_, got = vec(Vop[name], 0, 0, 0, bits(x), bits(y))
    expected = bits(ORACLES[name](x, y))
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), [(x[i], y[i], hex(got[i]), hex(expected[i])) for i in wrong[:5]]


def test_selection_has_the_bits_of_python(rng: np.random.Generator, vec: Probe) -> None:
    """SELZ compares with the constant, zeros of both signs and NaN included."""
    x, y = pairs(rng, 100)
    for imm in (0.0, -0.0, 1e-40, 1.0, np.nan, float(y[-1])):
        *_, got = vec(Vop.SELZ, 0, bits(np.float32(imm)), 0, bits(x), bits(y))
        np.testing.assert_array_equal(got, bits(floats.selz(x, y, np.float32(imm))))


def test_conversions_have_the_bits_of_python(rng: np.random.Generator, vec: Probe) -> None:
    """ITOF and QUANT at usual and extreme exponents."""
    x = np.concatenate([pairs(rng, 1000)[0], numbers(rng, 2000)])
    for exponent in (0, 1, 12, -20, 24, 140, -150, -256, 255, int(rng.integers(-256, 256))):
        as_float = bits(floats.itof(bits(x).view(np.int32), exponent))
        as_integer = floats.ftoi(x, exponent) & 0xFFFFFFFF
        np.testing.assert_array_equal(vec(Vop.ITOF, exponent, 0, 0, bits(x))[3], as_float)
        bad, _, integer, _ = vec(0, exponent, 0, QUANT, bits(x))
        np.testing.assert_array_equal(integer, as_integer)
        np.testing.assert_array_equal(bad, ~np.isfinite(x))


@pytest.mark.parametrize("flags", [X_IMM, Y_IMM, X_ABS, X_NEG, Y_ABS, Y_NEG, X_ABS | X_NEG, 252])
def test_operands_are_prepared(rng: np.random.Generator, vec: Probe, flags: int) -> None:
    """Constants take an operand's place, then its sign is cleared, then turned."""
    x, y = (bits(v) for v in pairs(rng, 300))
    imm = int(rng.integers(0, 1 << 32))
    *_, got = vec(Vop.ADD, 0, imm, flags, x, y)
    operands = []
    for word, use, clear, turn in ((x, X_IMM, X_ABS, X_NEG), (y, Y_IMM, Y_ABS, Y_NEG)):
        word = np.full_like(word, imm) if flags & use else word
        word = word & 0x7FFFFFFF if flags & clear else word
        operands.append((word ^ 0x80000000 if flags & turn else word).view(np.float32))
    np.testing.assert_array_equal(got, bits(floats.add(*operands)))


def test_predicates_choose_lanes(rng: np.random.Generator, vec: Probe) -> None:
    """Always, where y is not zero, where y is the constant; y itself is then never the constant."""
    x, y = pairs(rng, 100)
    canonical = floats.canonical(y)
    assert vec(0, 0, 0, 0, bits(x), bits(y))[1].all()
    np.testing.assert_array_equal(vec(0, 0, 0, 1, bits(x), bits(y))[1], canonical != 0)
    for imm in (0.0, 1.0, np.nan, float(y[40])):
        word = bits(np.float32(imm))
        for flags in (2, 2 | Y_IMM):
            got = vec(0, 0, word, flags, bits(x), bits(y))[1]
            np.testing.assert_array_equal(got, canonical == floats.canonical(np.float32(imm)))


def test_update_has_the_bits_of_python(rng: np.random.Generator, tmp_path: Path) -> None:
    """Adam, averaging and integer copies, of ordinary parameters and of any bits."""
    lane = Probe(ADAM, tmp_path, 17, 8)
    usual = np.array([0.9, 0.1, 0.999, 0.001, 1e-3, 1e-8, 0.005, 0.995, 1 / 64], np.float32)
    for flags in (0, 1, 2, 3, 3, 3):
        some = rng.integers(0, 1 << 32, 9, dtype=np.uint32).view(np.float32)
        k = np.where(rng.random(9) < 0.1, some, usual).astype(np.float32)
        values = [np.concatenate([pairs(rng, 200)[0], numbers(rng, 2000)]) for _ in range(4)]
        w, t, m, s = (rng.permutation(v)[:5000] for v in values)
        s = np.where(rng.random(5000) < 0.9, np.abs(s), s).astype(np.float32)
        g = rng.integers(-(1 << 31), 1 << 31, 5000) >> rng.integers(0, 31, 5000)
        e_g, e_w, e_t = 20, int(rng.integers(0, 40)), int(rng.integers(-256, 256))
        control = flags | (e_g & 511) << 2 | (e_w & 511) << 11 | (e_t & 511) << 20
        got = lane(control, *bits(k), *(bits(v) for v in (w, t, m, s)), g)
        adam, average = bool(flags & 1), bool(flags & 2)
        new = floats.adam(w, t, m, s, g, k, e_g=e_g, adam=adam, average=average)
        wholes = [floats.ftoi(new[0], e_w, 48), floats.ftoi(new[1], e_t, 48)]
        for i, whole in enumerate(wholes):
            integer = got[2 * i].astype(np.int64) | got[2 * i + 1].astype(np.int64) << 32
            np.testing.assert_array_equal(integer, whole)
        for actual, expected in zip(got[4:], new, strict=True):
            np.testing.assert_array_equal(actual, bits(expected))
