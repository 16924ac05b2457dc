# SPDX-License-Identifier: MIT
"""One lowering rule an ATen operation: takes the call, returns the value of its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from copal.program.lowering import ROW_HINT, Call
from copal.program.values import Const, Rows, Summed, Transposed, Value

Rule = Callable[[Call], Any]

RULES: dict[str, Rule] = {}


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Registers the rule of the ATen operations `kinds`."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


def elementwise(call: Call, emit: Callable[..., str], *operands: Any) -> Rows:
    """Broadcasts `operands` to the result's shape and emits on their buffers."""
    # A constant with a row axis spreads a parameter over the rows.
    per_row = any(isinstance(v, Rows | Const) and call.has_rows(v) for v in operands)
    for value in operands:
        if isinstance(value, Summed | Transposed):
            call.rows(value)
    shape = call.shape[1:] if per_row else call.shape
    if per_row and not call.shape:
        raise call.refuse("removes the row axis", ROW_HINT)
    return Rows(emit(*(call.operand(v, shape, per_row) for v in operands)), shape, per_row)


def number_of(value: Any) -> Fraction | None:
    """The number that a constant holds everywhere, None if `value` is something else."""
    if isinstance(value, Const) and value.tensor.numel() > 0:
        first = value.tensor.flatten()[0]
        if bool((value.tensor == first).all()):
            value = first.item()
    if isinstance(value, int | float) and float("-inf") < value < float("inf"):
        return Fraction(value)
    return None


# Arithmetic


@rule("add", "sub")
def _add(call: Call) -> Value:
    x, y, alpha = call["self"], call["other"], call["alpha"]
    if isinstance(x, Summed) or isinstance(y, Summed):
        return _add_summed(call, x, y, Fraction(alpha) * (-1 if call.kind == "sub" else 1))
    if alpha != 1:
        scaled = elementwise(
            call, lambda b: call.builder.emit("mul", b, call.builder.const(alpha)), y
        )
        return elementwise(call, lambda a, b: call.builder.emit(call.kind, a, b), x, scaled)
    return elementwise(call, lambda a, b: call.builder.emit(call.kind, a, b), x, y)


@rule("rsub")
def _rsub(call: Call) -> Value:
    if call["alpha"] != 1:
        raise call.refuse("scales by `alpha`")
    x, y = call["other"], call["self"]
    return elementwise(call, lambda a, b: call.builder.emit("sub", a, b), x, y)


def _add_summed(call: Call, x: Any, y: Any, factor: Fraction) -> Summed:
    if number_of(y) == 0 and isinstance(x, Summed):
        return x
    if number_of(x) == 0 and isinstance(y, Summed):
        return y.scaled(factor)
    if isinstance(x, Summed) and isinstance(y, Summed) and x.shape == y.shape:
        return Summed((*x.terms, *y.scaled(factor).terms), x.shape)
    if any(isinstance(v, Rows) and v.per_row for v in (x, y)):
        raise call.refuse("combines each row with a sum or mean over the rows", ROW_HINT)
    raise call.refuse(
        "adds something that no row contributes to", "add it to the loss of each row instead"
    )


@rule("mul")
def _mul(call: Call) -> Value:
    x, y = call["self"], call["other"]
    if isinstance(y, Summed):
        x, y = y, x
    if isinstance(x, Summed):
        return _scale_summed(call, x, y, "mul")
    return elementwise(call, lambda a, b: call.builder.emit("mul", a, b), x, y)


@rule("div")
def _div(call: Call) -> Value:
    x, y = call["self"], call["other"]
    if call.args.get("rounding_mode") is not None:
        raise call.refuse("rounds")
    if isinstance(x, Summed):
        return _scale_summed(call, x, y, "div")
    return elementwise(call, lambda a, b: call.builder.emit("div", a, b), x, y)


def _scale_summed(call: Call, x: Summed, y: Any, kind: str) -> Summed:
    number = number_of(y)
    if number is not None and (number != 0 or kind == "mul"):
        return x.scaled(number if kind == "mul" else 1 / number)
    factor = call.float_rows(y)
    if factor.per_row or (factor.width != 1 and (factor.shape != x.shape or _outer(x))):
        raise call.refuse("multiplies rows with a sum or mean over rows", ROW_HINT)
    terms = (replace(t, x=call.builder.emit(kind, t.x, factor.buffer)) for t in x.terms)
    return Summed(tuple(terms), x.shape)


def _outer(x: Summed) -> bool:
    return any(t.y is not None for t in x.terms)


@rule("neg")
def _neg(call: Call) -> Value:
    x = call["self"]
    if isinstance(x, Summed):
        return x.scaled(Fraction(-1))
    return elementwise(call, lambda a: call.builder.emit("neg", a), x)


@rule("abs", "exp", "log", "tanh", "sqrt", "relu")
def _unary(call: Call) -> Value:
    return elementwise(call, lambda a: call.builder.emit(call.kind, a), call["self"])


@rule("sign", "sgn")
def _sign(call: Call) -> Value:
    return elementwise(call, lambda a: call.builder.emit("sign", a), call["self"])


# Comparison and choice


@rule("minimum", "maximum")
def _extreme(call: Call) -> Value:
    return elementwise(
        call, lambda a, b: call.builder.emit(call.kind, a, b), call["self"], call["other"]
    )


@rule("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(call: Call) -> Value:
    b = call.builder
    low = call.args.get("min", call.args.get("min_val"))
    high = call.args.get("max", call.args.get("max_val"))
    result = call["self"]
    for kind, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            result = elementwise(call, lambda x, y, k=kind: b.emit(k, x, y), result, bound)
    return result  # type: ignore[no-any-return]


@rule("lt", "le", "gt", "ge")
def _order(call: Call) -> Value:
    kind = "less" if call.kind in {"lt", "gt"} else "less_equal"
    x, y = call["self"], call["other"]
    if call.kind in {"gt", "ge"}:
        x, y = y, x
    return elementwise(call, lambda a, b: call.builder.emit(kind, a, b), x, y)


@rule("eq", "ne")
def _equal(call: Call) -> Value:
    b = call.builder
    one_hot = _one_hot(call)
    if one_hot is not None:
        return one_hot
    never = _never_equal(call)
    if never is not None:
        return never

    def compare(x: str, y: str) -> str:
        same = b.emit("equal", x, y)
        return same if call.kind == "eq" else b.emit("sub", b.const(1), same)

    return elementwise(call, compare, call["self"], call["other"])


def _one_hot(call: Call) -> Rows | None:
    """`index[:, None] == arange(width)`, the comparison that `one_hot` becomes."""
    index, columns = call["self"], call["other"]
    if isinstance(index, Const):
        index, columns = columns, index
    if call.kind != "eq" or not isinstance(index, Rows) or not isinstance(columns, Const):
        return None
    width = columns.tensor.numel()
    if call.builder.buffer(index.buffer).dtype != "int32" or call.shape[1:] != (width,):
        return None
    if columns.tensor.flatten().tolist() != list(range(width)):
        return None
    one = call.builder.const(1)
    return Rows(call.builder.emit("scatter", one, index.buffer, width=width), (width,))


def _never_equal(call: Call) -> Const | None:
    """An index compared with a negative number, as `cross_entropy` does to leave rows out."""
    index, number = call["self"], number_of(call["other"])
    if not isinstance(index, Rows) or number is None or number >= 0:
        return None
    if call.builder.buffer(index.buffer).dtype != "int32":
        return None
    return Const(torch.full(call.shape, call.kind == "ne"))


@rule("where")
def _where(call: Call) -> Value:
    condition, x, y = call["condition"], call["self"], call["other"]
    if isinstance(condition, Const) and number_of(condition) is not None:
        chosen = x if bool(condition.tensor.flatten()[0]) else y
        if isinstance(chosen, Const):
            return Const(chosen.tensor.expand(call.shape))
        if isinstance(chosen, Rows) and chosen.per_row and chosen.shape == call.shape[1:]:
            return chosen
        return elementwise(call, lambda a: a, chosen)
    return elementwise(call, lambda *abc: _choose(call, *abc), condition, x, y)


def _choose(call: Call, condition: str, x: str, y: str) -> str:
    b = call.builder
    parts = b.parts_of(condition)
    choice = [b.constant_of(p) for p in parts]
    if None in choice or len(parts) != math.prod(call.shape[1:]):
        return b.emit("where", condition, x, y)
    # A fixed choice of columns, as the gradient of `q[:, 1]` makes, is a concatenation.
    columns = [(x if chosen else y, i) for i, chosen in enumerate(choice)]
    return b.emit(
        "concat",
        *(c if b.width(c) == 1 else b.emit("slice", c, start=i, stop=i + 1) for c, i in columns),
    )


@rule("logical_and", "bitwise_and")
def _and(call: Call) -> Value:
    return elementwise(
        call, lambda a, b: call.builder.emit("mul", a, b), call["self"], call["other"]
    )


@rule("logical_or", "bitwise_or")
def _or(call: Call) -> Value:
    return elementwise(
        call, lambda a, b: call.builder.emit("maximum", a, b), call["self"], call["other"]
    )


@rule("logical_not", "bitwise_not")
def _not(call: Call) -> Value:
    b = call.builder
    return elementwise(call, lambda a: b.emit("equal", a, b.const(0)), call["self"])


@rule("logical_xor", "bitwise_xor")
def _xor(call: Call) -> Value:
    b = call.builder
    return elementwise(
        call, lambda x, y: b.emit("abs", b.emit("sub", x, y)), call["self"], call["other"]
    )
