# SPDX-License-Identifier: MIT
"""The whole engine behind AXI against the model, bit for bit."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamFrame
from driver import Engine

from bench import STALLS, generator, soak
from copal.fpga.isa import BEATS, Command, ErrorCode, Instruction, Memory, Op, beats, header
from parameters import CONFIG
from random_code import FUNCTIONS, random_instruction

KINDS = [op for op in Op if op != Op.END]
LIMIT = {"timeout_time": 10, "timeout_unit": "sec"}


async def begun(dut: Any) -> Engine:
    """An engine and its model, with the same content."""
    engine = Engine(dut, CONFIG, generator())
    await engine.begin()
    return engine


async def survives(engine: Engine, error: ErrorCode) -> None:
    """After an error nobody knows what was written: fills all memories, and runs."""
    if error:
        await engine.fill()
        assert await engine.run([Instruction(Op.SCALAR, {"index": 9})]) == ErrorCode.NONE


def program(engine: Engine, length: int) -> list[Instruction]:
    """Random instructions, each waiting for the one before."""
    ops = [engine.rng.choice(KINDS) for _ in range(length)]
    code = [random_instruction(op, CONFIG, engine.numpy) for op in ops]
    for instruction in code:
        instruction.fence = 1
        if instruction.op == Op.VECTOR and CONFIG.functions and engine.rng.random() < 0.3:
            instruction.fields["vop"] = engine.rng.choice(FUNCTIONS)
    return code


@cocotb.test(**LIMIT)
async def registers_are_the_models(dut: Any) -> None:
    """Every register but BUILD, under stalls; writing others than CONTROL changes nothing."""
    engine = await begun(dut)
    for share in STALLS:
        engine.stall(share, share)
        for offset in range(0, 0x60, 4):
            if offset == 0x30 or offset in (0x48, 0x4C):
                continue
            await engine.registers.write(offset, b"\0\xff\xff\xff")
            assert await engine.read(offset) == engine.model.read32(offset), hex(offset)


@cocotb.test(**LIMIT)
async def every_instruction_under_every_stall(dut: Any) -> None:
    """One of each kind for every pair of stalls; all memories afterwards."""
    engine = await begun(dut)
    for source in STALLS:
        for sink in STALLS:
            engine.stall(source, sink)
            for op in KINDS:
                instruction = random_instruction(op, CONFIG, engine.numpy)
                error = await engine.run([instruction])
                assert error in (ErrorCode.NONE, ErrorCode.NOT_FINITE), instruction
                await survives(engine, error)
    await engine.compare()


@cocotb.test(**LIMIT)
async def random_programs(dut: Any) -> None:
    """Soak: whole programs, accumulating or not, loads and dumps between; memories compared."""
    engine = await begun(dut)
    for _ in soak():
        engine.stall(engine.rng.choice(STALLS), engine.rng.choice(STALLS))
        for _ in range(5):
            code = program(engine, engine.rng.randint(1, CONFIG.depths.code - 1))
            error = await engine.run(code, accumulate=bool(engine.rng.getrandbits(1)))
            await survives(engine, error)
            memory = engine.rng.choice([Memory.V, Memory.W, Memory.S, Memory.K])
            count = engine.rng.randint(1, 8)
            width = engine.model.model.memories.beats_a_word(memory)
            data = engine.numpy.normal(size=2 * count * width).astype(np.float32).view(np.uint64)
            await engine.packet(
                header(Command.LOAD, memory, engine.rng.randint(0, 24), count), data
            )
        await engine.compare()


@cocotb.test(**LIMIT)
async def malformed_microcode_is_refused(dut: Any) -> None:
    """Soak: flipped bits give the model's error and pc, or its result; the engine lives on."""
    engine = await begun(dut)
    seen: set[ErrorCode] = set()
    for _ in soak():
        for _ in range(8):
            words = beats([*program(engine, engine.rng.randint(1, 4)), Instruction(Op.END)])
            at = engine.rng.randrange(len(words))
            words[at] ^= np.uint64(1 << engine.rng.randrange(64))
            error = await engine.packet(
                header(Command.LOAD, Memory.CODE, 0, len(words) // BEATS), words,
                header(Command.RUN), header(Command.DUMP, Memory.STATUS, 0, 1, last=True),
            )  # fmt: skip
            seen.add(error)
            await survives(engine, error)
        await engine.compare()
    dut._log.info("errors seen: %s", seen)


@cocotb.test(**LIMIT)
async def a_program_without_end_is_an_error(dut: Any) -> None:
    """The fetch behind the last word is error 3."""
    engine = await begun(dut)
    for op in (Op.BROADCAST, Op.SCALAR):
        code = [random_instruction(op, CONFIG, engine.numpy) for _ in range(CONFIG.depths.code)]
        error = await engine.packet(
            header(Command.LOAD, Memory.CODE, 0, len(code)), beats(code),
            header(Command.RUN, address=engine.rng.randrange(len(code))),
            header(Command.DUMP, Memory.STATUS, 0, 1, last=True),
        )  # fmt: skip
        assert error == ErrorCode.ADDRESS


@cocotb.test(**LIMIT)
async def malformed_packets_are_refused(dut: Any) -> None:
    """Truncated, unknown, and beyond a memory: the model's error, and the engine lives on."""
    engine = await begun(dut)
    engine.stall(0.3, 0.3)
    bad: list[tuple[ErrorCode, list[Any]]] = [
        (ErrorCode.COMMAND, [0, np.arange(9)]),
        (ErrorCode.COMMAND, [header(Command.LOAD, Memory.RANGE, 0, 1), 5]),
        (ErrorCode.TRUNCATED, [header(Command.LOAD, Memory.CODE, 0, 2), np.arange(4)]),
        (ErrorCode.TRUNCATED, [header(Command.LOAD, Memory.K, 0, 2)]),
        (ErrorCode.ADDRESS, [header(Command.DUMP, Memory.K, 30, 3, last=True)]),
        (ErrorCode.ADDRESS, [header(Command.DUMP, Memory.STATUS, 0, 2, last=True)]),
        (ErrorCode.ADDRESS, [header(Command.RUN, address=1 << 20)]),
    ]
    for expected, parts in bad:
        assert await engine.packet(*parts) == expected
        await survives(engine, await engine.run(program(engine, 2)))
    await engine.compare([Memory.K, Memory.V])


@cocotb.test(**LIMIT)
async def resets_in_mid_run(dut: Any) -> None:
    """A reset by register or pin at any moment; after it all packets work."""
    engine = await begun(dut)
    for i in range(12):
        engine.stall(engine.rng.choice(STALLS), engine.rng.choice(STALLS))
        words = beats([*program(engine, 8), Instruction(Op.END)])
        packet = np.concatenate([
            [header(Command.LOAD, Memory.CODE, 0, len(words) // BEATS)], words,
            [header(Command.RUN), header(Command.DUMP, Memory.V, 0, 40, last=True)],
        ]).astype(np.uint64)  # fmt: skip
        await engine.source.send(AxiStreamFrame(packet.tobytes()))
        for _ in range(engine.rng.randint(1, 600)):
            await RisingEdge(dut.aclk)
        engine.stall(0.0, 0.0)
        await engine.reset(soft=bool(i % 2))
        # The first packet reads what no interrupted RUN can have changed.
        assert not await engine.packet(header(Command.DUMP, Memory.STATUS, 0, 1, last=True))
        await engine.fill()
        await survives(engine, await engine.run(program(engine, 3)))
        await engine.compare()
