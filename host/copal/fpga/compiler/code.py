# SPDX-License-Identifier: MIT
"""Microcode as it is put together, and its encoding with exponents that change between updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copal.errors import ProgramError
from copal.fpga.compiler.draft import Draft, Geometry, Scale, finished, renamed
from copal.fpga.compiler.schedule import fences, steps
from copal.fpga.config import EngineConfig
from copal.fpga.isa import BEATS, FIELDS, Instruction, Op, beats
from copal.fpga.model.timing import cycles, run_cycles

Beats = NDArray[np.uint64]


@dataclass(frozen=True)
class Entry:
    """A row of instructions that a RUN executes, END included."""

    name: str
    """For listings."""
    pc: int
    """Address of the first one."""
    count: int
    """Instructions."""
    cycles: int
    """By the cycle model."""
    macs: int
    """Useful products."""


@dataclass(frozen=True)
class Field:
    """A field that depends on exponents."""

    instruction: int
    """Number of the instruction."""
    name: str
    """Of the field."""
    scale: Scale
    """Its value."""


class CodeWriter:
    """Appends entries.

    Args:
        config: Of the engine.
        entries: Exponent name to entry of RANGE.
        names: Exponent name to the one that stands for it.
    """

    def __init__(
        self, config: EngineConfig, entries: Mapping[str, int], names: Mapping[str, str]
    ) -> None:
        self.instructions: list[Instruction] = []
        self.fields: list[Field] = []
        self.entries: list[Entry] = []
        self._config, self._ranges, self._names = config, entries, names

    def add(self, name: str, drafts: Sequence[Draft], geometry: Geometry) -> Entry:
        """Appends drafts in their order, and END; all their tensors have addresses."""
        pc = len(self.instructions)
        made = [finished(d, geometry, self._ranges) for d in drafts]
        found = steps(drafts, made, self._config)
        for ins, fence in zip(made, fences(found, self._config), strict=True):
            ins.fence = fence
        for i, draft in enumerate(drafts):
            for field, scale in draft.scales.items():
                self.fields.append(Field(pc + i, field, renamed(scale, self._names)))
        made.append(Instruction(Op.END))
        took = run_cycles(made, self._config)
        macs = sum(ins.macs for ins in made)
        self.instructions += made
        self.entries.append(Entry(name, pc, len(made), took, macs))
        return self.entries[-1]


class Encoder:
    """Writes exponents into the fields of instructions.

    Args:
        instructions: With zeros in those fields.
        fields: What to write.
        names: Exponents in the order in which `encode` takes them.
    """

    def __init__(
        self, instructions: Sequence[Instruction], fields: Sequence[Field], names: Sequence[str]
    ) -> None:
        self._base = beats(instructions)
        self._fields = tuple(fields)
        self._constants = np.array([f.scale.constant for f in fields], np.int64)
        self._factors = np.zeros((len(fields), len(names)), np.int64)
        number = {name: i for i, name in enumerate(names)}
        for i, f in enumerate(fields):
            for name, factor in f.scale.terms:
                self._factors[i, number[name]] += factor
        places = [_place(instructions[f.instruction].op, f.name) for f in fields]
        at = np.array([p[0] for p in places], np.int64)
        self._bits = np.array([p[1] for p in places], np.int64)
        signed = np.array([p[2] for p in places], bool)
        self._low = np.where(signed, -(1 << self._bits - 1), 0)
        self._high = np.where(signed, 1 << self._bits - 1, 1 << self._bits) - 1
        first = np.array([f.instruction for f in fields], np.int64) * BEATS
        self._beat, self._shift = first + at // 64, at % 64

    def encode(self, exponents: NDArray[np.int64]) -> Beats:
        """The code as LOAD sends it, [5 * instructions].

        Args:
            exponents: [names].

        Raises:
            ProgramError: A field cannot hold what the exponents ask for.
        """
        values = self._constants + self._factors @ exponents
        wrong = np.flatnonzero((values < self._low) | (values > self._high))
        if wrong.size:
            i = int(wrong[0])
            f, limits = self._fields[i], f"{self._low[i]} to {self._high[i]}"
            raise ProgramError(f"{f.name} of instruction {f.instruction}", limits, str(values[i]))
        raw = (values & (1 << self._bits) - 1).astype(np.uint64)
        code = self._base.copy()
        shift = self._shift.astype(np.uint64)
        np.bitwise_or.at(code, self._beat, raw << shift)
        across = np.flatnonzero(self._shift + self._bits > 64)
        spill = raw[across] >> (np.uint64(64) - shift[across])
        np.bitwise_or.at(code, self._beat[across] + 1, spill)
        return code


def _place(op: Op, name: str) -> tuple[int, int, bool]:
    """First bit, bits and signedness of a field."""
    at = 5
    for field, bits, sign in FIELDS[op]:
        if field == name:
            return at, bits, sign == "s"
        at += bits
    raise KeyError(name)


def listing(
    instructions: Sequence[Instruction], entries: Sequence[Entry], config: EngineConfig
) -> str:
    """The code as text, an instruction a line."""
    starts = {e.pc: e for e in entries}
    lines = []
    for pc, ins in enumerate(instructions):
        if pc in starts:
            e = starts[pc]
            lines.append(f"{e.name}: {e.cycles} cycles, {e.macs} products")
        fields = " ".join(f"{k}={v}" for k, v in ins.fields.items() if v)
        fence = "|" if ins.fence else " "
        lines.append(
            f"{pc:5d} {fence} {ins.op.name:9s} {cycles(ins, config):6d}  {ins.note}  {fields}"
        )
    return "\n".join(lines)
