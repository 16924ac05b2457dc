# SPDX-License-Identifier: MIT
"""The model device: registers, packets with every kind of fault, buffers, timeouts."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from copal.errors import FpgaError, FpgaTimeoutError
from copal.fpga.config import ABI, ID
from copal.fpga.isa import Command, ErrorCode, Instruction, Memory, Op, beats, header
from copal.fpga.model_device import ModelDevice
from random_code import fill, small_config

STATUS = header(Command.DUMP, Memory.STATUS, 0, 1, last=True)
DUMPED = [m for m in Memory if m not in (Memory.CODE, Memory.STATUS)]


@pytest.fixture
def device(rng: np.random.Generator) -> ModelDevice:
    """A small engine with random memories and code that copies V[0] lane 0 to K[5]."""
    config = small_config(4)
    device = ModelDevice(config)
    fill(device.model.memories, config, rng)
    code = beats([Instruction(Op.SCALAR, {"index": 5}), Instruction(Op.END), Instruction(Op.NORM)])
    device.model.memories.load(Memory.CODE, 0, code)
    return device


def send(device: ModelDevice, *parts: object, room: int = 64) -> np.ndarray:
    """Sends headers and data as one packet and returns the answer."""
    packet = np.concatenate([np.atleast_1d(np.array(x, np.uint64)) for x in parts])
    tx, rx = device.alloc(len(packet)), device.alloc(room)
    tx[:] = packet
    return rx[: device.exchange(tx, rx, 1.0)].copy()


def code_of(status: np.ndarray) -> tuple[int, int]:
    """Error and pc in STATUS."""
    return int(status[-4]) & 0xFF, int(status[-4]) >> 16


def random_beats(rng: np.random.Generator, count: int) -> np.ndarray:
    """Data of any bits."""
    return rng.integers(0, 1 << 63, count, dtype=np.uint64) << np.uint64(1)


def test_registers_describe_the_engine(device: ModelDevice):
    """Identity, sizes, features, depths, and the state of a fresh engine."""
    assert (device.read32(0), device.read32(4)) == (ID, ABI)
    assert device.read32(8) == 4 | 18 << 8 | 2 << 16 | 2 << 24
    assert device.read32(0xC) == 48 | 1 << 8 | 22 << 16
    assert [device.read32(0x10 + 4 * i) for i in range(8)] == [16, 160, 256, 256, 256, 24, 256, 8]
    assert device.read32(0x44) == 0
    assert device.read32(0xFC) == 0


@pytest.mark.parametrize("memory", [Memory.V, Memory.W, Memory.T, Memory.M, Memory.S, Memory.K])
def test_load_and_dump_give_the_same_beats(
    memory: Memory, device: ModelDevice, rng: np.random.Generator
):
    """Any bits, in every memory that can be loaded, words outside left alone."""
    memories = device.model.memories
    count = int(rng.integers(1, 6))
    at = int(rng.integers(1, memories.words(memory) - count))
    data = random_beats(rng, count * memories.beats_a_word(memory))
    around = memories.dump(memory, 0, at), memories.dump(memory, at + count, 1)
    load = header(Command.LOAD, memory, at, count)
    dump = header(Command.DUMP, memory, at, count, last=True)
    np.testing.assert_array_equal(send(device, load, data, dump), data)
    np.testing.assert_array_equal(memories.dump(memory, 0, at), around[0])
    np.testing.assert_array_equal(memories.dump(memory, at + count, 1), around[1])


def test_words_travel_lane_0_first(device: ModelDevice):
    """Two float32 lanes a beat, low bits first; two registers of K a beat."""
    lanes = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    data = lanes.view(np.uint64)
    send(device, header(Command.LOAD, Memory.V, 7, 1), data, STATUS)
    np.testing.assert_array_equal(device.model.memories.v[7], lanes)
    send(device, header(Command.LOAD, Memory.K, 8, 2), data, STATUS)
    np.testing.assert_array_equal(device.model.memories.k[16:20, 0], lanes)


@pytest.mark.parametrize("memory", DUMPED)
def test_every_memory_can_be_dumped(memory: Memory, device: ModelDevice):
    """As many beats as its words have; several dumps make one answer."""
    a_word = device.model.memories.beats_a_word(memory)
    one = header(Command.DUMP, memory, 1, 2)
    answer = send(device, one, one, STATUS)
    assert len(answer) == 4 * a_word + 4
    np.testing.assert_array_equal(answer[: 2 * a_word], answer[2 * a_word : 4 * a_word])
    if memory == Memory.BIAS:
        np.testing.assert_array_equal(
            answer[:8].view(np.int64), device.model.memories.bias[1:3].reshape(-1)
        )


def test_run_reports_its_cycles_and_counts(device: ModelDevice):
    """STATUS and the registers after one RUN and after two."""
    run = header(Command.RUN, 0, 0, 0)
    status = send(device, run, STATUS)
    assert code_of(status) == (0, 0)
    assert device.model.memories.k[5, 0] == device.model.memories.v[0, 0]
    assert status[1] == device.read32(0x48) > 0
    assert device.read32(0x4C) == 0
    assert status[2:].tolist() == [0, 1]
    assert send(device, run, run, STATUS)[3] == 3


def test_run_error_skips_runs_and_loads_until_the_next_packet(device: ModelDevice):
    """DUMPs are still answered."""
    memories = device.model.memories
    memories.code[0, 0] = 15
    before = memories.v.copy()
    load = header(Command.LOAD, Memory.V, 0, 1)
    dump = header(Command.DUMP, Memory.V, 0, 1)
    run = header(Command.RUN)
    answer = send(device, run, load, [1, 2], dump, run, STATUS)
    np.testing.assert_array_equal(answer[:2], before[0].view(np.uint64))
    assert code_of(answer) == (ErrorCode.OPCODE, 0)
    assert answer[-1] == 1
    assert device.read32(0x44) == 1 << 1 | 1 << 8
    assert code_of(send(device, header(Command.RUN, 0, 1), STATUS)) == (0, 0)


def test_accumulate_is_bit_0_of_count(device: ModelDevice):
    """A RUN that accumulates leaves RANGE alone."""
    device.model.memories.range[:] = 9
    send(device, header(Command.RUN, 0, 0, 1), STATUS)
    assert device.model.memories.range[0, 0] == 9
    send(device, header(Command.RUN, 0, 0, 0), STATUS)
    assert device.model.memories.range[0, 0] == 0


FAULTS = {
    "load beyond": ([header(Command.LOAD, Memory.V, 159, 2), 1, 2, 3, 4], ErrorCode.ADDRESS, 0),
    "dump beyond": ([header(Command.DUMP, Memory.W, 256, 1)], ErrorCode.ADDRESS, 2),
    "run beyond": ([header(Command.RUN, 0, 16)], ErrorCode.ADDRESS, 0),
    "status beyond": ([header(Command.DUMP, Memory.STATUS, 1, 1)], ErrorCode.ADDRESS, 4),
}


@pytest.mark.parametrize("case", FAULTS)
def test_commands_beyond_a_memory_do_nothing(case: str, device: ModelDevice):
    """Error 3, answers of the right length, and the packet goes on."""
    parts, code, sent = FAULTS[case]
    before = device.model.memories.v.copy()
    answer = send(device, *parts, header(Command.RUN), STATUS)
    assert code_of(answer)[0] == code
    assert code_of(answer)[1] == (16 if case == "run beyond" else 0)
    assert len(answer) == sent + 4
    assert answer[-1] == 0
    np.testing.assert_array_equal(device.model.memories.v, before)


SILENT = {
    "unknown command": ([header(Command.LOAD) | 8, STATUS], ErrorCode.COMMAND),
    "unknown memory": ([header(Command.DUMP, Memory.STATUS + 1, 0, 1), STATUS], ErrorCode.COMMAND),
    "load of a result": ([header(Command.LOAD, Memory.G, 0, 1), 1, 2, STATUS], ErrorCode.COMMAND),
    "dump of code": ([header(Command.DUMP, Memory.CODE, 0, 1), STATUS], ErrorCode.COMMAND),
    "cut load": ([header(Command.LOAD, Memory.V, 0, 2), 1, 2, STATUS], ErrorCode.TRUNCATED),
    "bare load": ([header(Command.LOAD, Memory.V, 0, 1)], ErrorCode.TRUNCATED),
}


@pytest.mark.parametrize("case", SILENT)
def test_packets_that_cannot_be_followed_are_swallowed(case: str, device: ModelDevice):
    """Nothing is answered, so the wait ends with a timeout; the next packet works."""
    parts, code = SILENT[case]
    tx = device.alloc(len(parts))
    tx[:] = parts
    assert device.exchange(tx, device.alloc(0), 1.0) == 0
    assert device.read32(0x44) == 1 << 1 | int(code) << 8
    with pytest.raises(FpgaTimeoutError, match="0 beats"):
        device.exchange(tx, device.alloc(4), 1.0)
    assert code_of(send(device, header(Command.RUN), STATUS)) == (0, 0)


def test_cut_load_keeps_the_beats_that_came(device: ModelDevice):
    """The last word may have been written in part."""
    memories = device.model.memories
    before = memories.v.copy()
    tx = device.alloc(4)
    tx[:] = [header(Command.LOAD, Memory.V, 3, 2), 1, 2, 3]
    device.exchange(tx, device.alloc(0), 1.0)
    np.testing.assert_array_equal(memories.v[3].view(np.uint64), [1, 2])
    assert memories.v[4].view(np.uint64)[0] == 3
    np.testing.assert_array_equal(memories.v[4, 2:], before[4, 2:])


def test_only_whole_buffers_of_the_device_are_taken(device: ModelDevice):
    """Views, strided views, copies and other objects are refused by name."""
    tx, rx = device.alloc(2), device.alloc(8)
    tx[:] = [header(Command.RUN), STATUS]
    for wrong, kind in (
        (tx[:1], "a view, uint64"),
        (device.alloc(4)[::2], "a strided view"),
        (tx.copy(), "an array of its own"),
        ([1, 2], "list"),
    ):
        with pytest.raises(FpgaError, match=f"`tx`.*{kind}"):
            device.exchange(wrong, rx, 1.0)
        with pytest.raises(FpgaError, match=f"`rx`.*{kind}"):
            device.exchange(tx, wrong, 1.0)
    assert device.read32(0x48) == 0
    assert device.exchange(tx, rx, 1.0) == 4


def test_buffers_of_another_device_and_dead_ones_are_unknown(device: ModelDevice):
    """An identity that is used again is no pass."""
    other = ModelDevice(small_config(4))
    with pytest.raises(FpgaError, match="whole buffer"):
        device.exchange(other.alloc(1), device.alloc(4), 1.0)
    for _ in range(50):
        device.alloc(4)
    gc.collect()
    assert not device._buffers._lent


def test_transfers_have_a_limit(device: ModelDevice):
    """Larger buffers are refused, with the number of bytes; so is an empty packet."""
    small = ModelDevice(small_config(4), max_transfer=64)
    assert len(small.alloc(8)) == 8
    with pytest.raises(FpgaError, match=r"64 bytes.*72 bytes"):
        small.alloc(9)
    with pytest.raises(FpgaError, match="empty"):
        device.exchange(device.alloc(0), device.alloc(0), 1.0)


@pytest.mark.parametrize(
    ("room", "parts"), [(3, [STATUS]), (8, [header(Command.DUMP, Memory.V, 0, 1)]), (8, [])]
)
def test_answers_that_do_not_end_time_out(room: int, parts: list[int], device: ModelDevice):
    """Too little room, no TLAST, no answer: the transfer is named and the engine reset."""
    packet = [header(Command.RUN), *parts]
    tx, rx = device.alloc(len(packet)), device.alloc(room)
    tx[:] = packet
    with pytest.raises(FpgaTimeoutError, match=f"exchange of {len(packet)} beats.*up to {room}"):
        device.exchange(tx, rx, 0.5)
    assert device.read32(0x48) == 0


def test_device_that_stopped_answering_times_out_and_recovers(device: ModelDevice):
    """Nothing was executed, memories stay."""
    before = device.model.memories.k.copy()
    device.answering = False
    with pytest.raises(FpgaTimeoutError, match=r"within 0\.5 s.*0 beats"):
        send_with_limit(device)
    np.testing.assert_array_equal(device.model.memories.k, before)
    device.answering = True
    assert send_with_limit(device) == 4


def send_with_limit(device: ModelDevice) -> int:
    """A RUN and its STATUS within half a second."""
    tx, rx = device.alloc(2), device.alloc(4)
    tx[:] = [header(Command.RUN), STATUS]
    return device.exchange(tx, rx, 0.5)


def test_reset_forgets_errors_and_counts_but_no_memory(device: ModelDevice):
    """Through the register and through the call."""
    before = device.model.memories.v.copy()
    for reset in (device.reset, lambda: device.write32(0x40, 1)):
        send(device, header(Command.RUN, 0, 16), STATUS)
        assert device.read32(0x44) != 0
        reset()
        assert device.read32(0x44) == 0
    assert send(device, header(Command.RUN), STATUS)[3] == 1
    np.testing.assert_array_equal(device.model.memories.v, before)


def test_closed_device_refuses_everything_but_close(device: ModelDevice):
    """With a typed error."""
    device.close()
    device.close()
    for call in (lambda: device.read32(0), lambda: device.alloc(1), device.reset):
        with pytest.raises(FpgaError, match="closed"):
            call()
