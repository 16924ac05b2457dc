# SPDX-License-Identifier: MIT
"""The stream port beside a core that only remembers what it was asked."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource
from oracle import Expected, Oracle, packet

from bench import STALLS, generator, pulse, soak, stalls, start
from copal.fpga.isa import Command, Memory, header
from parameters import CONFIG

LATENCY = 5


class Core:
    """Stands in for the engine's core: notes what the port does, answers with made-up numbers."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.stall = 0.0
        self.errors: dict[int, int] = {}
        self.counts = {"cycles": 11, "slots": 22, "runs": 33}
        self.clear()
        for name in ("ld_ready", "rd_ready", "rsp_valid", "rsp_data", "busy", "done"):
            getattr(dut, name).value = 0
        for name in ("run_error", "run_error_pc"):
            getattr(dut, name).value = 0
        for name, value in self.counts.items():
            getattr(dut, name).value = value
        cocotb.start_soon(self._serve())

    def clear(self) -> None:
        """Forgets what was noted and what runs."""
        self.seen = Expected()
        self.sent: list[tuple[int, bool]] = []
        self.pipe: list[int | None] = [None] * LATENCY
        self.left = 0

    @staticmethod
    def value(place: tuple[int, int, int]) -> int:
        """What the memory holds at a place."""
        return hash(("copal", *map(int, place))) & (1 << 64) - 1

    async def _serve(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            dut.ld_ready.value = self.rng.random() >= self.stall
            dut.rd_ready.value = self.rng.random() >= self.stall
            await RisingEdge(dut.clk)
            seen, asked = self.seen, None
            if dut.rst.value:
                self.clear()
                dut.rsp_valid.value = dut.done.value = dut.busy.value = 0
                continue
            if dut.ld_valid.value and dut.ld_ready.value:
                at = (int(dut.ld_mem.value), int(dut.ld_addr.value), int(dut.ld_beat.value))
                seen.loads.append(((Memory(at[0]), *at[1:]), int(dut.ld_data.value)))
            if dut.rd_valid.value and dut.rd_ready.value:
                at = (int(dut.rd_mem.value), int(dut.rd_addr.value), int(dut.rd_beat.value))
                seen.reads.append((Memory(at[0]), *at[1:]))
                asked = self.value(at)
            if dut.m_tvalid.value and dut.m_tready.value:
                self.sent.append((int(dut.m_tdata.value), bool(dut.m_tlast.value)))
            self.pipe.append(asked)
            answer = self.pipe.pop(0)
            dut.rsp_valid.value = answer is not None
            dut.rsp_data.value = answer or 0
            self._run()

    def _run(self) -> None:
        dut = self.dut
        dut.done.value = 0
        if dut.run_valid.value:
            assert not self.left, "a RUN was started in a RUN"
            pc = int(dut.run_pc.value)
            self.seen.runs.append((pc, int(dut.run_accumulate.value)))
            self.left = self.rng.randint(2, 30)
            dut.busy.value = 1
            dut.run_error.value = 0
            self.error = self.errors.get(pc, 0), pc + 1
        elif self.left:
            self.left -= 1
            if not self.left:
                dut.busy.value, dut.done.value = 0, 1
                dut.run_error.value, dut.run_error_pc.value = self.error


class Bench:
    """The port with a source, a sink, its core and its oracle."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, generator()
        self.core, self.oracle = Core(dut, self.rng), Oracle(CONFIG)
        ports = (dut.clk, dut.rst)
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s"), *ports, byte_lanes=1)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m"), *ports, byte_lanes=1)
        for stream in (self.source, self.sink):
            stream.log.setLevel("ERROR")

    def stall(self, source: float, sink: float, core: float) -> None:
        """Sets the shares of waiting cycles."""
        self.source.set_pause_generator(stalls(source, self.rng))
        self.sink.set_pause_generator(stalls(sink, self.rng))
        self.core.stall = core

    async def check(self, beats: list[int]) -> Expected:
        """Sends a packet and compares all that happens with the oracle."""
        self.core.clear()
        want = self.oracle.read(beats, self.core.errors)
        await self.source.send(AxiStreamFrame(beats))
        await with_timeout(self._quiet(want), 5_000, "us")
        seen = self.core.seen
        assert seen.loads == want.loads
        assert seen.reads == want.reads
        assert seen.runs == want.runs
        assert int(self.dut.error.value) == want.error
        assert int(self.dut.error_pc.value) == want.pc
        return want

    async def _quiet(self, want: Expected) -> None:
        """Waits until the port rests, and compares the answer."""
        await self.source.wait()
        while self.dut.active.value or self.dut.s_tvalid.value:
            await RisingEdge(self.dut.clk)
        answer = [self._value(x) for x in want.answer]
        assert [beat for beat, _ in self.core.sent] == answer
        assert [i for i, (_, last) in enumerate(self.core.sent) if last] == want.lasts

    def _value(self, item: Any) -> int:
        if isinstance(item, tuple):
            return self.core.value(item)
        return self.core.counts[item] if isinstance(item, str) else int(item)


@cocotb.test(timeout_time=500, timeout_unit="ms")
async def packets_of_every_size_under_every_stall(dut: Any) -> None:
    """Loads, requests, runs and answers of good packets, whoever waits."""
    bench = Bench(dut)
    await start(dut.clk, dut.rst)
    for source in STALLS:
        for sink in STALLS:
            for core in STALLS:
                bench.stall(source, sink, core)
                for size in (1, 4):
                    beats = packet(bench.oracle, bench.rng, size, 0.0)
                    beats.append(header(Command.DUMP, Memory.STATUS, 0, 1, last=True))
                    want = await bench.check(beats)
                    assert not want.error


@cocotb.test(timeout_time=500, timeout_unit="ms")
async def one_beat_a_cycle(dut: Any) -> None:
    """Without stalls LOAD and DUMP move one beat a cycle."""
    bench = Bench(dut)
    await start(dut.clk, dut.rst)
    width = CONFIG.array_size // 2
    begin = cocotb.simtime.get_sim_time("ns")
    await bench.check([header(Command.LOAD, Memory.V, 0, 60), *range(60 * width)])
    await bench.check([header(Command.DUMP, Memory.V, 0, 60, last=True)])
    cycles = (cocotb.simtime.get_sim_time("ns") - begin) / 10
    assert cycles <= 2 * 60 * width + 40


@cocotb.test(timeout_time=500, timeout_unit="ms")
async def runs_that_fail_end_the_packet(dut: Any) -> None:
    """After a failed RUN no RUN starts and nothing is loaded; the next packet is fine again."""
    bench = Bench(dut)
    await start(dut.clk, dut.rst)
    bench.core.errors = {2: 5}
    run = [header(Command.RUN, address=pc) for pc in range(4)]
    status = header(Command.DUMP, Memory.STATUS, 0, 1, last=True)
    load = [header(Command.LOAD, Memory.K, 0, 2), 7, 8]
    want = await bench.check([*run, *load, status])
    assert (want.error, want.pc, len(want.runs)) == (5, 3, 3)
    want = await bench.check([run[3], *load, status])
    assert (want.error, len(want.loads)) == (0, 2)


@cocotb.test(timeout_time=500, timeout_unit="ms")
async def each_damage_has_its_code(dut: Any) -> None:
    """A word behind the end is error 3, an unknown command 6, a packet cut short 7."""
    bench = Bench(dut)
    await start(dut.clk, dut.rst)
    words, _ = bench.oracle.shape[Memory.K]
    damaged = {
        3: [header(Command.LOAD, Memory.K, words, 1), 7],
        6: [15],
        7: [header(Command.LOAD, Memory.K, 0, 2), 7],
    }
    for error, beats in damaged.items():
        assert (await bench.check(beats)).error == error
        assert not (await bench.check([header(Command.LOAD, Memory.K, 0, 2), 7, 8])).error


@cocotb.test(timeout_time=2000, timeout_unit="ms")
async def malformed_packets_do_no_harm(dut: Any) -> None:
    """Soak: damaged packets have their error code, good ones between them work."""
    bench = Bench(dut)
    await start(dut.clk, dut.rst)
    for _ in soak():
        bench.stall(*(bench.rng.choice(STALLS) for _ in range(3)))
        bench.core.errors = {bench.rng.randrange(bench.oracle.code): bench.rng.randint(1, 5)}
        for _ in range(20):
            beats = packet(bench.oracle, bench.rng, 4, 0.7)
            if len(bench.oracle.read(beats, bench.core.errors).answer) > 4_000:
                continue
            await bench.check(beats)


@cocotb.test(timeout_time=500, timeout_unit="ms")
async def reset_in_a_packet(dut: Any) -> None:
    """A reset in the middle of anything leaves a port that takes the next packet."""
    bench = Bench(dut)
    await start(dut.clk, dut.rst)
    for _ in range(30):
        bench.stall(*(bench.rng.choice(STALLS) for _ in range(3)))
        beats = packet(bench.oracle, bench.rng, 4, 0.5)
        await bench.source.send(AxiStreamFrame(beats))
        for _ in range(bench.rng.randint(1, 120)):
            await RisingEdge(dut.clk)
        bench.source.clear()
        await pulse(dut.clk, dut.rst)
        bench.source.clear()
        assert not dut.active.value
        await bench.check(packet(bench.oracle, bench.rng, 3, 0.0))
