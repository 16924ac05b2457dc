# SPDX-License-Identifier: MIT
"""Runs microcode on the model's memories, one instruction after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copal.errors import ProgramError
from copal.fpga.config import EngineConfig
from copal.fpga.isa import ErrorCode, Instruction, Op
from copal.fpga.model.checks import check
from copal.fpga.model.memories import Memories
from copal.fpga.model.operations import Stop, Units
from copal.fpga.model.timing import cycles, enabled_slots


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
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.memories = Memories(config)
        self._units = Units(self.memories, config)
        self._decoded: dict[bytes, Instruction | ErrorCode] = {}

    def run(self, pc: int = 0, accumulate: bool = False) -> RunResult:
        """Executes the microcode from `pc` to END or to the first error.

        Args:
            pc: Address of the first instruction.
            accumulate: Whether G, GB and RANGE go on from what they hold.
        """
        self._units.accumulate = accumulate
        if not accumulate:
            self.memories.range.fill(0)
        took = slots = 0
        with np.errstate(all="ignore"):
            while True:
                found = self._fetch(pc)
                if isinstance(found, ErrorCode):
                    return RunResult(found, pc, took, slots)
                error = self._execute(found)
                if error or found.op == Op.END:
                    return RunResult(error, pc, took + 1, slots)
                took += cycles(found, self.config)
                slots += enabled_slots(found)
                pc += 1

    def _execute(self, instruction: Instruction) -> ErrorCode:
        if error := check(instruction, self.config):
            return error
        try:
            self._units.execute[instruction.op](instruction)
        except Stop as stop:
            return stop.code
        return ErrorCode.NONE

    def _fetch(self, pc: int) -> Instruction | ErrorCode:
        code = self.memories.code
        if not 0 <= pc < len(code):
            return ErrorCode.ADDRESS
        key = code[pc].tobytes()
        if key not in self._decoded:
            if len(self._decoded) > 8 * len(code):
                self._decoded.clear()
            self._decoded[key] = _decode(int.from_bytes(key, "little"))
        return self._decoded[key]


def _decode(word: int) -> Instruction | ErrorCode:
    try:
        return Instruction.decode(word)
    except ProgramError as error:
        return ErrorCode.OPCODE if error.field == "op" else ErrorCode.FIELD
