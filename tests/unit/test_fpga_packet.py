# SPDX-License-Identifier: MIT
"""Packets, registers and the self-test, against the model and devices that misbehave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copal.errors import FpgaError, FpgaTimeoutError
from copal.fpga import registers, selftest
from copal.fpga.config import Depths, EngineConfig
from copal.fpga.device import Beats
from copal.fpga.isa import ErrorCode, Instruction, Memory, Op, beats
from copal.fpga.model_device import ModelDevice
from copal.fpga.packet import Script

CONFIG = EngineConfig(
    array_size=4,
    vector_lanes=2,
    adam_lanes=2,
    depths=Depths(64, 64, 64, 64, 32, 4, 64, 8),
)


@pytest.mark.parametrize("limit", [96, 104, 200, 4096])
def test_long_transfers_are_cut(limit: int, rng: np.random.Generator) -> None:
    """Loads, a RUN and dumps in as many packets as it takes give what one packet gives."""
    device = ModelDevice(CONFIG, max_transfer=limit)
    rows = rng.standard_normal((40, 4)).astype(np.float32)
    fields = {"vop": 2, "cols": 39, "d_c": 1, "x_c": 1, "y_c": 1}
    code = beats([Instruction(Op.VECTOR, fields, fence=1), Instruction(Op.END)])
    script = Script(CONFIG)
    load_code = script.load(Memory.CODE, 3, 2)
    load_rows = script.load(Memory.V, 0, 40)
    script.run(3)
    squares = script.dump(Memory.V, 0, 40)
    exchange = script.ready(device)
    for _ in range(2):
        load_code.put(code)
        load_rows.put(rows)
        status = exchange.send("squares", 1.0)
        assert (status.code, status.runs >= 1) == (ErrorCode.NONE, True)
        np.testing.assert_array_equal(squares.take().view(np.float32), (rows * rows).ravel())
    assert exchange.bytes_sent >= 8 * (10 + 80)
    assert (len(exchange._packets) > 1) == (limit < 1000)


def test_dump_in_front_of_a_run_gives_what_was_there(rng: np.random.Generator) -> None:
    """The answer of a packet is made command by command."""
    rows = rng.standard_normal((1, 4)).astype(np.float32)
    script = Script(CONFIG)
    load_code = script.load(Memory.CODE, 0, 2)
    load_rows = script.load(Memory.V, 0, 1)
    before = script.dump(Memory.V, 0, 1)
    script.run(0)
    after = script.dump(Memory.V, 0, 1)
    exchange = script.ready(ModelDevice(CONFIG))
    load_code.put(beats([Instruction(Op.VECTOR, {"vop": 1}, fence=1), Instruction(Op.END)]))
    load_rows.put(rows)
    exchange.send("doubled", 1.0)
    np.testing.assert_array_equal(before.take().view(np.float32), rows[0])
    np.testing.assert_array_equal(after.take().view(np.float32), 2 * rows[0])


def test_error_ends_an_exchange_of_several_packets() -> None:
    """The next packet would clear it: it is not sent."""
    device = ModelDevice(CONFIG, max_transfer=104)
    script = Script(CONFIG)
    code = script.load(Memory.CODE, 0, 1)
    status = script.run(0)
    script.dump(Memory.V, 0, 40)
    exchange = script.ready(device)
    code.put(beats([Instruction(Op.VECTOR, {"vop": 31})]))
    assert exchange.send("bad", 1.0).code == ErrorCode.FIELD
    assert int(status.take()[0]) & 255 == ErrorCode.FIELD


def test_silence_names_the_transfer() -> None:
    """And the device can be used again."""
    device = ModelDevice(CONFIG)
    script = Script(CONFIG)
    script.dump(Memory.V, 0, 1)
    exchange = script.ready(device)
    device.answering = False
    with pytest.raises(FpgaTimeoutError, match=r"transfer `weights`.*within 0.5 s"):
        exchange.send("weights", 0.5)
    device.answering = True
    exchange.send("weights", 0.5)


@pytest.mark.parametrize("p", [4, 8, 16, 32])
def test_selftest_passes_on_the_model(p: int) -> None:
    """On every size of the array, and with the smallest memories."""
    depths = Depths(16, 2 * p, p, p, 1, 1, 1, 2)
    for a_bits, b_bits in ((16, 16), (18, 18), (18, 25)):
        config = EngineConfig(p, a_bits, b_bits, vector_lanes=p, adam_lanes=p // 2, depths=depths)
        selftest.check(ModelDevice(config))


class Flipped(ModelDevice):
    """A model that answers with one wrong bit."""

    at = 0

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """As the model, but for a bit."""
        count = super().exchange(tx, rx, timeout_s)
        rx[self.at] ^= np.uint64(1 << 40)
        return count


@pytest.mark.parametrize(
    ("at", "what"),
    [(4, "operands A"), (13, "operands B"), (35, "products and vector operations")],
)
def test_selftest_names_what_differs(at: int, what: str) -> None:
    """Beats of an answer: the RUN's status, A, B, V, ranges."""
    device = Flipped(CONFIG)
    device.at = at
    with pytest.raises(FpgaError, match=f"self-test, {what}.*1 of"):
        selftest.check(device)


def test_selftest_reports_an_error_of_the_engine() -> None:
    """A memory that is smaller than the engine says, for instance."""
    small = ModelDevice(replace(CONFIG, depths=replace(CONFIG.depths, a=2)))
    small.config = CONFIG
    with pytest.raises(FpgaError, match="error ADDRESS at pc 0"):
        selftest.check(small)


def test_registers_say_how_the_engine_is_built() -> None:
    """And the first difference to what was expected is named."""
    device = ModelDevice(CONFIG)
    assert registers.read_config(device) == CONFIG
    registers.check_config(device, CONFIG)
    for change, name in (
        ({"sum_bits": 46}, "ACC"),
        ({"b_bits": 20}, "WB"),
        ({"functions": False}, "FUNCTIONS"),
        ({"depths": replace(CONFIG.depths, mask=63)}, "DEPTH_MASK"),
    ):
        with pytest.raises(FpgaError, match=name):
            registers.check_config(device, replace(CONFIG, **change))


def test_sizes_that_no_engine_has_are_refused() -> None:
    """A core of another kind behind the right ID."""
    device = ModelDevice(CONFIG)
    device._registers[registers.SIZES] = 5
    with pytest.raises(FpgaError, match="SIZES"):
        registers.read_config(device)
