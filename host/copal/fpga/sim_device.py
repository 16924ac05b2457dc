# SPDX-License-Identifier: MIT
"""A device without hardware: the engine's RTL, Verilated into this process."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from copal.errors import FpgaError, FpgaTimeoutError
from copal.fpga import registers
from copal.fpga.buffers import MAX_TRANSFER_BYTES, Buffers
from copal.fpga.build import build
from copal.fpga.config import EngineConfig
from copal.fpga.device import Beats
from copal.fpga.in_use import InUse

_RESET_CYCLES = 300
_TIMEOUT, _OVERFLOW = 1, 2


class SimDevice:
    """`FpgaDevice` over the Verilated RTL; built first unless it is in the cache.

    Args:
        config: The engine to simulate.
        seed: Of the random content that memories and registers start with, and of the stalls.
        stall_tx: Share of cycles, 0 to 1, in which the host has no beat to send.
        stall_rx: Share of cycles, 0 to 1, in which the host takes no beat.
        max_cycles: Most cycles of one exchange.
        max_transfer: Most bytes of one transfer.

    Raises:
        BackendUnavailableError: A tool to build the engine is missing.
        FpgaError: The engine does not build.
    """

    name = "sim"

    def __init__(
        self,
        config: EngineConfig,
        *,
        seed: int = 0,
        stall_tx: float = 0.0,
        stall_rx: float = 0.0,
        max_cycles: int = 1_000_000_000,
        max_transfer: int = MAX_TRANSFER_BYTES,
    ) -> None:
        self.config = config
        self.max_transfer = max_transfer
        self.max_cycles = max_cycles
        self.stall_tx, self.stall_rx = stall_tx, stall_rx
        self._buffers = Buffers(max_transfer)
        self._library = _load(build(config))
        self._engine: int = self._library.sim_new(seed)
        self._use = InUse(self._free)

    @property
    def cycles(self) -> int:
        """Clock cycles since the device was opened."""
        with self._use:
            return int(self._library.sim_cycles(self._engine))

    def read32(self, offset: int) -> int:
        """The register at byte `offset`; 0 where there is none."""
        value = ctypes.c_uint32()
        with self._use:
            failed = self._library.sim_read32(self._engine, offset, ctypes.byref(value))
        if failed:
            raise FpgaTimeoutError(f"register {offset:#x}", "an answer", "none")
        return value.value

    def write32(self, offset: int, value: int) -> None:
        """Writes the register at byte `offset`."""
        with self._use:
            failed = self._library.sim_write32(self._engine, offset, value)
        if failed:
            raise FpgaTimeoutError(f"register {offset:#x}", "an acknowledgement", "none")

    def alloc(self, beats: int) -> Beats:
        """See `FpgaDevice`."""
        with self._use:
            return self._buffers.alloc(beats)

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """See `FpgaDevice`. Limited by `max_cycles` too."""
        with self._use:
            self._buffers.check("tx", tx)
            self._buffers.check("rx", rx)
            if not len(tx):
                raise FpgaError("tx", "at least one beat", "an empty buffer")
            return self._exchange(tx, rx, timeout_s)

    def _exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        counts = np.zeros(2, np.uint64)
        before = self.cycles
        status = self._library.sim_exchange(
            self._engine, tx.ctypes.data, len(tx), rx.ctypes.data, len(rx),
            round(self.stall_tx * 65536), round(self.stall_rx * 65536),
            self.max_cycles, timeout_s, counts.ctypes.data,
        )  # fmt: skip
        sent, received = (int(count) for count in counts)
        if status:
            if self._use.closed:
                raise FpgaError("device", "an open device", "one that was closed meanwhile")
            took = self.cycles - before
            self.reset()
            raise FpgaTimeoutError(
                f"exchange of {len(tx)} beats",
                f"an answer of up to {len(rx)} beats that ends with TLAST within {timeout_s:g} s "
                f"and {self.max_cycles} cycles",
                f"{sent} beats taken, {received} beats"
                + (" without TLAST" if received else "")
                + (" and one more" if status == _OVERFLOW else "")
                + f" after {took} cycles",
                "the engine has been reset; its memories keep their content",
            )
        return received

    def idle(self, cycles: int) -> None:
        """Lets clock cycles go by."""
        with self._use:
            self._library.sim_idle(self._engine, cycles)

    def reset(self) -> None:
        """Stops whatever runs. Memories keep their content."""
        self.write32(registers.CONTROL, 1)
        self.idle(_RESET_CYCLES)

    def close(self) -> None:
        """Frees buffers and the engine, once no call is inside; every other call is refused."""
        self._use.close()

    def _free(self) -> None:
        self._buffers.free()
        self._library.sim_free(self._engine)


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, u32, u64, number = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
    signatures = {
        "sim_new": (pointer, [u32]),
        "sim_free": (None, [pointer]),
        "sim_cycles": (u64, [pointer]),
        "sim_idle": (None, [pointer, u64]),
        "sim_read32": (number, [pointer, u32, pointer]),
        "sim_write32": (number, [pointer, u32, u32]),
        "sim_exchange": (
            number,
            [pointer, pointer, u64, pointer, u64, u32, u32, u64, ctypes.c_double, pointer],
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
