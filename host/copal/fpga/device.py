# SPDX-License-Identifier: MIT
"""What the engine's driver asks of a device: registers and one streamed exchange."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from copal.fpga.config import EngineConfig

Beats = NDArray[np.uint64]


class FpgaDevice(Protocol):
    """An engine that can be talked to: simulated, modelled, or on a board.

    Not for several threads at once.
    """

    @property
    def name(self) -> str:
        """`sim`, `model` or `pynq`."""

    @property
    def config(self) -> EngineConfig:
        """What the engine was built with."""

    @property
    def max_transfer(self) -> int:
        """Most bytes of one transfer in either direction."""

    def read32(self, offset: int) -> int:
        """The register at byte `offset`."""

    def write32(self, offset: int, value: int) -> None:
        """Writes the register at byte `offset`."""

    def alloc(self, beats: int) -> Beats:
        """A contiguous buffer that `exchange` can transfer, uint64 [beats], zeros.

        Raises:
            FpgaError: There is no memory for it; says how much was asked for.
        """

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """Sends one packet and receives its answer.

        Args:
            tx: Commands and data, from `alloc`; the last beat gets TLAST.
            rx: Where the answer goes, from `alloc`; empty if none is expected.
            timeout_s: Wall-clock limit. Simulated devices also stop after a number of cycles.

        Returns:
            Beats received, up to the one with TLAST.

        Raises:
            FpgaError: A buffer is not from `alloc`, not contiguous, or too large.
            FpgaTimeoutError: The device stopped answering; it has been reset.
        """

    def reset(self) -> None:
        """Stops whatever runs. Memories keep their content."""

    def close(self) -> None:
        """Frees buffers and the device. More calls are harmless."""
