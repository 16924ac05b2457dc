# SPDX-License-Identifier: MIT
"""The stream port of the model: packets of LOAD, RUN and DUMP, and their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copal.fpga.isa import Command, ErrorCode, Memory
from copal.fpga.model.machine import Model, RunResult
from copal.fpga.model.memories import LOADABLE, Beats

STATUS_BEATS = 4
_IDLE = RunResult(ErrorCode.NONE, 0, 0, 0)


@dataclass(frozen=True)
class Header:
    """The first beat of a command."""

    command: int
    """LOAD, RUN or DUMP."""
    memory: int
    """Number of a memory."""
    last: bool
    """Whether the answer ends with TLAST."""
    address: int
    """First word, or the entry point of a RUN."""
    count: int
    """Words; bit 0 for a RUN: accumulate."""

    @classmethod
    def decode(cls, beat: int) -> Header:
        """The header in a 64-bit beat."""
        return cls(
            beat & 0xFF, beat >> 8 & 0x7F, bool(beat >> 15 & 1),
            beat >> 16 & 0xFFFFFF, beat >> 40,
        )  # fmt: skip


class StreamPort:
    """Executes packets on a model, as the engine's port does.

    Attributes:
        error: Of the packet at hand, NONE if there is none.
        error_pc: Address of the instruction with the error.
        last_run: How the last RUN ended.
        runs: RUNs since the reset.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        """Everything but the memories."""
        self.error, self.error_pc = ErrorCode.NONE, 0
        self.last_run, self.runs = _IDLE, 0

    def packet(self, beats: Beats) -> tuple[Beats, bool]:
        """Executes a packet whose last beat has TLAST.

        Returns:
            The beats that were sent until the first TLAST, and whether there was one.
        """
        self.error, self.error_pc = ErrorCode.NONE, 0
        answer: list[Beats] = []
        at, ended = 0, False
        while at < len(beats):
            header = Header.decode(int(beats[at]))
            at += 1
            match header.command:
                case Command.LOAD:
                    at += self._load(header, beats[at:])
                case Command.RUN:
                    self._run(header)
                case Command.DUMP if not ended:
                    answer.append(self._dump(header))
                    ended = header.last
                case Command.DUMP:
                    pass
                case _:
                    self._fail(ErrorCode.COMMAND)
                    break
        return np.concatenate(answer) if answer else np.zeros(0, np.uint64), ended

    def status(self) -> Beats:
        """The four beats of STATUS."""
        head = int(self.error) | self.error_pc << 16
        run = self.last_run
        return np.array([head, run.cycles, run.slots, self.runs], np.uint64)

    def _load(self, header: Header, data: Beats) -> int:
        if header.memory not in LOADABLE:
            self._fail(ErrorCode.COMMAND)
            return len(data)
        memories, memory = self.model.memories, Memory(header.memory)
        beats = header.count * memories.beats_a_word(memory)
        if header.address + header.count > memories.words(memory):
            self._fail(ErrorCode.ADDRESS)
        if self.error == ErrorCode.NONE:
            a_word = memories.beats_a_word(memory)
            memories.load(memory, header.address, data[: min(beats, len(data)) // a_word * a_word])
        if beats > len(data):
            self._fail(ErrorCode.TRUNCATED)
        return beats

    def _run(self, header: Header) -> None:
        if self.error != ErrorCode.NONE:
            return
        self.runs += 1
        self.last_run = self.model.run(header.address, bool(header.count & 1))
        self._fail(self.last_run.error, self.last_run.pc)

    def _dump(self, header: Header) -> Beats:
        if header.memory == Memory.STATUS:
            return np.tile(self.status(), header.count)
        memories = self.model.memories
        if header.memory == Memory.CODE or header.memory not in Memory.__members__.values():
            self._fail(ErrorCode.COMMAND)
            return np.zeros(1, np.uint64)
        memory = Memory(header.memory)
        if header.address + header.count > memories.words(memory):
            self._fail(ErrorCode.ADDRESS)
            return np.zeros(header.count * memories.beats_a_word(memory), np.uint64)
        return memories.dump(memory, header.address, header.count)

    def _fail(self, error: ErrorCode, pc: int = 0) -> None:
        if self.error == ErrorCode.NONE:
            self.error, self.error_pc = error, pc if error else 0
