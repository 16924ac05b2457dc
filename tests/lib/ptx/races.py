# SPDX-License-Identifier: MIT
"""Finds shared memory that two threads use without a barrier between them.

Every 4-byte word keeps its last writer and its last reader with the time of each: how many barriers
the block and the warp had passed. Two accesses are ordered if they are of one thread, if a block
barrier lies between them, or if they are of one warp and a warp barrier does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptx.kinds import PtxError

# A user is a lane, or nobody, or several warps, or (this and below) several lanes of a warp.
_NOBODY, _MANY, _WARP = -1, -2, -3


class Races:
    """Who used which word when.

    Args:
        words: Of all blocks together.
        blocks: That run at the same time.
        threads: Of a block.
    """

    def __init__(self, words: int, blocks: int, threads: int) -> None:
        lanes = blocks * threads
        self._block_time = np.zeros(lanes, np.int32)
        self._warp_time = np.zeros(lanes, np.int32)
        warps = -(-threads // 32)
        lane = np.arange(lanes)
        self._warp = lane // threads * warps + lane % threads // 32
        self._writer, self._reader = (np.full(words, -1, np.int64) for _ in range(2))
        self._times = np.zeros((2, 2, words), np.int32)

    def barrier(self, lanes: npt.NDArray[np.intp]) -> None:
        """All threads of some blocks met."""
        self._block_time[lanes] += 1

    def warp_barrier(self, lanes: npt.NDArray[np.intp]) -> None:
        """All threads of some warps met."""
        self._warp_time[lanes] += 1

    def read(self, word: npt.NDArray[np.int64], lane: npt.NDArray[np.int64], text: str) -> None:
        """Lanes read words.

        Raises:
            PtxError: Another thread wrote one, unordered.
        """
        self._ordered(0, self._writer, word, lane, "is read while another thread writes it", text)
        now, before = self._block_time[lane], self._reader[word]
        before = np.where(self._times[1, 0, word] == now, before, _NOBODY)
        self._reader[word] = self._join(before, lane)
        # Of lanes with the same word the last one won: let the others join it.
        lost = np.arange(len(word))
        while len(lost):
            found = self._reader[word[lost]]
            joined = self._join(found, lane[lost])
            lost, joined = lost[joined != found], joined[joined != found]
            self._reader[word[lost]] = joined
        self._times[1, 0, word] = now
        self._times[1, 1, word] = self._warp_time[lane]

    def write(self, word: npt.NDArray[np.int64], lane: npt.NDArray[np.int64], text: str) -> None:
        """Lanes write words.

        Raises:
            PtxError: Another thread wrote or read one, unordered.
        """
        self._ordered(0, self._writer, word, lane, "is written by two threads", text)
        self._ordered(1, self._reader, word, lane, "is written while another thread reads it", text)
        self._writer[word] = lane
        if (self._writer[word] != lane).any():
            raise PtxError(f"shared memory is written by two threads at once: {text}")
        self._times[0, 0, word] = self._block_time[lane]
        self._times[0, 1, word] = self._warp_time[lane]

    def _ordered(
        self,
        kind: int,
        users: npt.NDArray[np.int64],
        word: npt.NDArray[np.int64],
        lane: npt.NDArray[np.int64],
        what: str,
        text: str,
    ) -> None:
        user = users[word]
        close = (user != _NOBODY) & (user != lane)
        close &= self._times[kind, 0, word] == self._block_time[lane]
        if not close.any():
            return
        word, lane, user = word[close], lane[close], user[close]
        warp = self._warp_of(user) == self._warp[lane]
        safe = warp & (self._times[kind, 1, word] != self._warp_time[lane])
        if not safe.all():
            raise PtxError(f"shared memory {what}, with no barrier between: {text}")

    def _warp_of(self, user: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        single = self._warp[np.maximum(user, 0)]
        return np.where(user >= 0, single, np.where(user <= _WARP, _WARP - user, -1))

    def _join(
        self, user: npt.NDArray[np.int64], lane: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Who used a word, once `lane` has too."""
        alone = (user == _NOBODY) | (user == lane)
        warp = self._warp[lane]
        group = np.where(self._warp_of(user) == warp, _WARP - warp, _MANY)
        return np.where(alone, lane, group)
