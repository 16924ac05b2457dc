# SPDX-License-Identifier: MIT
"""One lowering rule an ATen operation: takes the call, returns the value of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from copal.program.lowering import ROW_HINT, Call
from copal.program.values import Const, Parameter, Rows, Summed, Term, Transposed, Value

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
    per_row = any(isinstance(v, Rows) and v.per_row for v in operands)
    for value in operands:
        if isinstance(value, Summed | Transposed):
            call.rows(value)
    shape = call.shape[1:] if per_row else call.shape
    if per_row and not call.shape:
        raise call.refuse("removes the row axis", ROW_HINT)
    return Rows(emit(*(call.operand(v, shape, per_row) for v in operands)), shape, per_row)


def _number(value: Any) -> Fraction | None:
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
    if _number(y) == 0 and isinstance(x, Summed):
        return x
    if _number(x) == 0 and isinstance(y, Summed):
        return y.scaled(factor)
    if isinstance(x, Summed) and isinstance(y, Summed) and x.shape == y.shape:
        return Summed((*x.terms, *y.scaled(factor).terms), x.shape)
    raise call.refuse(
        "adds something that is not summed over rows to a sum or mean over rows",
        "add it to the loss of each row instead",
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
    number = _number(y)
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


@rule("log1p")
def _log1p(call: Call) -> Value:
    b = call.builder
    return elementwise(call, lambda a: b.emit("log", b.emit("add", a, b.const(1))), call["self"])


@rule("reciprocal")
def _reciprocal(call: Call) -> Value:
    b = call.builder
    return elementwise(call, lambda a: b.emit("div", b.const(1), a), call["self"])


@rule("rsqrt")
def _rsqrt(call: Call) -> Value:
    b = call.builder
    return elementwise(call, lambda a: b.emit("div", b.const(1), b.emit("sqrt", a)), call["self"])


@rule("sigmoid")
def _sigmoid(call: Call) -> Value:
    b = call.builder

    def logistic(a: str) -> str:
        # Half of 1 + tanh(a / 2) cannot overflow, as 1 / (1 + exp(-a)) can.
        half = b.const(0.5)
        return b.emit("add", half, b.emit("mul", half, b.emit("tanh", b.emit("mul", half, a))))

    return elementwise(call, logistic, call["self"])


@rule("leaky_relu")
def _leaky_relu(call: Call) -> Value:
    b = call.builder
    slope = b.const(call["negative_slope"])

    def leaky(a: str) -> str:
        return b.emit("where", b.emit("less", b.const(0), a), a, b.emit("mul", a, slope))

    return elementwise(call, leaky, call["self"])


@rule("elu")
def _elu(call: Call) -> Value:
    b = call.builder
    negative, positive, slope = (float(call[n]) for n in ("alpha", "scale", "input_scale"))

    def elu(a: str) -> str:
        # The minimum keeps the unused branch finite.
        low = b.emit("mul", b.emit("minimum", a, b.const(0)), b.const(slope))
        below = b.emit(
            "mul", b.emit("sub", b.emit("exp", low), b.const(1)), b.const(negative * positive)
        )
        above = b.emit("mul", a, b.const(positive))
        return b.emit("where", b.emit("less", b.const(0), a), above, below)

    return elementwise(call, elu, call["self"])


@rule("pow")
def _pow(call: Call) -> Value:
    b = call.builder
    exponent = _number(call.args.get("exponent"))
    if exponent is None or isinstance(call["self"], int | float | Const):
        raise call.refuse("has a power that is not a plain number")

    def whole(a: str, n: int) -> str:
        result = a
        for _ in range(n - 1):
            result = b.emit("mul", result, a)
        return result

    def power(a: str) -> str:
        size = abs(exponent)
        if size == 0:
            return b.const(1)
        if size == Fraction(1, 2):
            result = b.emit("sqrt", a)
        elif size.denominator == 1 and size <= 8:
            result = whole(a, int(size))
        else:
            raise call.refuse(f"raises to the power {float(exponent)}", "0.5 and 0 to 8 are known")
        return result if exponent > 0 else b.emit("div", b.const(1), result)

    return elementwise(call, power, call["self"])


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


@rule("where")
def _where(call: Call) -> Value:
    condition, x, y = call["condition"], call["self"], call["other"]
    if isinstance(condition, Const) and _number(condition) is not None:
        chosen = x if bool(condition.tensor.flatten()[0]) else y
        return elementwise(call, lambda a: a, chosen)
    return elementwise(call, lambda *abc: call.builder.emit("where", *abc), condition, x, y)


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


# Sums and extremes along a row


def _reduced(call: Call, x: Rows) -> tuple[bool, bool]:
    """Whether the call reduces over rows, and whether over the columns."""
    axes = len(x.shape) + x.per_row
    dim = call.args.get("dim")
    dim = [dim] if isinstance(dim, int) else dim
    chosen = {d % axes for d in dim} if dim and axes else set(range(axes))
    rows = x.per_row and 0 in chosen
    columns = chosen - {0} if x.per_row else chosen
    if columns and len(columns) != len(x.shape):
        raise call.refuse("reduces some of the columns' axes")
    return rows, bool(columns)


@rule("sum", "mean")
def _sum(call: Call) -> Value:
    if isinstance(call["self"], Summed):
        if not call["self"].shape:
            return call["self"]
        raise call.refuse("reduces a sum over rows")
    b = call.builder
    x = call.float_rows(call["self"])
    over_rows, over_columns = _reduced(call, x)
    buffer = b.emit("row_sum", call.full(x)) if over_columns else call.full(x)
    size = x.width if over_columns else 1
    if over_rows:
        whole = Summed((Term(buffer),), call.shape)
        return whole.scaled(Fraction(1, size * _batch_size(call))) if call.kind == "mean" else whole
    if call.kind == "mean":
        buffer = b.emit("div", buffer, b.const(size))
    return Rows(buffer, call.shape[x.per_row :], x.per_row)


def _batch_size(call: Call) -> int:
    return int(call.node.all_input_nodes[0].meta["val"].shape[0])


def _along_row(call: Call) -> Rows:
    x = call.float_rows(call["self"])
    over_rows, over_columns = _reduced(call, x)
    if over_rows or not (over_columns and x.per_row):
        raise call.refuse("compares the rows of a batch with each other", ROW_HINT)
    return x


@rule("amax", "amin")
def _amax(call: Call) -> Value:
    b, x = call.builder, _along_row(call)
    if call.kind == "amin":
        smallest = b.emit("neg", b.emit("row_max", b.emit("neg", call.full(x))))
        return Rows(smallest, call.shape[1:])
    return Rows(b.emit("row_max", x.buffer), call.shape[1:])


@rule("argmax")
def _argmax(call: Call) -> Value:
    x = _along_row(call)
    return Rows(call.builder.emit("row_argmax", call.full(x)), call.shape[1:])


@rule("max")
def _max(call: Call) -> Any:
    x = _along_row(call)
    shape = tuple(call.node.meta["val"][0].shape[1:])
    b = call.builder
    largest = Rows(b.emit("row_max", x.buffer), shape)
    return largest, Rows(b.emit("row_argmax", call.full(x)), shape)


@rule("linalg_vector_norm")
def _norm(call: Call) -> Value:
    b, x = call.builder, _along_row(call)
    if call["ord"] != 2:
        raise call.refuse(f"is a norm of order {call['ord']}", "order 2 is known")
    full = call.full(x)
    return Rows(b.emit("sqrt", b.emit("row_sum", b.emit("mul", full, full))), call.shape[1:])


@rule("_softmax", "_log_softmax")
def _softmax(call: Call) -> Value:
    b, x = call.builder, _along_row(call)
    shifted = b.emit("sub", call.full(x), b.emit("row_max", call.full(x)))
    powers = b.emit("exp", shifted)
    total = b.emit("row_sum", powers)
    if call.kind == "_softmax":
        return Rows(b.emit("div", powers, total), call.shape[1:])
    return Rows(b.emit("sub", shifted, b.emit("log", total)), call.shape[1:])


# Indexing


def _index(call: Call, value: Value) -> Rows:
    index = call.rows(value)
    if call.builder.buffer(index.buffer).dtype != "int32" or index.width != 1:
        raise call.refuse("needs one integer index a row", "use an int32 input, or an argmax")
    return index


def _along_columns(call: Call, x_axes: int) -> None:
    if x_axes != 1 or call["dim"] % 2 != 1:
        raise call.refuse("indexes the rows of a batch", ROW_HINT)


@rule("gather")
def _gather(call: Call) -> Value:
    x, index = call.float_rows(call["self"]), _index(call, call["index"])
    _along_columns(call, len(x.shape))
    return Rows(call.builder.emit("gather", call.full(x), index.buffer), call.shape[1:])


@rule("scatter", "scatter_add")
def _scatter(call: Call) -> Value:
    b, index = call.builder, _index(call, call["index"])
    _along_columns(call, len(call.shape) - 1)
    if call.args.get("reduce") is not None:
        raise call.refuse("reduces while it scatters")
    source = call.args.get("src", call.args.get("value"))
    spread = b.emit("scatter", call.operand(source, (1,), True), index.buffer, width=call.shape[1])
    return _scattered(call, spread, call.kind == "scatter_add")


def _scattered(call: Call, spread: str, accumulate: bool) -> Rows:
    b, base, shape = call.builder, call["self"], call.shape[1:]
    if _number(base) == 0:
        return Rows(spread, shape)
    if not accumulate:
        raise call.refuse("overwrites one column of each row")
    return Rows(b.emit("add", call.operand(base, shape, True), spread), shape)


def _row_and_column(call: Call) -> Rows:
    """The column of an index pair `[arange(B), column]`."""
    indices = call["indices"]
    if len(indices) != 2 or not isinstance(indices[0], Const):
        raise call.refuse("indexes the rows of a batch", ROW_HINT)
    if indices[0].tensor.tolist() != list(range(indices[0].tensor.numel())):
        raise call.refuse("indexes the rows of a batch out of their order", ROW_HINT)
    return _index(call, indices[1])


@rule("index")
def _index_rows(call: Call) -> Value:
    x, column = call.float_rows(call["self"]), _row_and_column(call)
    return Rows(call.builder.emit("gather", call.full(x), column.buffer), call.shape[1:])


@rule("index_put")
def _index_put(call: Call) -> Value:
    column = _row_and_column(call)
    values = call.operand(call["values"], (), True)
    spread = call.builder.emit("scatter", values, column.buffer, width=call.shape[1])
    return _scattered(call, spread, bool(call["accumulate"]))
