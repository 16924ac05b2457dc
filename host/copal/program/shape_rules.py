# SPDX-License-Identifier: MIT
"""Lowering rules of products, views and copies: they decide where the row axis is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from copal.program.columns import broadcast, pick, positions_of, reduce
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


@rule("bmm")
def _bmm(call: Call) -> Value:
    """[B, i, n] times [B, n, j]: a small product in each row."""
    if not (call.has_rows(call["self"]) and call.has_rows(call["mat2"])):
        raise call.refuse(
            "multiplies stacks of matrices",
            "write an ensemble as one network after another, or as one wide layer",
        )
    b = call.builder
    x, y = call.float_rows(call["self"]), call.float_rows(call["mat2"])
    shape = (x.shape[0], y.shape[1], x.shape[1])
    left = np.broadcast_to(positions_of(x.shape)[:, None, :], shape)
    right = np.broadcast_to(positions_of(y.shape).T[None, :, :], shape)
    product = b.emit("mul", *(call.full(pick(b, v, p)) for v, p in ((x, left), (y, right))))
    return Rows(reduce(b, Rows(product, shape), [2], "sum"), shape[:2])


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
        if x.width != 1 and own != keep:
            raise call.refuse("repeats some of the parameters")
        return replace(x, shape=keep)
    if len(shape) != len(x.shape) + 1:
        raise call.refuse("adds an axis before the rows of a batch", ROW_HINT)
    return broadcast(call.builder, x, shape[1:])


@rule("permute", "t", "transpose")
def _permute(call: Call) -> Value:
    x = call["self"]
    if call.kind == "permute":
        order = [d % len(call["dims"]) for d in call["dims"]]
        if order == sorted(order):
            return x  # type: ignore[no-any-return]
        if isinstance(x, Rows | Const) and call.has_rows(x) and order[0] == 0:
            x = call.rows(x)
            moved = positions_of(x.shape).transpose([d - 1 for d in order[1:]])
            return pick(call.builder, x, moved)
    if len(call.shape) != 2:
        raise call.refuse("permutes more than two axes", ROW_HINT)
    if isinstance(x, Parameter):
        return replace(x, transposed=not x.transposed)
    if isinstance(x, Transposed):
        return x.rows
    if isinstance(x, Summed):
        return x.transposed
    return Transposed(call.float_rows(x))


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
