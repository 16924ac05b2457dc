# SPDX-License-Identifier: MIT
"""The cycle model: when the sequencer takes an instruction, and when its results can be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from copal.fpga.config import STAGES, EngineConfig
from copal.fpga.isa import Instruction, Op


@dataclass(frozen=True)
class Cost:
    """What an instruction takes of the engine's time."""

    steps: int
    """Cycles in which the sequencer issues its slots; 0 for END."""
    settle: int
    """Cycles from the last slot until its results can be read."""
    fence: bool
    """Whether the next instruction waits for all results."""


def cost(f: Instruction, config: EngineConfig) -> Cost:
    """The cost of one instruction."""
    if f.op == Op.END:
        return Cost(0, 0, fence=False)
    return Cost(slots(f, config), config.fence(f.op.name), bool(f.fence))


def cycles(f: Instruction, config: EngineConfig) -> int:
    """Cycles of an instruction on its own, its fence included; `run_cycles` is exact for many."""
    own = cost(f, config)
    return 1 + own.steps + (own.settle if own.fence else 0)


def run_cycles(code: Iterable[Instruction], config: EngineConfig) -> int:
    """Cycles of a RUN of `code`, whose last instruction is END."""
    clock = Clock()
    for f in code:
        clock.take(cost(f, config))
    return clock.total()


def enabled_slots(f: Instruction) -> int:
    """Slots in which the array adds products."""
    return (f["mt"] + 1) * (f["nt"] + 1) * (f["kn"] + 1) if f.op == Op.PRODUCT else 0


def fetch_cycles() -> int:
    """Fewest cycles from one instruction to the next: CODE and its decoder."""
    return 3 + STAGES["decode"]


def edge_cycles() -> int:
    """Cycles of a RUN that no instruction accounts for: its start and its end."""
    return fetch_cycles() + STAGES["seq"] + 1


class Clock:
    """Adds up the cycles of a RUN.

    Attributes:
        now: Cycle in which the sequencer is free.
    """

    def __init__(self) -> None:
        self.now = self._settled = 0
        self._taken = -fetch_cycles()

    def take(self, cost: Cost) -> None:
        """Lets an instruction pass. END waits for all results."""
        taken = max(self.now, self._taken + fetch_cycles())
        end = taken + cost.steps
        self._taken, self.now = taken, end + 1
        if cost.steps == 0:
            self.now = max(self.now, self._settled)
            return
        self._settled = max(self._settled, self.now + cost.settle)
        if cost.fence:
            self.now = self._settled

    def total(self) -> int:
        """Cycles of the RUN so far."""
        return self.now + edge_cycles()


def slots(f: Instruction, config: EngineConfig) -> int:
    """Cycles in which the sequencer issues something for `f`."""
    p = config.array_size
    match f.op:
        case Op.PRODUCT:
            return (f["mt"] + 1) * (f["nt"] + 1) * max(f["kn"] + 1, p)
        case Op.VECTOR:
            return (f["cols"] + 1) * (f["nt"] + 1) * (p // config.vector_lanes)
        case Op.QUANT:
            return (f["mt"] + 1) * (f["nt"] + 1) * p * (p // config.vector_lanes)
        case Op.UPDATE:
            return (f["count"] + 1) * (p // config.adam_lanes)
        case Op.NORM:
            return f["count"] + 1
        case Op.BROADCAST:
            return f["nt"] + 1
        case Op.SCALAR:
            return 1
    return 0
