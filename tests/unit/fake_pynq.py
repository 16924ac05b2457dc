# SPDX-License-Identifier: MIT
"""A stand-in for the pynq library: an overlay, its DMA in simple mode, and an engine that echoes.

The DMA's registers behave as those of the real one: transfers start when a length is written, a
channel is idle when both ends are done, and the reset bit stays up for a while.
"""

from __future__ import annotations

import struct
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np

from copal.fpga import config
from copal.fpga.config import EngineConfig

HWH = """<?xml version="1.0"?>
<EDKSYSTEM VIVADOVERSION="2024.1">
  <SYSTEMINFO BOARD="x" DEVICE="{device}" NAME="design_1"/>
  <MODULES>
    <MODULE FULLNAME="/ps" INSTANCE="ps" MODTYPE="zynq_ultra_ps_e"><MEMORYMAP>
      <MEMRANGE BASEVALUE="0xA0000000" INSTANCE="axi_dma"/>
      <MEMRANGE BASEVALUE="0xA0010000" INSTANCE="engine"/>
    </MEMORYMAP></MODULE>
    <MODULE FULLNAME="/axi_dma" INSTANCE="axi_dma" MODTYPE="axi_dma"><PARAMETERS>
      <PARAMETER NAME="c_include_sg" VALUE="{sg}"/>
      <PARAMETER NAME="c_sg_length_width" VALUE="{bits}"/>
    </PARAMETERS></MODULE>
    <MODULE FULLNAME="/engine" INSTANCE="engine" MODTYPE="{engine}"/>
  </MODULES>
</EDKSYSTEM>
"""


def write_design(
    folder: Path,
    *,
    part: str = "xczu7ev-ffvc1156-2-e",
    device: str = "xczu7ev",
    bits: int = 16,
    sg: int = 0,
    engine: str = "copal_engine",
) -> Path:
    """Writes a bitstream (a header and no design) and its metadata; returns the bitstream."""

    def field(key: bytes, text: str) -> bytes:
        raw = text.encode() + b"\0"
        return key + struct.pack(">H", len(raw)) + raw

    bit = folder / "copal.bit"
    head = struct.pack(">H", 9) + b"\x0f\xf0" * 4 + b"\0" + b"\0\x01"
    head += field(b"a", "wrapper") + field(b"b", part) + field(b"c", "d") + field(b"d", "t")
    bit.write_bytes(head + b"e" + struct.pack(">I", 4) + b"\xff" * 4)
    (folder / "copal.hwh").write_text(HWH.format(device=device, bits=bits, sg=sg, engine=engine))
    return bit


class Buffer(np.ndarray):
    """Memory with an address."""


class Board:
    """What can be varied: contents of registers, and what goes wrong."""

    def __init__(self) -> None:
        self.config = EngineConfig()
        self.id, self.abi = config.ID, 1
        self.answers = True
        self.error = 0
        self.reset_reads = 3
        self.stuck = False
        self.resets = 0
        self.address = 0xA0010000
        self.fail_alloc = False
        self.devices: list[Any] = [object()]


class Engine:
    """Registers of an engine."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.written: list[tuple[int, int]] = []

    def read(self, offset: int) -> int:
        """The register at `offset`."""
        c, board = self._board.config, self._board
        d = c.depths
        words = {
            0x00: board.id,
            0x04: board.abi,
            0x08: c.array_size | c.a_bits << 8 | c.vector_lanes << 16 | c.adam_lanes << 24,
            0x0C: c.sum_bits | int(c.functions) << 8 | c.b_bits << 16,
        }
        depths = (d.code, d.vector, d.a, d.b, d.parameters, d.bias, d.mask, d.range)
        return {**words, **{0x10 + 4 * i: n for i, n in enumerate(depths)}}.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        """The library takes plain integers alone."""
        assert type(value) is int
        self.written.append((offset, value))


class Registers:
    """Registers of the DMA."""

    def __init__(self, board: Board) -> None:
        self._board, self._down = board, 0
        self.control = {0: 0, 0x30: 0}
        self.pending: dict[int, tuple[Buffer, int]] = {}
        self.received = 0

    def read(self, offset: int) -> int:
        """The register at `offset`."""
        if offset in self.control:
            self._down -= 1
            return 4 if self._down > 0 or self._board.stuck else self.control[offset]
        channel = offset - 4
        idle = 0 if channel in self.pending else 2
        return idle | (0 if self.control[channel] & 1 else 1) | self._board.error

    def write(self, offset: int, value: int) -> None:
        """Control registers alone."""
        if value & 4:
            self.control, self.pending = {0: 0, 0x30: 0}, {}
            self._down, self._board.error = self._board.reset_reads, 0
            self._board.resets += 1
        else:
            self.control[offset] = value

    def start(self, offset: int, buffer: Buffer, nbytes: int) -> None:
        """Begins a transfer; the engine answers a packet with itself, negated bit by bit."""
        self.pending[offset] = (buffer, nbytes)
        if offset == 0 and self._board.answers:
            sent, n = self.pending.pop(0)
            if 0x30 in self.pending:
                into, most = self.pending.pop(0x30)
                n = min(n, most)
                into.view(np.uint8)[:n] = ~sent.view(np.uint8)[:n]
                self.received = n


class Channel:
    """One direction, as in pynq."""

    def __init__(self, registers: Registers, offset: int) -> None:
        self._mmio, self._offset, self._first_transfer = registers, offset, True
        self.transferred = 0

    @property
    def running(self) -> bool:
        """Not halted."""
        return not self._mmio.read(self._offset + 4) & 1

    @property
    def idle(self) -> bool:
        """Nothing under way."""
        return bool(self._mmio.read(self._offset + 4) & 2)

    @property
    def error(self) -> bool:
        """Stopped by an error."""
        return bool(self._mmio.read(self._offset + 4) & 0x70)

    def transfer(self, array: Buffer, nbytes: int = 0) -> None:
        """Begins a transfer."""
        if not self.running:
            raise RuntimeError("DMA channel not started")
        assert isinstance(array, Buffer)
        self._mmio.start(self._offset, array, nbytes or array.nbytes)

    def wait(self) -> None:
        """Spins without limit."""
        assert self.idle, "pynq would spin here for ever"
        self.transferred = self._mmio.received


def module(board: Board) -> types.ModuleType:
    """The library, for `sys.modules`."""
    pynq = types.ModuleType("pynq")
    pynq.__spec__ = ModuleSpec("pynq", None)
    pynq.__version__ = "4.0.0"  # type: ignore[attr-defined]

    def allocate(shape: tuple[int, ...], dtype: Any) -> Buffer:
        if board.fail_alloc:
            raise RuntimeError("Failed to allocate memory!")
        return np.full(shape, 0xAA, dtype).view(Buffer)

    def overlay(bit: str, download: bool = True) -> types.SimpleNamespace:
        registers = Registers(board)
        dma = types.SimpleNamespace(
            sendchannel=Channel(registers, 0),
            recvchannel=Channel(registers, 0x30),
            buffer_max_size=(1 << 26) - 1,
        )
        addresses = {"axi_dma": 0xA0000000, "engine": board.address}
        return types.SimpleNamespace(
            axi_dma=dma,
            engine=Engine(board),
            ip_dict={name: {"phys_addr": a} for name, a in addresses.items()},
        )

    pynq.allocate, pynq.Overlay = allocate, overlay  # type: ignore[attr-defined]
    pynq.Device = types.SimpleNamespace(devices=board.devices)  # type: ignore[attr-defined]
    return pynq
