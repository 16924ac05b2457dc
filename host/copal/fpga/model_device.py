# SPDX-License-Identifier: MIT
"""A device without hardware: the bit-exact model behind registers and packets."""

from __future__ import annotations

from copal.errors import FpgaError, FpgaTimeoutError
from copal.fpga.buffers import Buffers
from copal.fpga.config import ABI, ID, EngineConfig
from copal.fpga.device import Beats
from copal.fpga.isa import ErrorCode
from copal.fpga.model import Model
from copal.fpga.model.stream import StreamPort

MAX_TRANSFER_BYTES = (1 << 26) - 8
_CONTROL, _STATUS, _CYCLES = 0x40, 0x44, 0x48


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
        if offset == _STATUS:
            failed = int(port.error != ErrorCode.NONE)
            return failed << 1 | int(port.error) << 8 | port.error_pc << 16
        if offset in (_CYCLES, _CYCLES + 4):
            return port.last_run.cycles >> 8 * (offset - _CYCLES) & 0xFFFFFFFF
        return self._registers.get(offset, 0)

    def write32(self, offset: int, value: int) -> None:
        """Writes CONTROL; other registers are read-only."""
        self._check_open()
        if offset == _CONTROL and value & 1:
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
    depths = config.depths
    words = (
        depths.code, depths.vector, depths.a, depths.b,
        depths.parameters, depths.bias, depths.mask, depths.range,
    )  # fmt: skip
    sizes = config.array_size | config.operand_bits << 8
    return {
        0x00: ID,
        0x04: ABI,
        0x08: sizes | config.vector_lanes << 16 | config.adam_lanes << 24,
        0x0C: config.sum_bits | int(config.functions) << 8,
        **{0x10 + 4 * i: depth for i, depth in enumerate(words)},
        0x30: int(config.digest()[:8], 16),
    }
