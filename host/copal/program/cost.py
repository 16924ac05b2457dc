# SPDX-License-Identifier: MIT
"""What the operations of a Program cost: floating-point operations and bytes.

A multiplication, an addition, a comparison and an exponential count as one operation each; moving
numbers counts as none. A buffer is 4 bytes a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copal.program.program import GRADIENT_OPS, Op, Program

BYTES = 4
"""Of a float32 or an int32."""

_MOVES = frozenset({"const", "param", "gather", "scatter", "concat", "slice", "opaque"})


@dataclass(frozen=True)
class OpCost:
    """One operation of a Program on a batch."""

    kind: str
    """A key of `OPS`."""
    inputs: tuple[str, ...]
    """Buffers that it reads."""
    attrs: Mapping[str, Any]
    """Values of its attributes."""
    output: str
    """Buffer that it defines, or the part of the gradient that it adds to."""
    shape: tuple[int, int]
    """Of the output."""
    bytes: int
    """Of the output."""
    flops: int
    """Floating-point operations on the whole batch."""
    row_local: bool
    """True: each row on its own. False: sums over the rows."""


@dataclass(frozen=True)
class ProgramCost:
    """A Program on a batch."""

    ops: tuple[OpCost, ...]
    """In order of execution."""
    flops: int
    """Floating-point operations on the whole batch."""
    dense_flops: int
    """Those of them in dense products."""
    buffer_bytes: int
    """Inputs and results of all operations, each in a place of its own."""
    parameter_bytes: int
    """Networks that are read, and the gradient."""


def cost(program: Program, batch_size: int) -> ProgramCost:
    """Counts what `program` does with `batch_size` rows."""
    widths = {b.name: b.width for b in program.buffers()}
    ops = tuple(_op_cost(op, widths, batch_size, program.gradient) for op in program.ops)
    parameters = {n.name: n.size for n in program.networks}
    gradient = parameters.get(str(program.gradient), 0)
    return ProgramCost(
        ops=ops,
        flops=sum(op.flops for op in ops),
        dense_flops=sum(op.flops for op in ops if op.kind.startswith("dense")),
        buffer_bytes=BYTES * batch_size * sum(widths.values()),
        parameter_bytes=BYTES * (sum(parameters.values()) + gradient),
    )


def _op_cost(op: Op, widths: Mapping[str, int], rows: int, gradient: str | None) -> OpCost:
    if op.output is not None:
        name, shape = op.output.name, (rows, op.output.width)
    elif op.kind == "sum_over_rows":
        name, shape = f"{gradient}[{op.attrs['offset']}:]", (1, widths[op.inputs[0]])
    else:
        name = f"{gradient}[{op.attrs['weight']}:]"
        shape = (op.attrs["fan_out"], op.attrs["fan_in"])
    return OpCost(
        kind=op.kind,
        inputs=op.inputs,
        attrs=op.attrs,
        output=name,
        shape=shape,
        bytes=BYTES * shape[0] * shape[1],
        flops=rows * _flops_per_row(op, widths),
        row_local=op.kind not in GRADIENT_OPS,
    )


def _flops_per_row(op: Op, widths: Mapping[str, int]) -> int:
    if op.kind in _MOVES:
        return 0
    if op.kind.startswith("dense"):
        fan_in, fan_out = int(op.attrs["fan_in"]), int(op.attrs["fan_out"])
        biased = op.kind == "dense" and op.attrs["bias"] >= 0
        return 2 * fan_in * fan_out + (fan_out if biased else 0)
    if op.kind.startswith("row_") or op.output is None:
        return widths[op.inputs[0]]
    return op.output.width
