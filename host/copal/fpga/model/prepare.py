# SPDX-License-Identifier: MIT
"""Decodes, checks and times the microcode once, so that a RUN only has to execute it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from copal.errors import ProgramError
from copal.fpga.config import EngineConfig
from copal.fpga.isa import ErrorCode, Instruction, Op
from copal.fpga.model.checks import check
from copal.fpga.model.memories import Beats
from copal.fpga.model.timing import Cost, cost, enabled_slots


@dataclass(frozen=True)
class Prepared:
    """An instruction that is ready to be executed."""

    instruction: Instruction
    """Its fields; an END if they could not be decoded."""
    error: ErrorCode
    """That its fields or addresses have, which ends the RUN."""
    cost: Cost
    """What it takes of the engine's time."""
    slots: int
    """Slots in which the array adds products."""


class Code:
    """Follows the CODE memory and keeps what it holds prepared.

    Attributes:
        prepared: One an address.
    """

    def __init__(self, memory: Beats, config: EngineConfig) -> None:
        self._memory, self._config = memory, config
        self._known: dict[bytes, Prepared] = {}
        self._seen = memory.copy()
        self.prepared = [self._prepare(row.tobytes()) for row in memory]

    def changed(self) -> Iterator[tuple[int, Prepared]]:
        """Prepares what differs from the last call, and tells it with its address."""
        if self._seen.tobytes() == self._memory.tobytes():
            return
        for address in (self._seen != self._memory).any(axis=1).nonzero()[0].tolist():
            self.prepared[address] = self._prepare(self._memory[address].tobytes())
            yield address, self.prepared[address]
        self._seen[:] = self._memory

    def _prepare(self, word: bytes) -> Prepared:
        if word not in self._known:
            # Exponents change with time; what is no longer in the memory is forgotten.
            if len(self._known) > 8 * len(self._memory):
                self._known.clear()
            self._known[word] = _prepared(int.from_bytes(word, "little"), self._config)
        return self._known[word]


def _prepared(word: int, config: EngineConfig) -> Prepared:
    end = Instruction(Op.END)
    try:
        f = Instruction.decode(word)
    except ProgramError as error:
        code = ErrorCode.OPCODE if error.field == "op" else ErrorCode.FIELD
        return Prepared(end, code, cost(end, config), 0)
    return Prepared(f, check(f, config), cost(f, config), enabled_slots(f))
