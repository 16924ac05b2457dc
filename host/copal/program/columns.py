# SPDX-License-Identifier: MIT
"""Picks, spreads and reduces the columns of a row tensor with several column axes.

A row tensor [B, *shape] lies in a buffer of prod(shape) columns. Every view, broadcast or
permutation of its column axes is a list of column positions, so one function lowers them all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.program.builder import ProgramBuilder
from copal.program.values import Rows

#: Column positions, in the shape of the tensor that they make up; -1 stands for a fill value.
Positions = NDArray[np.int64]


def positions_of(shape: Sequence[int]) -> Positions:
    """Where each element of a row of this shape lies in its buffer."""
    return np.arange(math.prod(shape)).reshape(tuple(shape))


def pick(builder: ProgramBuilder, x: Rows, positions: Positions, fill: float = 0.0) -> Rows:
    """The row tensor whose elements are those of `x` at `positions`, with the same shape.

    Args:
        builder: Receives the operations.
        x: A row tensor, of any number of column axes.
        positions: Columns of `x`, or -1 for `fill`.
        fill: Value of the columns that are not from `x`.
    """
    shape = positions.shape
    flat = positions.ravel().tolist()
    if builder.width(x.buffer) == 1 and min(flat, default=0) >= 0:
        return replace(x, shape=shape)
    source = builder.widen(x.buffer, x.width)
    parts: list[str] = []
    for first, last in _runs(flat):
        if first < 0:
            parts.append(builder.const(fill))
        else:
            parts.append(builder.emit("slice", source, start=first, stop=last + 1))
    return Rows(builder.emit("concat", *parts), shape, x.per_row)


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """First and last position of each run of consecutive columns; (-1, -1) for each fill."""
    runs: list[list[int]] = []
    for p in positions:
        if runs and p >= 0 and runs[-1][1] + 1 == p and runs[-1][0] >= 0:
            runs[-1][1] = p
        else:
            runs.append([p, p])
    return [(first, last) for first, last in runs]


def unpick(builder: ProgramBuilder, x: Rows, positions: Positions, shape: Sequence[int]) -> Rows:
    """The transposed map of `pick`: element i of `x` is added to column `positions[i]`.

    Args:
        builder: Receives the operations.
        x: A row tensor with as many elements as `positions`.
        positions: Column of the result of each element of `x`.
        shape: Column axes of the result.
    """
    sources: list[list[int]] = [[] for _ in range(math.prod(shape))]
    for i, p in enumerate(positions.ravel().tolist()):
        sources[p].append(i)
    flat = replace(x, shape=(x.width,))
    layers = [
        pick(builder, flat, np.array(layer)).buffer
        for layer in itertools.zip_longest(*_padded(sources), fillvalue=-1)
    ]
    total = layers[0]
    for layer in layers[1:]:
        total = builder.emit("add", total, layer)
    return Rows(builder.widen(total, math.prod(shape)), tuple(shape), x.per_row)


def _padded(sources: list[list[int]]) -> list[list[int]]:
    deepest = max(1, *(len(s) for s in sources))
    return [s + [-1] * (deepest - len(s)) for s in sources]


def broadcast(builder: ProgramBuilder, x: Rows, shape: Sequence[int]) -> Rows:
    """`x` with its column axes broadcast to `shape`, which they must fit."""
    return pick(builder, x, np.broadcast_to(positions_of(x.shape), tuple(shape)))


#: Reduction to the operation that combines two buffers, and the one that reduces a row.
_REDUCTIONS = {"sum": ("add", "row_sum"), "max": ("maximum", "row_max")}


def reduce(builder: ProgramBuilder, x: Rows, axes: Sequence[int], kind: str) -> str:
    """Sum or maximum over some of the column axes.

    Args:
        builder: Receives the operations.
        x: A row tensor.
        axes: Column axes to reduce, at least one, counted from 0.
        kind: "sum" or "max".

    Returns:
        The buffer of the result, one column for each element that is left.
    """
    pairwise, whole = _REDUCTIONS[kind]
    kept = [a for a in range(len(x.shape)) if a not in axes]
    size = math.prod(x.shape[a] for a in axes)
    matrix = positions_of(x.shape).transpose(*kept, *axes).reshape(-1, size)
    if len(matrix) > size:
        slices = [pick(builder, x, matrix[:, i]) for i in range(size)]
        buffers = [builder.widen(s.buffer, s.width) for s in slices]
        total = buffers[0]
        for buffer in buffers[1:]:
            total = builder.emit(pairwise, total, buffer)
        return total
    groups = [pick(builder, x, row) for row in matrix]
    return builder.emit(
        "concat", *(builder.emit(whole, builder.widen(g.buffer, g.width)) for g in groups)
    )


def choose(builder: ProgramBuilder, x: Rows, axis: int, index: str) -> str:
    """The elements of `x` at one index along a column axis, the same index for the whole row.

    Args:
        builder: Receives the operations.
        x: A row tensor.
        axis: Column axis that the index counts along.
        index: int32 buffer of width 1.

    Returns:
        The buffer of the result, whose shape is that of `x` without the axis.
    """
    matrix = np.moveaxis(positions_of(x.shape), axis, -1).reshape(-1, x.shape[axis])
    columns = matrix.shape[1]
    if len(matrix) <= columns:
        picked = [pick(builder, x, row) for row in matrix]
        full = [builder.widen(p.buffer, p.width) for p in picked]
        return builder.emit("concat", *(builder.emit("gather", f, index) for f in full))
    chosen = None
    for i, mask in enumerate(_masks(builder, index, columns)):
        part = pick(builder, x, matrix[:, i])
        buffer = builder.widen(part.buffer, part.width)
        chosen = buffer if chosen is None else builder.emit("where", mask, buffer, chosen)
    assert chosen is not None
    return chosen


def place(builder: ProgramBuilder, x: Rows, axis: int, index: str, columns: int) -> Rows:
    """The transposed map of `choose`: `x` at one index along a new axis, zeros elsewhere.

    Args:
        builder: Receives the operations.
        x: A row tensor.
        axis: Where the new axis of the result lies.
        index: int32 buffer of width 1.
        columns: Length of the new axis.
    """
    if x.width == 1:
        spread = builder.emit("scatter", x.buffer, index, width=columns)
    else:
        full, zero = builder.widen(x.buffer, x.width), builder.const(0)
        masks = _masks(builder, index, columns)
        spread = builder.emit("concat", *(builder.emit("where", m, full, zero) for m in masks))
    positions = np.moveaxis(positions_of((columns, *x.shape)), 0, axis)
    return pick(builder, Rows(spread, (columns, *x.shape)), positions)


def _masks(builder: ProgramBuilder, index: str, columns: int) -> list[str]:
    one_hot = builder.emit("scatter", builder.const(1), index, width=columns)
    return [builder.emit("slice", one_hot, start=i, stop=i + 1) for i in range(columns)]


def column_axes(x: Rows, dims: Any) -> tuple[list[int], bool]:
    """Splits the axes of a traced tensor into column axes and whether the row axis is among them.

    Args:
        x: What the tensor stands for.
        dims: A number, a list of numbers, or None or an empty list for all axes.
    """
    axes = len(x.shape) + x.per_row
    dims = [dims] if isinstance(dims, int) else dims
    chosen = sorted({d % axes for d in dims} if dims and axes else set(range(axes)))
    if not x.per_row:
        return chosen, False
    return [d - 1 for d in chosen if d > 0], 0 in chosen
