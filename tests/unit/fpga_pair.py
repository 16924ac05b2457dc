# SPDX-License-Identifier: MIT
"""Two engines that get the same packets: the Verilated RTL, and the model that it has to equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from copal.fpga.config import Depths, EngineConfig
from copal.fpga.isa import (
    BEATS,
    Command,
    ErrorCode,
    Instruction,
    Memory,
    Op,
    beats,
    header,
)
from copal.fpga.model.memories import Memories
from copal.fpga.model_device import ModelDevice
from copal.fpga.sim_device import SimDevice

LOADED = (Memory.V, Memory.W, Memory.T, Memory.M, Memory.S, Memory.K)
DUMPED = tuple(m for m in Memory if m not in (Memory.CODE, Memory.STATUS))
SECONDS = 60.0
"""Limit of one exchange."""


class Pair:
    """The RTL and the model of one engine.

    Attributes:
        sim: The RTL.
        model: The model.
        cycles: Of the last RUN: those of the RTL and of the model.
    """

    def __init__(self, sim: SimDevice, config: EngineConfig) -> None:
        self.config = config
        self.sim = sim
        self.model = ModelDevice(config)
        self.cycles = (0, 0)

    def exchange(self, *parts: object, room: int) -> tuple[np.ndarray, np.ndarray]:
        """Sends one packet to both and returns both answers."""
        packet = np.concatenate([np.atleast_1d(np.array(part, np.uint64)) for part in parts])
        answers = []
        for device in (self.sim, self.model):
            tx, rx = device.alloc(len(packet)), device.alloc(room)
            tx[:] = packet
            answers.append(rx[: device.exchange(tx, rx, SECONDS)].copy())
        return answers[0], answers[1]

    def load(self, contents: Mapping[Memory, np.ndarray]) -> None:
        """Loads the first words of memories, given in the model's form."""
        parts: list[object] = []
        for memory, words in contents.items():
            data = np.ascontiguousarray(words).reshape(-1).view(np.uint64)
            count = len(data) // self.memories.beats_a_word(memory)
            parts += [header(Command.LOAD, memory, 0, count), data]
        self._same(*self.exchange(*parts, header(Command.DUMP, Memory.K, 0, 1, last=True), room=8))

    def run(self, code: Iterable[Instruction], *, accumulate: bool = False) -> ErrorCode:
        """Loads and runs `code` and an END; both must end alike, with the same error and pc."""
        words = beats([*code, Instruction(Op.END)])
        return self.run_words(words, accumulate=accumulate)

    def run_words(self, words: np.ndarray, *, accumulate: bool = False) -> ErrorCode:
        """The same for encoded instructions."""
        sim, model = self.exchange(
            header(Command.LOAD, Memory.CODE, 0, len(words) // BEATS), words,
            header(Command.RUN, count=int(accumulate)),
            header(Command.DUMP, Memory.STATUS, 0, 1, last=True), room=8,
        )  # fmt: skip
        assert [hex(x) for x in sim[:1]] == [hex(x) for x in model[:1]], "error, pc"
        error = ErrorCode(int(sim[0]) & 0xFF)
        if error == ErrorCode.NONE:
            assert sim[2] == model[2], "enabled slots"
        self.cycles = (int(sim[1]), int(model[1]))
        return error

    def compare(self, depths: Depths) -> None:
        """Dumps the first words of every memory; both must be the same, bit for bit."""
        for memory in DUMPED:
            words = min(self.memories.words(memory), _words(memory, depths))
            room = words * self.memories.beats_a_word(memory)
            sim, model = self.exchange(header(Command.DUMP, memory, 0, words, last=True), room=room)
            differ = np.flatnonzero(sim != model)
            assert len(sim) == len(model) == room
            assert not len(differ), f"{memory.name}: beats {differ[:8]} of {room} differ"

    @property
    def memories(self) -> Memories:
        """Those of the model."""
        return self.model.model.memories

    @staticmethod
    def _same(sim: np.ndarray, model: np.ndarray) -> None:
        np.testing.assert_array_equal(sim, model)


def _words(memory: Memory, depths: Depths) -> int:
    by_depth = {
        Memory.V: depths.vector,
        Memory.RANGE: depths.range,
        Memory.A: depths.a,
        Memory.B: depths.b,
        Memory.GB: depths.bias,
        Memory.BIAS: depths.bias,
        Memory.K: 32,
    }
    return by_depth.get(memory, depths.parameters)
