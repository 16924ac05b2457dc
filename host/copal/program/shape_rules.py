# SPDX-License-Identifier: MIT
"""Lowering rules of dense products, views and copies: they decide where the row axis is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from copal.program.lowering import ROW_HINT, Call
from copal.program.rules import rule
from copal.program.values import Const, Parameter, Rows, Summed, Term, Transposed, Value

# Dense products


@rule("mm")
def _mm(call: Call) -> Value:
    return _product(call, call["self"], call["mat2"])


@rule("addmm")
def _addmm(call: Call) -> Value:
    bias, x, weight = call["self"], call["mat1"], call["mat2"]
    if call["alpha"] != 1 or call["beta"] != 1:
        raise call.refuse("scales a product by `alpha` or `beta`")
    if (
        isinstance(bias, Parameter)
        and isinstance(weight, Parameter)
        and weight.transposed
        and bias.network == weight.network
        and isinstance(x, Rows)
    ):
        return _dense(call, x, weight, bias.offset)
    product = call.float_rows(_product(call, x, weight))
    added = call.operand(bias, product.shape, True)
    return replace(product, buffer=call.builder.emit("add", product.buffer, added))


def _product(call: Call, x: Value, y: Value) -> Value:
    if isinstance(y, Parameter) and call.has_rows(x):
        x = call.float_rows(x)
        return _dense(call, x, y, -1) if y.transposed else _dense_grad_input(call, x, y)
    if isinstance(x, Const):
        turned = Const(x.tensor.T)
        x = Transposed(call.rows(turned)) if call.has_rows(turned) else x
    if isinstance(x, Transposed) and call.has_rows(y):
        terms = (Term(call.full(x.rows), call.full(call.float_rows(y))),)
        return Summed(terms, call.shape)
    if isinstance(y, Summed | Transposed | Rows):
        raise call.refuse("multiplies rows of a batch with each other", ROW_HINT)
    raise call.refuse("is a matrix product of something else than rows and a weight")


def _layer(weight: Parameter, bias: int) -> dict[str, Any]:
    fan_out, fan_in = weight.shape
    return {
        "network": weight.network,
        "weight": weight.offset,
        "bias": bias,
        "fan_in": fan_in,
        "fan_out": fan_out,
    }


def _dense(call: Call, x: Rows, weight: Parameter, bias: int) -> Rows:
    x = call.float_rows(x)
    buffer = call.builder.emit("dense", call.full(x), **_layer(weight, bias))
    return Rows(buffer, call.shape[1:])


def _dense_grad_input(call: Call, x: Rows, weight: Parameter) -> Rows:
    x = call.float_rows(x)
    buffer = call.builder.emit("dense_grad_input", call.full(x), **_layer(weight, -1))
    return Rows(buffer, call.shape[1:])


# Views


@rule("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
def _view(call: Call) -> Value:
    x, shape = call["self"], call.shape
    if isinstance(x, Summed):
        if any(t.y is not None for t in x.terms) and shape != x.shape:
            raise call.refuse("reshapes the gradient of a matrix")
        return replace(x, shape=shape)
    if isinstance(x, Parameter) and not x.transposed:
        return replace(x, shape=shape)
    x = call.rows(x)
    if not x.per_row:
        return replace(x, shape=shape)
    if not shape or math.prod(shape[1:]) != x.width or shape[0] != call.batch_size:
        raise call.refuse("moves the row axis of a batch", ROW_HINT)
    return replace(x, shape=shape[1:])


@rule("expand")
def _expand(call: Call) -> Value:
    x, shape = call["self"], call.shape
    if isinstance(x, Parameter):
        x = call.rows(x)
    if isinstance(x, Summed) and x.shape == shape:
        return x
    x = call.rows(x)
    if not x.per_row:
        # A parameter spread over a batch is an operand like any other: its leading axes are free.
        own = x.shape
        keep = shape[len(shape) - len(own) :]
        return replace(x, shape=keep) if x.width == 1 or own == keep else _refuse_expand(call)
    if len(shape) != len(x.shape) + 1:
        raise call.refuse("adds an axis before the rows of a batch", ROW_HINT)
    if x.shape != shape[1:] and x.width != 1:
        return _refuse_expand(call)
    return replace(x, shape=shape[1:])


def _refuse_expand(call: Call) -> Value:
    raise call.refuse("repeats some of the columns")


@rule("permute", "t", "transpose")
def _permute(call: Call) -> Value:
    x = call["self"]
    if call.kind == "permute":
        order = [d % len(call["dims"]) for d in call["dims"]]
        if order == sorted(order):
            return x  # type: ignore[no-any-return]
    if len(call.shape) != 2:
        raise call.refuse("permutes more than two axes")
    if isinstance(x, Parameter):
        return replace(x, transposed=not x.transposed)
    if isinstance(x, Transposed):
        return x.rows
    if isinstance(x, Summed):
        return x.transposed
    return Transposed(call.float_rows(x))


# Columns


def _columns(call: Call, x: Rows, start: int, stop: int, shape: tuple[int, ...]) -> Rows:
    if x.buffer and call.builder.width(x.buffer) == 1:
        return replace(x, shape=shape)
    return (
        Rows(call.builder.emit("slice", x.buffer, start=start, stop=stop), shape, x.per_row)
        if stop - start < x.width
        else replace(x, shape=shape)
    )


def _column_axis(call: Call, x: Rows) -> int:
    axes = len(x.shape) + x.per_row
    axis = int(call["dim"]) % axes
    if x.per_row and axis == 0:
        raise call.refuse("picks rows of a batch", ROW_HINT)
    if len(x.shape) != 1:
        raise call.refuse("picks along one of several column axes")
    return axis


@rule("slice")
def _slice(call: Call) -> Value:
    x = call.float_rows(call["self"])
    if call["step"] != 1:
        raise call.refuse("picks columns with a step")
    start, stop = call["start"] or 0, call["end"]
    if call.shape == tuple(call.node.all_input_nodes[0].meta["val"].shape):
        return x
    _column_axis(call, x)
    start, stop, _ = slice(start, stop).indices(x.width)
    return _columns(call, x, start, stop, (stop - start,))


@rule("select")
def _select(call: Call) -> Value:
    x = call.rows(call["self"])
    _column_axis(call, x)
    index = int(call["index"]) % x.width
    return _columns(call, x, index, index + 1, ())


@rule("split", "split_with_sizes", "chunk", "unbind")
def _split(call: Call) -> Any:
    x = call.float_rows(call["self"])
    _column_axis(call, x)
    parts, start = [], 0
    for piece in call.node.meta["val"]:
        shape = tuple(piece.shape[x.per_row :])
        stop = start + math.prod(shape)
        parts.append(_columns(call, x, start, stop, shape))
        start = stop
    return parts


@rule("cat")
def _cat(call: Call) -> Value:
    if call["dim"] % len(call.shape) != 1 or len(call.shape) != 2:
        raise call.refuse("puts batches below each other", ROW_HINT)
    shapes = [tuple(n.meta["val"].shape) for n in call.node.args[0]]  # type: ignore[union-attr]
    return _concat(call, call["tensors"], [s[1] for s in shapes])


def _concat(call: Call, values: list[Any], widths: list[int]) -> Rows:
    b = call.builder
    buffers = [
        b.widen(call.operand(v, (w,), True), w) for v, w in zip(values, widths, strict=True) if w
    ]
    return Rows(b.emit("concat", *buffers), (sum(widths),))


@rule("stack")
def _stack(call: Call) -> Value:
    if call["dim"] % len(call.shape) != 1 or len(call.shape) != 2:
        raise call.refuse("puts batches below each other", ROW_HINT)
    buffers = [call.operand(v, (), True) for v in call["tensors"]]
    return Rows(call.builder.emit("concat", *buffers), call.shape[1:])


@rule("slice_scatter")
def _slice_scatter(call: Call) -> Value:
    width = call.shape[-1]
    if len(call.shape) != 2 or call["dim"] % 2 != 1 or call["step"] != 1:
        raise call.refuse("overwrites rows of a batch", ROW_HINT)
    start, stop, _ = slice(call["start"], call["end"]).indices(width)
    base = call["self"]
    if not isinstance(base, Const):
        raise call.refuse("overwrites columns")
    left, right = Const(base.tensor[:, :start]), Const(base.tensor[:, stop:])
    return _concat(call, [left, call["src"], right], [start, stop - start, width - stop])


@rule("select_scatter")
def _select_scatter(call: Call) -> Value:
    width, base = call.shape[-1], call["self"]
    if len(call.shape) != 2 or call["dim"] % 2 != 1 or not isinstance(base, Const):
        raise call.refuse("overwrites rows or columns", ROW_HINT)
    i = int(call["index"]) % width
    source = replace(call.float_rows(call["src"]), shape=(1,))
    left, right = Const(base.tensor[:, :i]), Const(base.tensor[:, i + 1 :])
    return _concat(call, [left, source, right], [i, 1, width - i - 1])


# Copies


@rule("clone", "alias", "detach", "lift_fresh", "contiguous")
def _same(call: Call) -> Value:
    return call["self"]  # type: ignore[no-any-return]


@rule("_to_copy")
def _convert(call: Call) -> Value:
    x = call["self"]
    dtype = call.args.get("dtype")
    if dtype is None or isinstance(x, Parameter | Summed):
        return x  # type: ignore[no-any-return]
    before = call.node.all_input_nodes[0].meta["val"].dtype
    index = call.builder.buffer(call.rows(x).buffer).dtype == "int32"
    integer = not dtype.is_floating_point and dtype != torch.bool
    # Truth values are floats in a Program, and as integers still are.
    if index != integer and (index or before != torch.bool):
        raise call.refuse(
            f"converts {before} to {dtype}",
            "declare the input with the dtype in which the loss uses it",
        )
    if dtype == torch.bool and before != torch.bool:
        raise call.refuse(f"converts {before} to {dtype}", "compare with a number instead")
    return x  # type: ignore[no-any-return]


@rule("full_like", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "empty_like")
def _full_like(call: Call) -> Value:
    default = 1.0 if "ones" in call.kind else 0.0
    dtype = call.node.meta["val"].dtype
    dtype = torch.float64 if dtype.is_floating_point else dtype
    return Const(torch.full(call.shape, call.args.get("fill_value", default), dtype=dtype))
