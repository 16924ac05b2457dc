# SPDX-License-Identifier: MIT
"""Memory of an interpreted kernel: named buffers, shared memory, stacks; every access is checked.

    address = number << 40 | offset
    number 0: nothing (null and small numbers fault)   1: shared window   2: local window
    number 16 and up: one buffer each, so that no offset reaches a neighbour

Shared memory starts as NaN and each word remembers whether it was written. With `races`, words also
remember who wrote and read them since the last barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ptx.kinds import Array, PtxError
from ptx.races import Races

SHARED, LOCAL, FIRST = 1, 2, 16
_SHIFT = 40


@dataclass
class Buffer:
    """Global memory that a kernel may reach."""

    name: str
    """Shown when an access misses it."""
    bytes: npt.NDArray[np.uint8]
    """The caller's own memory: kernels write through."""
    read_only: bool = False
    """Constant: a store is a fault."""


class Memory:
    """Device memory."""

    def __init__(self) -> None:
        self._buffers: dict[int, Buffer] = {}
        self._next = FIRST

    def add(self, name: str, array: Array, *, read_only: bool = False) -> int:
        """Makes an array reachable.

        Args:
            name: Its name in faults.
            array: C-contiguous; written in place.
            read_only: Whether a store is a fault.

        Returns:
            Its address.
        """
        if not array.flags.c_contiguous:
            raise ValueError(f"`{name}` is not contiguous")
        number, self._next = self._next, self._next + 1
        self._buffers[number] = Buffer(name, array.reshape(-1).view(np.uint8), read_only)
        return number << _SHIFT

    def drop(self, address: int) -> None:
        """Frees a buffer: later accesses fault."""
        del self._buffers[address >> _SHIFT]

    def find(self, number: int, text: str) -> Buffer:
        """The buffer with this number."""
        if number not in self._buffers:
            raise PtxError(f"address of no buffer: {text}")
        return self._buffers[number]


def split(addresses: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.intp] | None]]:
    """Numbers of the buffers that are meant, each with the positions that mean it (None: all)."""
    numbers = addresses >> _SHIFT
    first = int(numbers[0])
    if (numbers == first).all():
        return [(first, None)]
    return [(int(n), np.flatnonzero(numbers == n)) for n in np.unique(numbers)]


def offsets(addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Addresses within their buffers."""
    return addresses & ((1 << _SHIFT) - 1)


def check(offset: npt.NDArray[np.int64], width: int, size: int, what: str, text: str) -> None:
    """Refuses accesses beyond the memory or across an alignment.

    Raises:
        PtxError: One is.
    """
    low, high = int(offset.min()), int(offset.max())
    if low < 0 or high + width > size:
        at = low if low < 0 else high
        raise PtxError(f"{what} of {size} bytes is accessed at byte {at}: {text}")
    if (offset & (width - 1)).any():
        raise PtxError(f"misaligned access of {width} bytes to {what}: {text}")


class Block:
    """Shared memory and stacks of the blocks that run at the same time."""

    def __init__(self, blocks: int, threads: int, shared: int, local: int, races: bool) -> None:
        self.size = -(-max(shared, 1) // 16) * 16
        self.limit = shared
        self.local_size = -(-max(local, 1) // 16) * 16
        lanes = blocks * threads
        self.shared = np.full(blocks * self.size, 0xFF, np.uint8)
        self.written = np.zeros(blocks * self.size // 4, np.bool_)
        self.local = np.full(lanes * self.local_size if local else 16, 0xFF, np.uint8)
        self.shared_base = np.repeat(np.arange(blocks, dtype=np.int64) * self.size, threads)
        self.local_base = np.arange(lanes, dtype=np.int64) * self.local_size
        self.races = Races(self.written.size, blocks, threads) if races else None

    def read(
        self, where: npt.NDArray[np.int64], width: int, lanes: Array, text: str, used: int = -1
    ) -> None:
        """Notes that lanes read shared memory at absolute offsets; of the bytes those `used`.

        Raises:
            PtxError: Nobody has written there, or not safely.
        """
        for word in range(0, width, 4):
            if not used >> word & 15:
                continue
            index = (where + word) >> 2
            if not self.written[index].all():
                raise PtxError(f"shared memory is read before it is written: {text}")
            if self.races is not None:
                self.races.read(index, lanes, text)

    def wrote(self, where: npt.NDArray[np.int64], width: int, lanes: Array, text: str) -> None:
        """Notes that lanes wrote shared memory at absolute offsets.

        Raises:
            PtxError: Others use the word without a barrier between.
        """
        for word in range(0, width, 4):
            index = (where + word) >> 2
            self.written[index] = True
            if self.races is not None:
                self.races.write(index, lanes, text)
