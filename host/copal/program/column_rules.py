# SPDX-License-Identifier: MIT
"""Lowering rules of sums, extremes and indexing along the columns of a row."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from copal.program.lowering import ROW_HINT, Call
from copal.program.rules import number_of, rule
from copal.program.values import Const, Rows, Summed, Term, Value


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
        return whole.scaled(Fraction(1, size * call.batch_size)) if call.kind == "mean" else whole
    if call.kind == "mean":
        buffer = b.emit("div", buffer, b.const(size))
    return Rows(buffer, call.shape[x.per_row :], x.per_row)


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
    if number_of(base) == 0:
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
