# SPDX-License-Identifier: MIT
"""Lowering rules of sums, extremes and indexing along the columns of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from copal.program.columns import broadcast, choose, column_axes, pick, place, positions_of, reduce
from copal.program.columns import unpick as add_at
from copal.program.lowering import ROW_HINT, Call
from copal.program.rules import number_of, rule
from copal.program.values import Const, Rows, Summed, Term, Value


def _size(x: Rows, axes: Sequence[int]) -> int:
    return math.prod(x.shape[a] for a in axes)


@rule("sum", "mean")
def _sum(call: Call) -> Value:
    if isinstance(call["self"], Summed):
        if not call["self"].shape:
            return call["self"]
        raise call.refuse("reduces a sum over rows")
    b = call.builder
    x = call.float_rows(call["self"])
    axes, over_rows = column_axes(x, call.args.get("dim"))
    buffer = reduce(b, x, axes, "sum") if axes else call.full(x)
    size = _size(x, axes)
    if over_rows:
        whole = Summed((Term(buffer),), call.shape)
        return whole.scaled(Fraction(1, size * call.batch_size)) if call.kind == "mean" else whole
    if call.kind == "mean":
        buffer = b.emit("div", buffer, b.const(size))
    return Rows(buffer, call.shape[x.per_row :], x.per_row)


def along_row(call: Call) -> tuple[Rows, list[int]]:
    """The row tensor that a call reduces, and over which of its column axes."""
    x = call.float_rows(call["self"])
    axes, over_rows = column_axes(x, call.args.get("dim"))
    if over_rows or not (axes and x.per_row):
        raise call.refuse("compares the rows of a batch with each other", ROW_HINT)
    return x, axes


def largest(call: Call, x: Rows, axes: Sequence[int], smallest: bool = False) -> str:
    """The buffer of the largest, or the smallest, element along some column axes."""
    b = call.builder
    if not smallest:
        return reduce(b, x, axes, "max")
    negative = replace(x, buffer=b.emit("neg", x.buffer))
    return b.emit("neg", reduce(b, negative, axes, "max"))


@rule("amax", "amin")
def _amax(call: Call) -> Value:
    x, axes = along_row(call)
    return Rows(largest(call, x, axes, call.kind == "amin"), call.shape[1:])


@rule("any", "all")
def _any(call: Call) -> Value:
    x, axes = along_row(call)
    truth = replace(x, buffer=_truth(call, x.buffer))
    return Rows(largest(call, truth, axes, call.kind == "all"), call.shape[1:])


def _truth(call: Call, x: str) -> str:
    b = call.builder
    return b.emit("sub", b.const(1), b.emit("equal", x, b.const(0)))


def _position(call: Call, x: Rows, axes: Sequence[int], smallest: bool) -> str:
    if _size(x, axes) != x.width:
        raise call.refuse(
            "finds several indices in each row",
            "use amax(dim) for the values: a row has one index at most",
        )
    full = call.full(x)
    return call.builder.emit("row_argmax", call.builder.emit("neg", full) if smallest else full)


@rule("argmax", "argmin")
def _argmax(call: Call) -> Value:
    x, axes = along_row(call)
    return Rows(_position(call, x, axes, call.kind == "argmin"), call.shape[1:])


@rule("max", "min")
def _max(call: Call) -> Any:
    x, axes = along_row(call)
    shape = tuple(call.node.meta["val"][0].shape[1:])
    smallest = call.kind == "min"
    values = Rows(largest(call, x, axes, smallest), shape)
    return values, Rows(_position(call, x, axes, smallest), shape)


@rule("linalg_vector_norm")
def _norm(call: Call) -> Value:
    b = call.builder
    x, axes = along_row(call)
    order = call["ord"]
    if order == 2:
        squares = replace(x, buffer=b.emit("mul", x.buffer, x.buffer))
        return Rows(b.emit("sqrt", reduce(b, squares, axes, "sum")), call.shape[1:])
    sizes = replace(x, buffer=b.emit("abs", x.buffer))
    if order == 1:
        return Rows(reduce(b, sizes, axes, "sum"), call.shape[1:])
    if order == math.inf:
        return Rows(reduce(b, sizes, axes, "max"), call.shape[1:])
    raise call.refuse(f"is a norm of order {order}", "orders 1, 2 and infinity are known")


@rule("_softmax", "_log_softmax")
def _softmax(call: Call) -> Value:
    b = call.builder
    x, axes = along_row(call)
    left = [1 if a in axes else n for a, n in enumerate(x.shape)]

    def spread(buffer: str) -> str:
        return broadcast(b, Rows(buffer, tuple(left)), x.shape).buffer

    shifted = b.emit("sub", call.full(x), spread(reduce(b, x, axes, "max")))
    powers = b.emit("exp", shifted)
    total = reduce(b, replace(x, buffer=powers), axes, "sum")
    if call.kind == "_softmax":
        return Rows(b.emit("div", powers, spread(total)), call.shape[1:])
    return Rows(b.emit("sub", shifted, spread(b.emit("log", total))), call.shape[1:])


@rule("var", "var_mean")
def _var(call: Call) -> Any:
    b = call.builder
    x, axes = along_row(call)
    size = _size(x, axes)
    correction = call.args.get("correction")
    freedom = size - (1 if correction is None else correction)
    if freedom <= 0:
        raise call.refuse("is a variance of too few numbers", "pass correction=0")
    left = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    mean = b.emit("div", reduce(b, x, axes, "sum"), b.const(size))
    spread = broadcast(b, Rows(mean, left), x.shape).buffer
    centred = b.emit("sub", call.full(x), spread)
    squares = replace(x, buffer=b.emit("mul", centred, centred))
    variance = b.emit("div", reduce(b, squares, axes, "sum"), b.const(freedom))
    if call.kind == "var":
        return Rows(variance, call.shape[1:])
    shape = tuple(call.node.meta["val"][0].shape[1:])
    return Rows(variance, shape), Rows(mean, shape)


@rule("cumsum")
def _cumsum(call: Call) -> Value:
    b = call.builder
    x, axes = along_row(call)
    positions = positions_of(x.shape)
    running = [pick(b, x, positions.take([0], axes[0]))]
    for i in range(1, x.shape[axes[0]]):
        part = pick(b, x, positions.take([i], axes[0]))
        total = b.emit("add", call.full(running[-1]), call.full(part))
        running.append(replace(part, buffer=total))
    rest = tuple(n for a, n in enumerate(x.shape) if a != axes[0])
    buffer = b.emit("concat", *(call.full(r) for r in running))
    stacked = Rows(buffer, (len(running), *rest))
    return pick(b, stacked, np.moveaxis(positions_of(stacked.shape), 0, axes[0]))


# Indexing by one integer a row


def _index(call: Call, value: Value) -> Rows:
    index = call.rows(value)
    buffer = call.builder.buffer(index.buffer)
    if buffer.dtype != "int32" or buffer.width != 1:
        raise call.refuse("needs one integer index a row", "use an int32 input, or an argmax")
    return index


def _indexed_axis(call: Call, x: Rows, index: Rows) -> int:
    """The column axis of a gather or scatter whose other axes are taken whole."""
    axis = int(call["dim"]) % (len(x.shape) + 1) - 1
    if axis < 0:
        raise call.refuse("indexes the rows of a batch", ROW_HINT)
    others = [
        (n, m) for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if a != axis
    ]
    if any(n != m for n, m in others):
        raise call.refuse("indexes a part of the columns", "give the index all other axes whole")
    return axis


@rule("gather")
def _gather(call: Call) -> Value:
    x, index = call.float_rows(call["self"]), _index(call, call["index"])
    axis = _indexed_axis(call, x, index)
    chosen = choose(call.builder, x, axis, index.buffer)
    left = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    return broadcast(call.builder, Rows(chosen, left), index.shape)


@rule("scatter", "scatter_add")
def _scatter(call: Call) -> Value:
    index, shape = _index(call, call["index"]), call.shape[1:]
    axis = _indexed_axis(call, Rows("", shape), index)
    if call.args.get("reduce") is not None or index.shape[axis] != 1:
        raise call.refuse("reduces while it scatters")
    left = tuple(n for a, n in enumerate(index.shape) if a != axis)
    source = call.operand(call.args.get("src", call.args.get("value")), index.shape, True)
    spread = place(call.builder, Rows(source, left), axis, index.buffer, shape[axis])
    return _scattered(call, spread.buffer, call.kind == "scatter_add")


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


def _fixed_columns(call: Call) -> tuple[Any, ...] | None:
    """Index of the column axes if it is the same in each row: `x[:, [0, 2]]`, else None."""
    indices = call["indices"]
    if indices[0] is not None or not all(i is None or isinstance(i, Const) for i in indices):
        return None
    return tuple(slice(None) if i is None else i.tensor.numpy() for i in indices[1:])


@rule("index")
def _index_rows(call: Call) -> Value:
    x, fixed = call.float_rows(call["self"]), _fixed_columns(call)
    if fixed is not None:
        return pick(call.builder, x, positions_of(x.shape)[fixed])
    column = _row_and_column(call)
    return Rows(choose(call.builder, x, 0, column.buffer), call.shape[1:])


@rule("index_put")
def _index_put(call: Call) -> Value:
    b, fixed, shape = call.builder, _fixed_columns(call), call.shape[1:]
    if fixed is not None:
        positions = positions_of(shape)[fixed]
        source = Rows(call.operand(call["values"], positions.shape, True), positions.shape)
        return _scattered(
            call, add_at(b, source, positions, shape).buffer, bool(call["accumulate"])
        )
    column = _row_and_column(call)
    source = Rows(call.operand(call["values"], shape[1:], True), shape[1:])
    spread = place(b, source, 0, column.buffer, shape[0])
    return _scattered(call, spread.buffer, bool(call["accumulate"]))
