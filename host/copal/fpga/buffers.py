# SPDX-License-Identifier: MIT
"""Buffers that an in-process device lends, and the checks that a transfer uses one of them."""

from __future__ import annotations

import weakref

import numpy as np

from copal.errors import FpgaError
from copal.fpga.device import Beats

MAX_TRANSFER_BYTES = (1 << 26) - 8
"""What the DMA of the boards takes at once, in whole beats."""


class Buffers:
    """Lends buffers, and knows its own.

    A board can transfer only memory that was allocated for it, as a whole; devices in this process
    refuse the same, so that what works with them works with a board.

    Args:
        max_transfer: Most bytes of a buffer.
    """

    def __init__(self, max_transfer: int) -> None:
        self.max_transfer = max_transfer
        self._lent: dict[int, weakref.ref[Beats]] = {}

    def alloc(self, beats: int) -> Beats:
        """Zeros, uint64 [beats].

        Raises:
            FpgaError: It is larger than a transfer may be, or there is no memory.
        """
        if not 0 <= 8 * beats <= self.max_transfer:
            expected = f"0 to {self.max_transfer} bytes, the limit of one transfer"
            raise FpgaError("beats", expected, f"{8 * beats} bytes", "split the transfer")
        try:
            buffer = np.zeros(beats, np.uint64)
        except MemoryError:
            raise FpgaError("beats", "memory for the buffer", f"{8 * beats} bytes") from None
        key = id(buffer)
        self._lent[key] = weakref.ref(buffer, lambda _: self._lent.pop(key, None))
        return buffer

    def check(self, field: str, buffer: object) -> None:
        """Refuses everything but a whole buffer of `alloc`.

        Raises:
            FpgaError: Names `field` and says what `buffer` is.
        """
        lent = self._lent.get(id(buffer))
        if lent is None or lent() is not buffer:
            expected = "a whole buffer from alloc()"
            hint = "allocate one a transfer size with device.alloc(beats) and copy into it"
            raise FpgaError(field, expected, _what(buffer), hint)

    def free(self) -> None:
        """Forgets all buffers."""
        self._lent.clear()


def _what(buffer: object) -> str:
    if not isinstance(buffer, np.ndarray):
        return type(buffer).__name__
    kind = "an array of its own"
    if not buffer.flags.c_contiguous:
        kind = "a strided view"
    elif buffer.base is not None:
        kind = "a view"
    return f"{kind}, {buffer.dtype} {list(buffer.shape)}"
