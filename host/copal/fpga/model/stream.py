# SPDX-License-Identifier: MIT
"""The stream port of the model: packets of LOAD, RUN and DUMP, and their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copal.fpga.isa import Command, ErrorCode, Memory
from copal.fpga.model.machine import Model, RunResult
from copal.fpga.model.memories import DUMPABLE, LOADABLE, Beats

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

    @property
    def known(self) -> bool:
        """Whether it is a command, and one that its memory takes."""
        if self.command == Command.LOAD:
            return self.memory in LOADABLE
        if self.command == Command.DUMP:
            return self.memory in DUMPABLE
        return self.command == Command.RUN


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
            if not header.known:
                self._fail(ErrorCode.COMMAND)
                break
            if header.command == Command.LOAD:
                at += self._load(header, beats[at:])
            elif header.command == Command.RUN:
                self._run(header)
            else:
                sent = self._dump(header)
                if not ended:
                    answer.append(sent)
                    ended = header.last and header.count > 0
        return np.concatenate(answer) if answer else np.zeros(0, np.uint64), ended

    def status(self) -> Beats:
        """The four beats of STATUS."""
        head = int(self.error) | self.error_pc << 16
        run = self.last_run
        return np.array([head, run.cycles, run.slots, self.runs], np.uint64)

    def _load(self, header: Header, data: Beats) -> int:
        memory = Memory(header.memory)
        beats = header.count * self.model.memories.beats_a_word(memory)
        self._check_range(header, self.model.memories.words(memory))
        if self.error == ErrorCode.NONE:
            self.model.memories.load(memory, header.address, data[:beats])
        if beats > len(data):
            self._fail(ErrorCode.TRUNCATED)
        return beats

    def _run(self, header: Header) -> None:
        if self.error != ErrorCode.NONE:
            return
        if header.address >= self.model.config.depths.code:
            self._fail(ErrorCode.ADDRESS, header.address & 0xFFFF)
            return
        self.runs += 1
        self.last_run = self.model.run(header.address, bool(header.count & 1))
        self._fail(self.last_run.error, self.last_run.pc)

    def _dump(self, header: Header) -> Beats:
        memory = Memory(header.memory)
        if memory == Memory.STATUS:
            inside = self._check_range(header, 1)
            sent = self.status() if inside else np.zeros(4 * header.count, np.uint64)
            return sent[: 4 * header.count]
        memories = self.model.memories
        if self._check_range(header, memories.words(memory)):
            return memories.dump(memory, header.address, header.count)
        return np.zeros(header.count * memories.beats_a_word(memory), np.uint64)

    def _check_range(self, header: Header, words: int) -> bool:
        inside = header.address + header.count <= words
        if not inside:
            self._fail(ErrorCode.ADDRESS)
        return inside

    def _fail(self, error: ErrorCode, pc: int = 0) -> None:
        if self.error == ErrorCode.NONE and error != ErrorCode.NONE:
            self.error, self.error_pc = error, pc
