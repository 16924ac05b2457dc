# SPDX-License-Identifier: MIT
"""Drives the whole engine and the model with the same packets."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from bench import pulse, stalls, start
from copal.fpga.config import EngineConfig
from copal.fpga.isa import BEATS, Command, ErrorCode, Instruction, Memory, Op, beats, header
from copal.fpga.model.memories import DUMPABLE, LOADABLE, Memories
from copal.fpga.model_device import ModelDevice
from copal.fpga.registers import CONTROL, STATUS
from random_code import fill, fill_program

LIMIT_US = 20_000
"""Longest packet, in simulated time."""


class Engine:
    """The RTL behind AXI, and the model that it has to equal."""

    def __init__(self, dut: Any, config: EngineConfig, rng: random.Random) -> None:
        self.dut, self.config, self.rng = dut, config, rng
        self.numpy = np.random.default_rng(rng.getrandbits(32))
        self.model = ModelDevice(config)
        self.port = self.model._port
        clock = (dut.aclk, dut.aresetn, False)
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), *clock)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), *clock)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), *clock)
        for part in (self.source, self.sink, self.registers.write_if, self.registers.read_if):
            part.log.setLevel("ERROR")
        self.sent: list[tuple[int, bool]] = []

    async def begin(self) -> None:
        """Starts the clock, resets, and fills every memory."""
        await start(self.dut.aclk, self.dut.aresetn, active_level=0)
        cocotb.start_soon(self._watch())
        await self.fill()

    def stall(self, source: float, sink: float) -> None:
        """Sets the shares of waiting cycles."""
        self.source.set_pause_generator(stalls(source, self.rng))
        self.sink.set_pause_generator(stalls(sink, self.rng))
        channels = self.registers.write_if, self.registers.read_if
        for channel in (channels[0].aw_channel, channels[0].w_channel, channels[1].ar_channel):
            channel.set_pause_generator(stalls(source, self.rng))
        for channel in (channels[0].b_channel, channels[1].r_channel):
            channel.set_pause_generator(stalls(sink, self.rng))

    async def read(self, offset: int) -> int:
        """A register of the RTL."""
        return int.from_bytes((await self.registers.read(offset, 4)).data, "little")

    async def reset(self, *, soft: bool) -> None:
        """Resets both in whatever they do, by the register or by the pin.

        As on a board, the stream ends first: its DMA is reset with the engine.
        """
        self.source.assert_reset(True)
        if soft:
            await self.registers.write(CONTROL, b"\1\0\0\0")
            while await self.read(STATUS) & 1:
                pass
        else:
            await pulse(self.dut.aclk, self.dut.aresetn, active_level=0)
        self.source.assert_reset(False)
        self.source.clear()
        self.sent.clear()
        self.model.write32(CONTROL, 1)

    async def packet(self, *parts: Any) -> ErrorCode:
        """Sends a packet to both; answers, error and pc have to be the same."""
        words = np.concatenate([np.atleast_1d(np.array(part, np.uint64)) for part in parts])
        self.sent.clear()
        await self.source.send(AxiStreamFrame(words.tobytes()))
        want = self._answer(words)
        await with_timeout(self._rest(len(want)), LIMIT_US, "us")
        assert len(self.sent) == len(want)
        assert [last for _, last in self.sent] == [last for _, last in want]
        different = [i for i, (got, _) in enumerate(self.sent) if want[i][0] not in (None, got)]
        assert not different, f"beats {different[:8]} of {len(want)}"
        status = await self.read(STATUS)
        assert status == self.model.read32(STATUS), f"STATUS {status:#x}"
        return ErrorCode(status >> 8 & 0xFF)

    def _answer(self, words: np.ndarray) -> list[tuple[int | None, bool]]:
        """What the model answers, and TLAST; None: not compared.

        That is the cycles of a RUN, and the slots of one that ended with an error.
        """
        found: list[tuple[int | None, bool]] = []
        dump = self.port._dump

        def noted(head: Any) -> np.ndarray:
            sent = dump(head)
            values: list[int | None] = [int(x) for x in sent]
            if head.memory == Memory.STATUS and head.count == 1:
                values[1] = None
                values[2] = values[2] if self.port.last_run.error == ErrorCode.NONE else None
            lasts = [False] * (len(values) - 1) + [head.last]
            found.extend(zip(values, lasts, strict=True) if values else ())
            return sent

        self.port._dump = noted  # type: ignore[method-assign]
        self.port.packet(words)
        self.port._dump = dump  # type: ignore[method-assign]
        return found

    async def _rest(self, expected: int) -> None:
        """Waits until the whole packet is in, and the engine rests."""
        await self.source.wait()
        while len(self.sent) < expected or await self.read(STATUS) & 1:
            await RisingEdge(self.dut.aclk)

    async def _watch(self) -> None:
        """Notes every beat of the answers."""
        dut = self.dut
        while True:
            await RisingEdge(dut.aclk)
            if dut.m_axis_tvalid.value and dut.m_axis_tready.value:
                self.sent.append((int(dut.m_axis_tdata.value), bool(dut.m_axis_tlast.value)))

    async def fill(self) -> None:
        """Gives every memory of both the same random content."""
        fresh = Memories(self.config)
        fill(fresh, self.config, self.numpy)
        parts: list[Any] = []
        for memory in sorted(LOADABLE - {Memory.CODE}):
            words = fresh.words(memory)
            parts += [header(Command.LOAD, memory, 0, words), fresh.dump(memory, 0, words)]
        await self.packet(*parts)
        # What NORM goes on from is a memory too.
        program = [*fill_program(self.config), Instruction(Op.NORM, {"first": 1, "count": 3}, 1)]
        for at in range(0, len(program), self.config.depths.code - 1):
            assert not await self.run(program[at : at + self.config.depths.code - 1])

    async def run(self, code: Iterable[Instruction], *, accumulate: bool = False) -> ErrorCode:
        """Loads and runs `code` and an END."""
        words = beats([*code, Instruction(Op.END)])
        return await self.packet(
            header(Command.LOAD, Memory.CODE, 0, len(words) // BEATS), words,
            header(Command.RUN, count=int(accumulate)),
            header(Command.DUMP, Memory.STATUS, 0, 1, last=True),
        )  # fmt: skip

    async def compare(self, memories: Iterable[Memory] = DUMPABLE - {Memory.STATUS}) -> None:
        """Dumps whole memories of both."""
        for memory in memories:
            words = self.model.model.memories.words(memory)
            try:
                await self.packet(header(Command.DUMP, memory, 0, words, last=True))
            except AssertionError as error:
                raise AssertionError(f"{memory.name}: {error}") from error
