# SPDX-License-Identifier: MIT
"""Two engines that get the same packets: the Verilated RTL, and the model that it has to equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from copal.fpga.config import EngineConfig
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
        """Loads whole memories, given in the model's form."""
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

    def compare(self) -> None:
        """Dumps every memory; both must be the same, bit for bit."""
        for memory in DUMPED:
            words = self.memories.words(memory)
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


def fill_program(config: EngineConfig) -> list[Instruction]:
    """Code that fills what cannot be loaded: A, B, G, GB, BIAS, MASK, from V, W and T.

    For the depths of `fpga_random.SMALL` and P of 4 and 8.
    """
    p = config.array_size
    m, n = 64 // p, 4
    tiles = {"mt": m - 1, "nt": n - 1, "c_m": n * p, "c_n": p}
    product = {
        **tiles, "c_i": 1, "kn": p, "a_m": 1, "a_k": 1, "a_col": 1, "b_n": 3, "b_k": 1,
        "range": 255,
    }  # fmt: skip
    quant = {**tiles, "cols": 64, "x_c": 2, "range": 255, "exponent": 12}
    bias = {"bias": 1, "count": 11, "bt_base": 12, "copy_w": 1, "copy_t": 1, "e_w": 20, "e_t": 22}
    column = {"mt": 11, "kn": p + 3, "a_m": 1, "a_k": 2, "bgrad": 1, "range": 255}
    return [
        Instruction(Op.QUANT, {**quant, "to_a": 1}, fence=1),
        Instruction(Op.QUANT, {**quant, "to_b": 1, "x_base": 9}, fence=1),
        Instruction(Op.PRODUCT, {**product, "to_g": 1, "shift": 3}, fence=1),
        Instruction(Op.PRODUCT, {**product, "relu": 1, "b_col": 1}, fence=1),
        Instruction(Op.PRODUCT, column, fence=1),
        Instruction(Op.PRODUCT, {**column, "bias_base": 12, "a_base": 5, "a_col": 1}, fence=1),
        Instruction(Op.UPDATE, {**bias, "range_w": 255, "range_t": 255}, fence=1),
    ]
