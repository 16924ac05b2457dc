# SPDX-License-Identifier: MIT
"""Lowering rules of elementwise functions that are formulas of a Program's operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from copal.program.builder import ProgramBuilder
from copal.program.lowering import Call
from copal.program.rules import elementwise, number_of, rule
from copal.program.values import Const, Value

Formula = Callable[[ProgramBuilder, str], str]


def _formula(kind: str, formula: Formula) -> None:
    """Registers the rule of an elementwise function of one argument."""

    @rule(kind)
    def _rule(call: Call) -> Value:
        return elementwise(call, lambda x: formula(call.builder, x), call["self"])


def _log1p(b: ProgramBuilder, x: str) -> str:
    return b.emit("log", b.emit("add", x, b.const(1)))


def _sigmoid(b: ProgramBuilder, x: str) -> str:
    # Half of 1 + tanh(x / 2) cannot overflow, as 1 / (1 + exp(-x)) can.
    half = b.const(0.5)
    return b.emit("add", half, b.emit("mul", half, b.emit("tanh", b.emit("mul", half, x))))


def _expm1(b: ProgramBuilder, x: str) -> str:
    # 2 t / (1 - t) with t = tanh(x / 2) keeps the digits that exp(x) - 1 loses near 0.
    t = b.emit("tanh", b.emit("mul", x, b.const(0.5)))
    near = b.emit("div", b.emit("add", t, t), b.emit("sub", b.const(1), t))
    far = b.emit("sub", b.emit("exp", x), b.const(1))
    return b.emit("where", b.emit("less", b.emit("abs", x), b.const(0.5)), near, far)


def _half_exponentials(b: ProgramBuilder, x: str) -> tuple[str, str]:
    half = b.const(0.5)
    return b.emit("mul", half, b.emit("exp", x)), b.emit(
        "mul", half, b.emit("exp", b.emit("neg", x))
    )


def _atanh(b: ProgramBuilder, x: str) -> str:
    ratio = b.emit("sub", _log1p(b, x), _log1p(b, b.emit("neg", x)))
    return b.emit("mul", ratio, b.const(0.5))


def _asinh(b: ProgramBuilder, x: str) -> str:
    size = b.emit("abs", x)
    root = b.emit("sqrt", b.emit("add", b.emit("mul", x, x), b.const(1)))
    return b.emit("mul", b.emit("sign", x), b.emit("log", b.emit("add", size, root)))


def _acosh(b: ProgramBuilder, x: str) -> str:
    root = b.emit("sqrt", b.emit("sub", b.emit("mul", x, x), b.const(1)))
    return b.emit("log", b.emit("add", x, root))


def _isnan(b: ProgramBuilder, x: str) -> str:
    return b.emit("sub", b.const(1), b.emit("equal", x, x))


_formula("log1p", _log1p)
_formula("sigmoid", _sigmoid)
_formula("expm1", _expm1)
_formula("reciprocal", lambda b, x: b.emit("div", b.const(1), x))
_formula("rsqrt", lambda b, x: b.emit("div", b.const(1), b.emit("sqrt", x)))
_formula("log2", lambda b, x: b.emit("mul", b.emit("log", x), b.const(1 / math.log(2))))
_formula("log10", lambda b, x: b.emit("mul", b.emit("log", x), b.const(1 / math.log(10))))
_formula("exp2", lambda b, x: b.emit("exp", b.emit("mul", x, b.const(math.log(2)))))
_formula("sinh", lambda b, x: b.emit("sub", *_half_exponentials(b, x)))
_formula("cosh", lambda b, x: b.emit("add", *_half_exponentials(b, x)))
_formula("atanh", _atanh)
_formula("asinh", _asinh)
_formula("acosh", _acosh)
_formula("isnan", _isnan)
_formula("isinf", lambda b, x: b.emit("equal", b.emit("abs", x), b.const(math.inf)))


@rule("leaky_relu")
def _leaky_relu(call: Call) -> Value:
    b = call.builder
    slope = b.const(call["negative_slope"])

    def leaky(x: str) -> str:
        return b.emit("where", b.emit("less", b.const(0), x), x, b.emit("mul", x, slope))

    return elementwise(call, leaky, call["self"])


@rule("elu")
def _elu(call: Call) -> Value:
    b = call.builder
    negative, positive, slope = (float(call[n]) for n in ("alpha", "scale", "input_scale"))

    def elu(x: str) -> str:
        # The minimum keeps the unused branch finite.
        low = b.emit("mul", b.emit("minimum", x, b.const(0)), b.const(slope))
        below = b.emit(
            "mul", b.emit("sub", b.emit("exp", low), b.const(1)), b.const(negative * positive)
        )
        above = b.emit("mul", x, b.const(positive))
        return b.emit("where", b.emit("less", b.const(0), x), above, below)

    return elementwise(call, elu, call["self"])


@rule("gelu")
def _gelu(call: Call) -> Value:
    if call["approximate"] != "tanh":
        raise call.refuse("needs the error function", 'pass approximate="tanh"')
    b = call.builder

    def gelu(x: str) -> str:
        cube = b.emit("mul", b.emit("mul", x, x), x)
        inner = b.emit("add", x, b.emit("mul", cube, b.const(0.044715)))
        t = b.emit("tanh", b.emit("mul", inner, b.const(math.sqrt(2 / math.pi))))
        gate = b.emit("mul", b.emit("add", t, b.const(1)), b.const(0.5))
        return b.emit("mul", x, gate)

    return elementwise(call, gelu, call["self"])


@rule("pow")
def _pow(call: Call) -> Value:
    b, x, exponent = call.builder, call["self"], call["exponent"]
    number = number_of(exponent)
    if number is not None and not isinstance(x, int | float | Const):
        return elementwise(call, lambda a: _power(call, a, number), x)
    base = number_of(x)
    if base is not None and base > 0:
        logarithm = b.const(math.log(base))
        return elementwise(call, lambda a: b.emit("exp", b.emit("mul", a, logarithm)), exponent)
    return elementwise(
        call, lambda a, e: b.emit("exp", b.emit("mul", e, b.emit("log", a))), x, exponent
    )


def _power(call: Call, x: str, exponent: Fraction) -> str:
    b, size = call.builder, abs(exponent)
    if size == 0:
        return b.const(1)
    if size.denominator > 2 or size > 64:
        raise call.refuse(
            f"raises to the power {float(exponent)}", "whole and half powers up to 64 are known"
        )
    factors = [b.emit("sqrt", x)] if size.denominator == 2 else []
    whole, square = int(size), x
    while whole:
        if whole & 1:
            factors.append(square)
        whole >>= 1
        square = b.emit("mul", square, square) if whole else square
    result = factors[0]
    for factor in factors[1:]:
        result = b.emit("mul", result, factor)
    return result if exponent > 0 else b.emit("div", b.const(1), result)
