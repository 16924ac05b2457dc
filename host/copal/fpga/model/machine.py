# SPDX-License-Identifier: MIT
"""Runs microcode on the model's memories, one instruction after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from copal.fpga import functions
from copal.fpga.config import EngineConfig
from copal.fpga.isa import ErrorCode, Op
from copal.fpga.model.memories import Memories
from copal.fpga.model.operations import Stop, Units
from copal.fpga.model.prepare import Code, Prepared
from copal.fpga.model.timing import Clock, edge_cycles, fetch_cycles
from copal.native import native


@dataclass(frozen=True)
class RunResult:
    """How a RUN ended, and what it took."""

    error: ErrorCode
    """Why it ended early, NONE if it reached END."""
    pc: int
    """Address of the last instruction: END, or the one with the error."""
    cycles: int
    """Clock cycles by the cycle model."""
    slots: int
    """Slots in which the array was enabled."""


class Model:
    """The engine without its ports: memories, and RUN.

    Not for several threads at once.

    Args:
        config: The engine to model.
        use_native: Whether compiled code executes it, thirty times faster; the same
            bits either way.

    Attributes:
        memories: What the engine keeps; may be read and written between RUNs.
    """

    def __init__(self, config: EngineConfig, *, use_native: bool = True) -> None:
        self.config = config
        self.memories = Memories(config)
        self._units = Units(self.memories, config)
        self._code = Code(self.memories.code, config)
        self._machine = self._native_machine() if use_native else None

    def run(self, pc: int = 0, accumulate: bool = False) -> RunResult:
        """Executes the microcode from `pc` to END or to the first error.

        Args:
            pc: Address of the first instruction.
            accumulate: Whether G, GB and RANGE go on from what they hold.
        """
        self._take_new_code()
        self._units.accumulate = accumulate
        if not accumulate:
            self.memories.range.fill(0)
        if self._machine is None:
            with np.errstate(all="ignore"):
                return self._interpret(pc)
        error, *rest = self._machine.run(pc, accumulate)
        return RunResult(ErrorCode(error), *rest)

    def _interpret(self, pc: int) -> RunResult:
        clock, slots = Clock(), 0
        while 0 <= pc < len(self._code.prepared):
            now = self._code.prepared[pc]
            if now.error:
                return RunResult(now.error, pc, clock.total(), slots)
            clock.take(now.cost)
            slots += now.slots
            try:
                self._units.execute[now.instruction.op](now.instruction)
            except Stop as stop:
                return RunResult(stop.code, pc, clock.total(), slots)
            if now.instruction.op == Op.END:
                return RunResult(ErrorCode.NONE, pc, clock.total(), slots)
            pc += 1
        return RunResult(ErrorCode.ADDRESS, pc, clock.total(), slots)

    def _native_machine(self) -> Any:
        config, words = self.config, self.config.depths.code
        machine = native.FpgaMachine(
            self.memories.named(), np.array(list(functions.tables().values())),
            config.array_size, config.a_bits, config.b_bits, config.sum_bits, words,
            fetch_cycles(), edge_cycles(),
        )  # fmt: skip
        for address, now in enumerate(self._code.prepared):
            _set(machine, address, now)
        return machine

    def _take_new_code(self) -> None:
        for address, now in self._code.changed():
            if self._machine is not None:
                _set(self._machine, address, now)


def _set(machine: Any, address: int, now: Prepared) -> None:
    f = now.instruction
    cost = now.cost
    machine.set(
        address, int(f.op), int(now.error), cost.steps, cost.settle, cost.fence, now.slots, f.fields
    )
