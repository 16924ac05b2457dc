# SPDX-License-Identifier: MIT
"""A device without hardware: the bit-exact model behind registers and packets."""

from __future__ import annotations

from dataclasses import astuple

from copal.errors import FpgaError, FpgaTimeoutError
from copal.fpga import registers
from copal.fpga.buffers import MAX_TRANSFER_BYTES, Buffers
from copal.fpga.config import ABI, ID, EngineConfig
from copal.fpga.device import Beats
from copal.fpga.isa import ErrorCode
from copal.fpga.model import Model
from copal.fpga.model.stream import StreamPort


class ModelDevice:
    """`FpgaDevice` over `Model`; as fast as the model, and the same bits as the engine.

    Args:
        config: The engine to model.
        max_transfer: Most bytes of one transfer.

    Attributes:
        model: The machine, whose memories tests may look into.
        answering: False makes every exchange time out, as a device that hangs does.
    """

    name = "model"

    def __init__(self, config: EngineConfig, max_transfer: int = MAX_TRANSFER_BYTES) -> None:
        self.config = config
        self.max_transfer = max_transfer
        self.model = Model(config)
        self.answering = True
        self._port = StreamPort(self.model)
        self._buffers = Buffers(max_transfer)
        self._closed = False
        self._registers = _constants(config)

    def read32(self, offset: int) -> int:
        """The register at byte `offset`; 0 where there is none."""
        self._check_open()
        port = self._port
        if offset == registers.STATUS:
            failed = int(port.error != ErrorCode.NONE)
            return failed << 1 | int(port.error) << 8 | port.error_pc << 16
        if offset in (registers.CYCLES, registers.CYCLES + 4):
            return port.last_run.cycles >> 8 * (offset - registers.CYCLES) & 0xFFFFFFFF
        return self._registers.get(offset, 0)

    def write32(self, offset: int, value: int) -> None:
        """Writes CONTROL; other registers are read-only."""
        self._check_open()
        if offset == registers.CONTROL and value & 1:
            self._port.reset()

    def alloc(self, beats: int) -> Beats:
        """See `FpgaDevice`."""
        self._check_open()
        return self._buffers.alloc(beats)

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """See `FpgaDevice`. Nothing is waited for: what cannot come times out at once."""
        self._check_open()
        self._buffers.check("tx", tx)
        self._buffers.check("rx", rx)
        if not len(tx):
            raise FpgaError("tx", "at least one beat", "an empty buffer")
        answer, ended = self._port.packet(tx) if self.answering else (rx[:0], False)
        count = min(len(answer), len(rx))
        rx[:count] = answer[:count]
        complete = ended and len(answer) <= len(rx)
        if self.answering and (complete or not len(rx)):
            return count
        self.reset()
        raise FpgaTimeoutError(
            f"exchange of {len(tx)} beats",
            f"an answer of up to {len(rx)} beats that ends with TLAST within {timeout_s:g} s",
            f"{len(answer)} beats" + ("" if ended or not len(answer) else " without TLAST"),
            "the engine has been reset; its memories keep their content",
        )

    def reset(self) -> None:
        """Stops whatever runs. Memories keep their content."""
        self._check_open()
        self._port.reset()

    def close(self) -> None:
        """Frees the buffers; every other call is refused from now on."""
        self._buffers.free()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise FpgaError("device", "an open device", "one that was closed")


def _constants(config: EngineConfig) -> dict[int, int]:
    sizes = config.array_size | config.a_bits << 8
    return {
        registers.ID: ID,
        registers.ABI: ABI,
        registers.SIZES: sizes | config.vector_lanes << 16 | config.adam_lanes << 24,
        registers.FEATURES: config.sum_bits | int(config.functions) << 8 | config.b_bits << 16,
        **{registers.DEPTHS + 4 * i: depth for i, depth in enumerate(astuple(config.depths))},
        registers.BUILD: int(config.digest()[:8], 16),
    }
