# SPDX-License-Identifier: MIT
"""The memories of the model, and the 64-bit beats that load and dump them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copal.fpga.config import EngineConfig
from copal.fpga.isa import BEATS, SET_SIZE, SETS, Memory, beats_a_word

Beats = NDArray[np.uint64]
Float = NDArray[np.float32]
Int = NDArray[np.int32]

LOADABLE = frozenset(
    {Memory.CODE, Memory.V, Memory.W, Memory.T, Memory.M, Memory.S, Memory.K}
)  # fmt: skip
DUMPABLE = frozenset(Memory) - {Memory.CODE}


class Memories:
    """Everything that the engine keeps, as arrays of words; zeros at first.

    A and B are kept as plain tiles here, `a[t * P + i, j]` is element (i, j) of tile t; only a dump
    has the order of the banks.
    """

    def __init__(self, config: EngineConfig) -> None:
        p, depths = config.array_size, config.depths
        self.code: Beats = np.zeros((depths.code, BEATS), np.uint64)
        self.v: Float = np.zeros((depths.vector, p), np.float32)
        self.w, self.t, self.m, self.s = (
            np.zeros((depths.parameters, p), np.float32) for _ in range(4)
        )
        self.g: Int = np.zeros((depths.parameters, p), np.int32)
        self.gb: Int = np.zeros((depths.bias, p), np.int32)
        self.k: Float = np.zeros((SETS * SET_SIZE, 1), np.float32)
        self.range: Beats = np.zeros((depths.range, 1), np.uint64)
        self.a: Int = np.zeros((depths.a, p), np.int32)
        self.b: Int = np.zeros((depths.b, p), np.int32)
        self.bias: NDArray[np.int64] = np.zeros((depths.bias, p), np.int64)
        self.norm: Beats = np.zeros(1, np.uint64)
        self.mask: NDArray[np.bool_] = np.zeros((depths.mask, p), np.bool_)
        self._arrays: dict[Memory, NDArray[np.generic]] = {
            Memory.CODE: self.code,
            Memory.V: self.v,
            Memory.W: self.w,
            Memory.T: self.t,
            Memory.M: self.m,
            Memory.S: self.s,
            Memory.G: self.g,
            Memory.GB: self.gb,
            Memory.K: self.k.reshape(-1, 2),
            Memory.RANGE: self.range,
            Memory.A: self.a,
            Memory.B: self.b,
            Memory.BIAS: self.bias,
        }

    def named(self) -> dict[str, NDArray[np.generic]]:
        """The arrays by name."""
        return {name: x for name, x in vars(self).items() if isinstance(x, np.ndarray)}

    def words(self, memory: Memory) -> int:
        """Words of `memory` that LOAD and DUMP can address."""
        return len(self._arrays[memory])

    def beats_a_word(self, memory: Memory) -> int:
        """Beats of 64 bits that one word of `memory` takes on the stream."""
        return beats_a_word(memory, self.v.shape[1])

    def load(self, memory: Memory, address: int, beats: Beats) -> None:
        """Writes beats from word `address` on; the caller has checked the range."""
        flat = self._arrays[memory].reshape(-1).view(np.uint64)
        at = address * self.beats_a_word(memory)
        flat[at : at + len(beats)] = beats

    def dump(self, memory: Memory, address: int, count: int) -> Beats:
        """`count` words from `address` on as beats; the caller has checked the range."""
        words = self._arrays[memory][address : address + count]
        if memory in (Memory.A, Memory.B):
            words = bank_order(words, address)
        return np.array(words, order="C").view(np.uint64).reshape(-1)


def bank_order(rows: NDArray[np.generic], address: int) -> NDArray[np.generic]:
    """Rows [count, P] of tiles from `address` on, turned so that column b is bank b."""
    p = rows.shape[1]
    i = (address + np.arange(len(rows))) % p
    return np.take_along_axis(rows, (np.arange(p) - i[:, None]) % p, axis=1)
