# SPDX-License-Identifier: MIT
"""Finds what made an update fail: NaN and infinity are followed back to where they came from.

A row of a buffer that is not finite has as its cause the earliest cause among the inputs of its
operation that are not finite in that row, else the operation itself. So an infinity that a later
operation takes away, in the branch of a `where` that is not chosen, is no cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import LearnerFailedError
from copal.program.program import Op, Program
from copal.program.update import Phase, Update

Array = NDArray[Any]
_NONE = np.iinfo(np.int64).max
_SHOWN = 8


@dataclass(frozen=True)
class Finding:
    """The cause of a failure."""

    text: str
    """In words."""
    rows: tuple[int, ...] = ()
    """Rows of the batch that it is in; none if it is no matter of single rows."""


def failure(update: Update, phase: Phase, number: int, finding: Finding) -> LearnerFailedError:
    """The error of update `number`, from 0, whose phase `phase` met what `finding` tells."""
    position = update.phases.index(phase)
    error = LearnerFailedError(
        f"phases[{position}] {phase.program.name}",
        f"finite numbers in update {number}",
        f"NaN or infinity, first from {finding.text}",
        "the parameters are as before this update; look for NaN in the batch, lower the learning "
        "rate or set max_grad_norm",
    )
    error.rows = finding.rows
    return error


def find(
    program: Program,
    parameters: Mapping[str, Array],
    buffers: Mapping[str, Array],
    gradient: Array | None,
) -> Finding:
    """The cause of the first number that is not finite.

    Args:
        program: What was run.
        parameters: Network name to flat vector [size], as the Program saw them.
        buffers: Buffer name to values [B, width], inputs and everything that was computed.
        gradient: Sum over rows of the flat gradient [size].
    """
    for network in program.networks:
        bad = np.flatnonzero(~np.isfinite(parameters[network.name]))
        if bad.size:
            return Finding(f"the parameters of `{network.name}`, first in number {bad[0]}")
    causes = _causes(program, buffers)
    blamed = [causes[name] for name in program.outputs.values()]
    blamed += [causes[i] for op in program.ops if op.output is None for i in op.inputs]
    by_row = np.min(blamed, axis=0) if blamed else np.full(1, _NONE)
    first = int(by_row.min())
    if first == _NONE:
        return Finding(_sum_text(program, buffers, gradient))
    rows = tuple(int(r) for r in np.flatnonzero(by_row == first))
    if first < 0:
        return Finding(f"the input `{program.inputs[first].name}` in {_rows_text(rows)}", rows)
    return Finding(f"{_op_text(program, first)} in {_rows_text(rows)}", rows)


def _causes(program: Program, buffers: Mapping[str, Array]) -> dict[str, Array]:
    """For each buffer the cause of each row [B]: inputs count up to -1, operations from 0."""
    causes = {
        b.name: np.where(_bad(buffers[b.name]), i - len(program.inputs), _NONE)
        for i, b in enumerate(program.inputs)
    }
    for position, op in enumerate(program.ops):
        if op.output is None:
            continue
        bad = _bad(buffers[op.output.name])
        if op.kind == "const":
            bad = np.zeros_like(bad)
        given = [
            np.where(taken, causes[name], _NONE)
            for name, taken in zip(op.inputs, _taken(op, buffers), strict=True)
        ]
        earliest = np.min([np.full(bad.shape, _NONE), *given], axis=0)
        own = np.where(earliest == _NONE, position, earliest)
        causes[op.output.name] = np.where(bad, own, _NONE)
    return causes


def _bad(values: Array) -> Array:
    return np.asarray(~np.isfinite(values).all(axis=1))


def _taken(op: Op, buffers: Mapping[str, Array]) -> list[Array]:
    """For each input the rows [B] in which a bad number of it can be in the output."""
    values = [buffers[name] for name in op.inputs]
    if op.kind != "where":
        return [np.ones(len(v), bool) for v in values]
    chosen = values[0] != 0
    return [
        np.zeros(len(chosen), bool),
        np.asarray((chosen & ~np.isfinite(values[1])).any(axis=1)),
        np.asarray((~chosen & ~np.isfinite(values[2])).any(axis=1)),
    ]


def _op_text(program: Program, position: int) -> str:
    op = program.ops[position]
    return f"ops[{position}] {op.kind}" + (f" (`{op.output.name}`)" if op.output else "")


def _rows_text(rows: tuple[int, ...]) -> str:
    text = ("rows " if len(rows) > 1 else "row ") + ", ".join(map(str, rows[:_SHOWN]))
    return f"{text} ... ({len(rows)} rows)" if len(rows) > _SHOWN else text


def _sum_text(program: Program, buffers: Mapping[str, Array], gradient: Array | None) -> str:
    """All rows are finite, their sum is not."""
    for position, op in enumerate(program.ops):
        if op.output is not None or gradient is None:
            continue
        start = op.attrs["offset" if op.kind == "sum_over_rows" else "weight"]
        size = buffers[op.inputs[0]].shape[1]
        if op.kind != "sum_over_rows":
            size *= op.attrs["fan_in"]
        if not np.isfinite(gradient[start : start + size]).all():
            return f"{_op_text(program, position)}, the gradient"
    return "the square of the gradient's norm"
