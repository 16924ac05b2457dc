# SPDX-License-Identifier: MIT
"""A compiled Update: code, places, exponents, and what to run in which update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from copal.fpga.compiler.code import Encoder, Entry, Field, listing
from copal.fpga.compiler.scales import Limit, ScaleInfo
from copal.fpga.config import EngineConfig
from copal.fpga.isa import SET_SIZE, Instruction
from copal.fpga.parameters import ParameterLayout
from copal.program import Update


@dataclass(frozen=True)
class Column:
    """Columns of a batch in V: float32 [width, stride * P] from word `address` on, row = lane."""

    name: str
    """Batch column, or role of an output."""
    width: int
    """Columns."""
    address: int
    """First word; `width * stride` words follow."""


@dataclass(frozen=True)
class Block:
    """Rows of a batch that the row program takes at once."""

    first: int
    """First row."""
    rows: int
    """Rows; the lanes behind them hold zeros."""
    runs: tuple[Entry, ...]
    """RUNs, one after the other. All but the first of the first block accumulate."""


@dataclass(frozen=True)
class PhasePlan:
    """How to run one phase."""

    name: str
    """Of its row program."""
    network: str
    """Network that it trains."""
    inputs: tuple[Column, ...]
    """What to load before a block."""
    outputs: Mapping[str, Column]
    """What can be dumped after a block, by role."""
    blocks: tuple[Block, ...]
    """In order."""
    step: Entry | None
    """Optimiser step alone."""
    step_average: Entry | None
    """Optimiser step and averaging of the target."""


@dataclass(frozen=True)
class Run:
    """One RUN of an update."""

    entry: Entry
    """What to run."""
    accumulate: bool
    """Whether gradients and ranges go on from what they hold."""
    phase: int | None
    """The phase that it belongs to, None: averaging alone."""
    block: Block | None
    """The rows to load before it; None: it is no first RUN of a block."""
    scalars: int | None
    """The set of K that it reads, None: none."""


@dataclass(frozen=True)
class Plan:
    """Everything that a driver needs to run an Update on the engine."""

    update: Update
    """What is compiled."""
    config: EngineConfig
    """What for."""
    batch_size: int
    """Rows of a batch."""
    block_rows: int
    """Rows of a block."""
    layout: ParameterLayout
    """Where parameters lie."""
    phases: tuple[PhasePlan, ...]
    """As in `update`."""
    averages: Mapping[str, Entry]
    """Target to the code that averages it alone."""
    refresh: Entry
    """Writes the integer copies of all parameters: after they are loaded, and whenever an exponent
    of `bound` changes."""
    instructions: tuple[Instruction, ...]
    """The code, exponent fields zero."""
    fields: tuple[Field, ...]
    """Where exponents go."""
    scales: Mapping[str, ScaleInfo]
    """Exponents by name, in the order of `encode` and of the entries of RANGE."""
    limits: tuple[Limit, ...]
    """Between exponents."""
    words: Mapping[str, int]
    """Words used of each memory, by the names of `Depths`."""

    @property
    def stride(self) -> int:
        """Batch tiles of a block: words from one column in V to the next."""
        return -(-self.block_rows // self.config.array_size)

    @cached_property
    def bound(self) -> NDArray[np.bool_]:
        """Of each exponent, whether stored integers depend on it: `refresh` after a change."""
        return np.array([info.bound for info in self.scales.values()], bool)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.instructions, self.fields, tuple(self.scales))

    def encode(self, exponents: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The code with these exponents, as LOAD sends it, uint64 [5 * instructions].

        Raises:
            ProgramError: A field cannot hold what the exponents ask for.
        """
        return self._encoder.encode(exponents)

    def runs(self, updates: int) -> tuple[Run, ...]:
        """The RUNs of an update.

        Args:
            updates: Number of updates done before.
        """
        found: list[Run] = []
        done: set[str] = set()
        for i, (phase, plan) in enumerate(zip(self.update.phases, self.phases, strict=True)):
            if (updates + 1) % phase.every:
                continue
            for block in plan.blocks:
                for j, entry in enumerate(block.runs):
                    first = block.first == 0 and j == 0
                    found.append(Run(entry, not first, i, None if j else block, None))
            target = due_target(self.update, i, updates)
            step = plan.step if target is None else plan.step_average
            assert step is not None
            found.append(Run(step, True, i, None, i))
            done |= {target} if target else set()
        for t in self.update.targets:
            if (updates + 1) % t.every == 0 and t.target not in done:
                entry = self.averages[t.target]
                found.append(Run(entry, True, None, None, self.set_of(t.source)))
        return tuple(found)

    def set_of(self, source: str) -> int:
        """The set of K with the rate at which the target of `source` follows."""
        return averaging_set(self.update, source)

    def scalars(self, set_: int, step: int) -> NDArray[np.float32]:
        """The registers of a set of K, float32 [16].

        Args:
            set_: Number of the phase, or `set_of` a network that no phase trains.
            step: Number of the optimiser step, from 1.
        """
        values = np.zeros(SET_SIZE)
        source = None
        if set_ < len(self.phases):
            a, source = self.update.phases[set_].optimiser, self.phases[set_].network
            root = sqrt(1 - a.beta2**step)
            alpha = a.learning_rate * root / (1 - a.beta1**step)
            values[:6] = a.beta1, 1 - a.beta1, a.beta2, 1 - a.beta2, alpha, a.eps * root
            values[8] = 1 / self.batch_size
        for t in self.update.targets:
            if t.source == source or (source is None and self.set_of(t.source) == set_):
                values[6:8] = t.tau, 1 - t.tau
        return values.astype(np.float32)

    def cycles(self, updates: int = 0) -> int:
        """Cycles of the RUNs of an update by the cycle model."""
        return sum(run.entry.cycles for run in self.runs(updates))

    def macs(self, updates: int = 0) -> int:
        """Useful products of an update."""
        return sum(run.entry.macs for run in self.runs(updates))

    def listing(self) -> str:
        """The code as text."""
        entries = [self.refresh, *self.averages.values()]
        for phase in self.phases:
            entries += [e for block in phase.blocks for e in block.runs]
            entries += [e for e in (phase.step, phase.step_average) if e is not None]
        return listing(self.instructions, entries, self.config)


def due_target(update: Update, phase: int, updates: int) -> str | None:
    """The target that the optimiser step of a phase averages as well in an update, None: none."""
    source = update.phases[phase].program.gradient
    for t in update.targets:
        if t.source == source and (updates + 1) % t.every == 0:
            later = [p.program for p in update.phases[phase + 1 :]]
            used = {n.name for p in later for n in p.networks if n.name == t.target}
            trained = any(p.gradient == source for p in later)
            return None if used or trained else t.target
    return None


def averaging_set(update: Update, source: str) -> int:
    """Number of the set of K that the target of `source` is averaged with."""
    numbers = [i for i, p in enumerate(update.phases) if p.program.gradient == source]
    if numbers:
        return numbers[-1]
    trained = update.trained()
    rates = list(dict.fromkeys(t.tau for t in update.targets if t.source not in trained))
    rate = next(t.tau for t in update.targets if t.source == source)
    return len(update.phases) + rates.index(rate)
