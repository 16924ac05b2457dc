# SPDX-License-Identifier: MIT
"""Cuts a Program into steps: dense products for a whole block, formulas for a warp and its row.

A relu right behind a dense layer, and its gradient behind the gradient of an input, become part of
the product. Runs of everything else become one step, in which a warp works through its row without
waiting for the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from copal.errors import ProgramError
from copal.program import GRADIENT_OPS, Op, Program

PRODUCTS = frozenset({"dense", "dense_grad_input"})


@dataclass(frozen=True)
class Heavy:
    """A dense product, or a sum over rows: all threads of a block work on it."""

    op: Op
    """The operation."""
    output: str | None
    """Buffer that is written, behind the relu if there is one."""
    mask: str | None = None
    """Of a fused `relu_grad`: the relu's output."""
    relu: bool = False
    """Whether a relu follows in the same step."""


@dataclass(frozen=True)
class Store:
    """Writes one output of the Program."""

    role: str
    """Its role."""
    buffer: str
    """What is written."""


@dataclass(frozen=True)
class Light:
    """Operations that need nothing but their row, in order."""

    ops: tuple[Op | Store, ...]
    """What is done."""


Step = Heavy | Light


def steps(program: Program) -> list[Step]:
    """The steps of `program` in order of execution.

    Raises:
        ProgramError: It has an operation without a device function.
    """
    if program.opaque() is not None:
        raise ProgramError("opaque", "operations of `copal.program.OPS`", str(program.opaque()))
    fused = _fused(program)
    skipped = {second.output.name for second in fused.values() if second.output is not None}
    found: list[Step] = []
    light: list[Op | Store] = list(_stores(program, {b.name for b in program.inputs}))
    for op in program.ops:
        if op.output is not None and op.output.name in skipped:
            continue
        second = fused.get(op.output.name) if op.output is not None else None
        last = op if second is None else second
        defined = set() if last.output is None else {last.output.name}
        if op.kind in PRODUCTS or op.kind in GRADIENT_OPS:
            if light:
                found.append(Light(tuple(light)))
                light = []
            found.append(_heavy(op, second))
        else:
            light.append(op)
        light += _stores(program, defined)
    return [*found, Light(tuple(light))] if light else found


def _stores(program: Program, defined: set[str]) -> Iterator[Store]:
    for role, buffer in program.outputs.items():
        if buffer in defined:
            yield Store(role, buffer)


def _heavy(op: Op, second: Op | None) -> Heavy:
    if second is None or second.output is None:
        return Heavy(op, None if op.output is None else op.output.name)
    if second.kind == "relu":
        return Heavy(op, second.output.name, relu=True)
    return Heavy(op, second.output.name, mask=second.inputs[1])


def _fused(program: Program) -> Mapping[str, Op]:
    """Output of a product to the relu, or relu_grad, that alone reads it and may join it."""
    readers: dict[str, list[Op]] = {}
    for op in program.ops:
        for name in op.inputs:
            readers.setdefault(name, []).append(op)
    outputs = set(program.outputs.values())
    known = {b.name for b in program.inputs}
    found: dict[str, Op] = {}
    for op in program.ops:
        if op.output is None:
            continue
        name = op.output.name
        alone = readers.get(name, [])
        if op.kind in PRODUCTS and len(alone) == 1 and name not in outputs:
            reader = alone[0]
            if (op.kind == "dense" and reader.kind == "relu") or (
                op.kind == "dense_grad_input"
                and reader.kind == "relu_grad"
                and reader.inputs[0] == name
                and reader.inputs[1] in known
                and reader.output is not None
                and reader.output.width == op.output.width
                and _width(program, reader.inputs[1]) == op.output.width
            ):
                found[name] = reader
        known.add(name)
    return found


def _width(program: Program, name: str) -> int:
    return next(b.width for b in program.buffers() if b.name == name)
