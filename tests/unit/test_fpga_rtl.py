# SPDX-License-Identifier: MIT
"""The Verilated RTL in this process: equal to the model, its limits, and how it is built."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fpga_pair import LOADED, Pair

from copal.errors import BackendUnavailableError, FpgaError, FpgaTimeoutError
from copal.fpga import build, rtl, tools
from copal.fpga.config import STAGES, EngineConfig
from copal.fpga.engine import COMMON
from copal.fpga.isa import Command, ErrorCode, Instruction, Memory, Op, Vop, header
from copal.fpga.model.memories import Memories
from copal.fpga.sim_device import SimDevice
from random_code import SMALL, fill, fill_program, random_instruction, small_config

#: The engine that training simulates, so that both share a build; tests use its first words.
CONFIG = EngineConfig(array_size=4, vector_lanes=2, adam_lanes=2, depths=COMMON)
KINDS = [op for op in Op if op != Op.END]


@pytest.fixture
def pair(rng: np.random.Generator) -> Iterator[Pair]:
    """RTL and model, every memory full of random numbers."""
    sim = SimDevice(CONFIG, seed=int(rng.integers(1 << 30)))
    made = Pair(sim, CONFIG)
    refill(made, rng)
    yield made
    sim.close()


def refill(pair: Pair, rng: np.random.Generator) -> None:
    """The same random numbers in both."""
    small = replace(CONFIG, depths=SMALL)
    memories = Memories(small)
    fill(memories, small, rng)
    contents = {memory: getattr(memories, memory.name.lower()) for memory in LOADED}
    pair.load({**contents, Memory.K: memories.k.reshape(-1, 2)})
    assert pair.run(fill_program(CONFIG)) == ErrorCode.NONE
    pair.compare(SMALL)


def test_closing_under_an_exchange_frees_the_engine_behind_it() -> None:
    """A run that is stopped closes its device, wherever its learner is; the process lives on."""
    sim = SimDevice(CONFIG)
    tx, rx = sim.alloc(1), sim.alloc(8)
    told: list[str] = []

    def exchange() -> None:
        try:
            sim.exchange(tx, rx, 0.5)
        except FpgaError as error:
            told.append(error.got)

    thread = threading.Thread(target=exchange, daemon=True)
    thread.start()
    end = time.monotonic() + 60.0
    while not sim._use._inside and time.monotonic() < end:
        time.sleep(0.001)
    sim.close()
    with pytest.raises(FpgaError, match="closed"):
        sim.read32(0)
    thread.join(60.0)
    assert told == ["one that was closed meanwhile"]


def test_random_programs_leave_the_same_memories(pair: Pair, rng: np.random.Generator):
    """All instructions and flags, under stalls; results, errors and cycles are the model's."""
    for _ in range(60):
        pair.sim.stall_tx, pair.sim.stall_rx = rng.choice([0.0, 0.3], 2)
        code = [random_instruction(op, CONFIG, rng) for op in rng.choice(KINDS, rng.integers(1, 8))]
        for instruction in code:
            instruction.fence = 1
        error = pair.run(code, accumulate=bool(rng.integers(2)))
        if error != ErrorCode.NONE:
            assert error == ErrorCode.NOT_FINITE
            refill(pair, rng)
            continue
        assert pair.cycles[0] == pair.cycles[1], code
        pair.compare(SMALL)


def test_a_fence_is_as_long_as_the_results_take(pair: Pair, rng: np.random.Generator):
    """Each instruction reads what the one before it wrote last."""
    for _ in range(40):
        code = [short(Op(op), rng) for op in rng.choice(KINDS, 12)]
        if pair.run(code) == ErrorCode.NOT_FINITE:
            refill(pair, rng)
        pair.compare(SMALL)


def short(op: Op, rng: np.random.Generator) -> Instruction:
    """A short instruction on the first words of every memory, with a fence."""
    p = CONFIG.array_size

    def bit() -> int:
        return int(rng.integers(2))

    fields: dict[Op, dict[str, int]] = {
        Op.PRODUCT: {
            "kn": p - 1, "c_i": 1, "a_col": bit(), "b_col": bit(), "use_bias": bit(),
            "shift": 9, "use_mask": bit(), "to_a": bit(), "to_b": bit(), "to_v": bit(),
            "to_g": bit(), "bgrad": bit(), "range": 255,
        },
        Op.VECTOR: {
            "vop": int(rng.choice([Vop.MOV, Vop.ADD, Vop.ITOF, Vop.MIN])), "x_abs": bit(),
            "nt": int(rng.integers(3)), "exponent": 6, "pred": bit(),
        },
        Op.QUANT: {"cols": p, "x_c": 1, "exponent": 8, "to_a": bit(), "to_b": 1, "range": 0},
        Op.UPDATE: {
            "count": p - 1, "adam": bit(), "average": bit(), "copy_w": 1, "copy_t": bit(),
            "at_base": p, "e_g": 9, "e_w": 10, "e_t": 10, "range_w": 1, "range_t": 1,
        },
        Op.NORM: {"count": bit(), "gb": bit(), "first": bit(), "last": 1, "shift": 8},
        Op.BROADCAST: {"lane": int(rng.integers(p)), "target": bit()},
        Op.SCALAR: {"index": 4},
    }  # fmt: skip
    fields[Op.UPDATE] |= {"bias": 1, "count": 0, "bt_base": 1} if bit() else {}
    return Instruction(op, fields[op], fence=1)


def error_of(pair: Pair, code: list[Instruction]) -> tuple[int, int]:
    """Error and pc of a RUN of the RTL alone."""
    words = [ins.encode() >> 64 * i & (1 << 64) - 1 for ins in code for i in range(5)]
    head = header(Command.LOAD, Memory.CODE, 0, len(code) + 1)
    tail = [header(Command.RUN), header(Command.DUMP, Memory.STATUS, 0, 1, last=True)]
    packet = [head, *words, *[0] * 5, *tail]
    tx, rx = pair.sim.alloc(len(packet)), pair.sim.alloc(4)
    tx[:] = packet
    assert pair.sim.exchange(tx, rx, 10.0) == 4
    return int(rx[0]) & 0xFF, int(rx[0]) >> 16


def test_two_units_that_write_at_once_are_an_error(pair: Pair, rng: np.random.Generator):
    """Rows of QUANT and of the array meet where a fence was left out; the engine lives on."""
    p = CONFIG.array_size
    quant = {"cols": 4 * p, "mt": 3, "nt": 3, "c_m": 4 * p, "c_n": p, "to_b": 1, "range": 255}
    product = {"mt": 3, "nt": 3, "kn": p - 1, "c_m": 4 * p, "c_n": p, "c_i": 1, "range": 255}
    code = [Instruction(Op.QUANT, quant), Instruction(Op.PRODUCT, {**product, "to_a": 1})]
    assert error_of(pair, code) == (ErrorCode.CONFLICT, 1)
    refill(pair, rng)


def test_the_last_writes_of_a_run_that_meet_are_an_error(pair: Pair, rng: np.random.Generator):
    """Parts of a word of VECTOR and one of BROADCAST; for the last one END has waited as well."""
    found = []
    for slots in range(STAGES["vec"] + 8):
        norm = Instruction(Op.NORM, {"first": 1, "count": slots})
        code = [Instruction(Op.VECTOR, {}), norm, Instruction(Op.BROADCAST, {})]
        found.append(error_of(pair, code)[0])
    parts = CONFIG.array_size // CONFIG.vector_lanes
    first = found.index(ErrorCode.CONFLICT)
    assert found[first : first + parts] == [ErrorCode.CONFLICT] * parts
    assert found.count(ErrorCode.NONE) == len(found) - parts
    refill(pair, rng)


def test_an_exchange_ends_after_its_cycles(pair: Pair):
    """The error counts beats and cycles; the engine has been reset and works."""
    pair.sim.max_cycles = 5_000
    long = Instruction(Op.VECTOR, {"cols": 4095, "nt": 400, "x_imm": 1, "pred": 2}, fence=1)
    with pytest.raises(FpgaTimeoutError, match=r"after 5000 cycles\n.*memories keep") as caught:
        pair.run([long])
    assert "exchange of 13 beats" in str(caught.value)
    pair.sim.max_cycles = 1_000_000
    assert pair.sim.read32(0x44) == 0
    pair.compare(SMALL)


def test_an_answer_longer_than_its_buffer_is_refused(pair: Pair):
    """One beat too many is not thrown away silently."""
    tx, rx = pair.sim.alloc(1), pair.sim.alloc(3)
    tx[0] = header(Command.DUMP, Memory.STATUS, 0, 1, last=True)
    with pytest.raises(FpgaTimeoutError, match="3 beats without TLAST and one more"):
        pair.sim.exchange(tx, rx, 10.0)
    with pytest.raises(FpgaError, match="a view"):
        pair.sim.exchange(tx, pair.sim.alloc(8)[:4], 10.0)
    with pytest.raises(FpgaError, match="at least one beat"):
        pair.sim.exchange(pair.sim.alloc(0), rx, 10.0)


def test_memories_start_with_the_numbers_of_the_seed():
    """Nothing may depend on memories that happen to be zero."""
    found = []
    for seed in (1, 1, 2):
        device = SimDevice(CONFIG, seed=seed)
        tx, rx = device.alloc(2), device.alloc(4)
        tx[0] = header(Command.DUMP, Memory.W, 0, 1)
        tx[1] = header(Command.DUMP, Memory.A, 0, 1, last=True)
        assert device.exchange(tx, rx, 10.0) == 4
        found.append(rx.copy())
        device.close()
        device.close()
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    assert np.all(found[2] != 0)


def test_a_closed_device_refuses_calls(pair: Pair):
    """Rather than crash the process."""
    device = SimDevice(CONFIG)
    device.close()
    for call in (lambda: device.read32(0), lambda: device.alloc(1), lambda: device.cycles):
        with pytest.raises(FpgaError, match="closed"):
            call()


def test_registers_are_those_of_the_model(pair: Pair):
    """All that never change, and those of the last RUN."""
    for offset in (*range(0x00, 0x30, 4), 0x44, 0x48, 0x4C, 0x7C):
        assert pair.sim.read32(offset) == pair.model.read32(offset), hex(offset)


def test_a_build_is_named_by_configuration_and_sources(monkeypatch: pytest.MonkeyPatch):
    """Another engine or another compiler is another build."""
    name = build.digest(CONFIG)
    assert name == build.digest(EngineConfig(**vars(CONFIG)))
    assert name != build.digest(replace(CONFIG, functions=False))
    monkeypatch.setattr(build.importlib.metadata, "version", lambda _: "0.0")
    assert name != build.digest(CONFIG)


def test_a_failed_build_names_the_tool_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What the tool said is in the hint; the next try starts afresh."""
    monkeypatch.setenv("COPAL_CACHE", str(tmp_path))

    def generate(config: EngineConfig, out: Path, *_: Any) -> list[Path]:
        path = out / "broken.v"
        path.write_text("module copal_engine(input wire aclk; endmodule\n")
        return [path]

    monkeypatch.setattr(rtl, "generate", generate)
    with pytest.raises(FpgaError, match=r"`verilator`.*\n.*broken\.v"):
        build.build(CONFIG)
    assert [p.suffix for p in (tmp_path / "fpga" / "sim").iterdir()] == [".lock"]


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With the command that installs them."""
    monkeypatch.setenv("COPAL_CACHE", str(tmp_path))
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(BackendUnavailableError, match=r"copal-rl\[sim\]"):
        SimDevice(CONFIG)


def test_a_source_that_does_not_compile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The module, and what the compiler said."""
    hls = rtl.generator()
    (tmp_path / "rotate.x").write_text("pub fn rotate(x: u8) -> u9 { x }\n")
    monkeypatch.setattr(hls, "DSLX", tmp_path)
    with pytest.raises(FpgaError, match=r"rotate\.x: .*u9|rotate\.x: .*uN\[9\]"):
        rtl.generate(CONFIG, tmp_path / "out", ["rotate.v"])


@pytest.mark.parametrize("p", [4, 32])
def test_a_row_is_generated_once(p: int, tmp_path: Path):
    """However many there are; shells come with it, and widths that they need."""
    names = ("row.v", "pick.v", "drain.v", "rotate.v")
    files = rtl.generate(small_config(p), tmp_path, names)
    written = {path.name: path for path in files}
    assert set(names) | {"engine.v", "copal_params.vh"} <= set(written)
    assert written["row.v"].read_text().count("endmodule") == 1
    bits = p * 48 + 18 + 16
    assert f"`define COPAL_BITS_OF_ROW {bits}\n" in written["copal_params.vh"].read_text()
