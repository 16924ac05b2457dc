# SPDX-License-Identifier: MIT
"""Lowering rules that pick, join, repeat and overwrite columns of each row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from copal.program.columns import Positions, pick, positions_of, unpick
from copal.program.lowering import ROW_HINT, Call
from copal.program.rules import rule
from copal.program.values import Const, Rows, Value


def column_axis(call: Call, x: Rows) -> int:
    """The column axis that the call's `dim` names."""
    axis = int(call["dim"]) % (len(x.shape) + x.per_row)
    if x.per_row and axis == 0:
        raise call.refuse("picks rows of a batch", ROW_HINT)
    return axis - x.per_row


def _along(axis: int, what: Any) -> tuple[Any, ...]:
    return (*([slice(None)] * axis), what)


@rule("slice")
def _slice(call: Call) -> Value:
    x = call.rows(call["self"])
    if call.shape == tuple(call.node.all_input_nodes[0].meta["val"].shape):
        return x
    part = slice(call["start"], call["end"], call["step"])
    return pick(call.builder, x, positions_of(x.shape)[_along(column_axis(call, x), part)])


@rule("select")
def _select(call: Call) -> Value:
    x = call.rows(call["self"])
    index = int(call["index"])
    chosen = positions_of(x.shape)[_along(column_axis(call, x), index)]
    return pick(call.builder, x, np.asarray(chosen))


@rule("split", "split_with_sizes", "chunk", "unbind")
def _split(call: Call) -> Any:
    x = call.float_rows(call["self"])
    axis = column_axis(call, x)
    pieces: list[Rows] = []
    start = 0
    for piece in call.node.meta["val"]:
        shape = tuple(piece.shape[x.per_row :])
        length = shape[axis] if len(shape) == len(x.shape) else 1
        own = positions_of(x.shape)[_along(axis, slice(start, start + length))]
        pieces.append(pick(call.builder, x, own.reshape(shape)))
        start += length
    return pieces


@rule("flip")
def _flip(call: Call) -> Value:
    x = call.float_rows(call["self"])
    dims = [d % len(call.shape) - x.per_row for d in call["dims"]]
    if any(d < 0 for d in dims):
        raise call.refuse("reverses the rows of a batch", ROW_HINT)
    return pick(call.builder, x, np.flip(positions_of(x.shape), tuple(dims)))


@rule("index_select")
def _index_select(call: Call) -> Value:
    x, index = call.float_rows(call["self"]), call["index"]
    axis = column_axis(call, x)
    if not isinstance(index, Const):
        raise call.refuse("picks the same columns for all rows by an index that varies", ROW_HINT)
    return pick(call.builder, x, positions_of(x.shape).take(index.tensor.numpy(), axis))


@rule("repeat")
def _repeat(call: Call) -> Value:
    x, repeats = call.float_rows(call["self"]), list(call["repeats"])
    if not x.per_row or len(repeats) != len(x.shape) + 1 or repeats[0] != 1:
        raise call.refuse("repeats the rows of a batch", ROW_HINT)
    return pick(call.builder, x, np.tile(positions_of(x.shape), repeats[1:]))


@rule("constant_pad_nd")
def _pad(call: Call) -> Value:
    x, pad = call.float_rows(call["self"]), list(call["pad"])
    if not x.per_row or len(pad) > 2 * len(x.shape) or max(pad) * min(pad) < 0:
        raise call.refuse("pads the rows of a batch, or pads and crops at once", ROW_HINT)
    last_axis_first = list(zip(pad[::2], pad[1::2], strict=True))
    widths = [(0, 0)] * (len(x.shape) - len(last_axis_first)) + last_axis_first[::-1]
    positions = positions_of(x.shape)
    if min(pad) < 0:
        ends = zip(x.shape, widths, strict=True)
        return pick(call.builder, x, positions[tuple(slice(-a, n + b) for n, (a, b) in ends)])
    padded = np.pad(positions, widths, constant_values=-1)
    return pick(call.builder, x, padded, float(call["value"]))


@rule("cat")
def _cat(call: Call) -> Value:
    axis = call["dim"] % len(call.shape) - 1
    if axis < 0:
        raise call.refuse(
            "puts batches below each other", "stack or concatenate along dim 1: rows come first"
        )
    nodes = call.node.args[0]
    assert isinstance(nodes, list | tuple)
    shapes = [tuple(n.meta["val"].shape)[1:] for n in nodes]  # type: ignore[union-attr]
    return _joined(call, list(zip(call["tensors"], shapes, strict=True)), axis)


def _joined(call: Call, parts: list[tuple[Any, tuple[int, ...]]], axis: int) -> Rows:
    """Values of the given column shapes, side by side along one column axis."""
    b = call.builder
    parts = [(v, s) for v, s in parts if math.prod(s)]
    buffers = [b.widen(call.operand(v, s, True), math.prod(s)) for v, s in parts]
    starts = np.cumsum([0, *(math.prod(s) for _, s in parts)])
    blocks = [positions_of(s) + start for (_, s), start in zip(parts, starts, strict=False)]
    positions = np.concatenate(blocks, axis)
    return pick(b, Rows(b.emit("concat", *buffers), positions.shape), positions)


# Overwriting: what the gradient of a pick becomes.


def overwritten(call: Call, base: Any, source: Any, positions: Positions) -> Rows:
    """`base` with its columns at `positions` replaced by those of `source`."""
    shape = call.shape[1:]
    width = math.prod(shape)
    kept = call.builder.widen(call.operand(base, shape, True), width)
    new = call.builder.widen(call.operand(source, positions.shape, True), positions.size)
    both = Rows(call.builder.emit("concat", kept, new), (width + positions.size,))
    order = np.arange(width)
    order[positions.ravel()] = width + np.arange(positions.size)
    return pick(call.builder, both, order.reshape(shape))


@rule("slice_scatter")
def _slice_scatter(call: Call) -> Value:
    axis = _written_axis(call)
    part = slice(call["start"], call["end"], call["step"])
    positions = positions_of(call.shape[1:])[_along(axis, part)]
    return overwritten(call, call["self"], call["src"], positions)


@rule("select_scatter")
def _select_scatter(call: Call) -> Value:
    axis = _written_axis(call)
    positions = np.asarray(positions_of(call.shape[1:])[_along(axis, int(call["index"]))])
    return overwritten(call, call["self"], call["src"], positions)


def _written_axis(call: Call) -> int:
    axis = int(call["dim"]) % len(call.shape) - 1
    if axis < 0:
        raise call.refuse("overwrites rows of a batch", ROW_HINT)
    return axis


@rule("index_add")
def _index_add(call: Call) -> Value:
    axis, index = _written_axis(call), call["index"]
    if not isinstance(index, Const) or call["alpha"] != 1:
        raise call.refuse("adds columns at an index that varies", ROW_HINT)
    b, shape = call.builder, call.shape[1:]
    positions = positions_of(shape).take(index.tensor.numpy(), axis)
    added = unpick(b, call.float_rows(call["source"]), positions, shape)
    base = call.operand(call["self"], shape, True)
    return Rows(b.emit("add", base, added.buffer), shape)
