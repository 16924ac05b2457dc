# SPDX-License-Identifier: MIT
"""Noise that every executor makes alike: a function of seed, stream, update, row and column.

Philox4x32-10 (Salmon et al. 2011) followed by Box-Muller. There is no state to carry along: any
executor, any learner with any share of the rows, and a resumed run make the same numbers.

    counter = (row, stream * 2^16 + column // 4, update mod 2^32, update // 2^32)
    key     = (seed mod 2^32, seed // 2^32)
    words 0 and 1 give columns 4k and 4k + 1, words 2 and 3 give columns 4k + 2 and 4k + 3:
    u = (x // 2^8 + 1) / 2^24,  v = (y // 2^8) / 2^24,  exact in float32
    sqrt(-2 ln u) cos(2 pi v),  sqrt(-2 ln u) sin(2 pi v)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.program.update import Update

ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counter: NDArray[np.uint32], seed: int) -> NDArray[np.uint32]:
    """Philox4x32-10.

    Args:
        counter: uint32 [n, 4].
        seed: Key, below 2^64.

    Returns:
        Random words, uint32 [n, 4].
    """
    c = counter.astype(np.uint64)
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(ROUNDS):
        first, second = _MULTIPLIERS[0] * c[:, 0], _MULTIPLIERS[1] * c[:, 2]
        c = np.stack(
            [
                (second >> _HALF) ^ c[:, 1] ^ np.uint64(key[0]),
                second & _LOW,
                (first >> _HALF) ^ c[:, 3] ^ np.uint64(key[1]),
                first & _LOW,
            ],
            axis=1,
        )
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, _WEYL, strict=True)]
    return c.astype(np.uint32)


def normal(
    rows: int, width: int, *, seed: int, stream: int, update: int, first_row: int = 0
) -> NDArray[np.float32]:
    """Standard normal numbers, float32 [rows, width].

    Args:
        rows: Rows of the batch, or of a share of it.
        width: Columns, at most 2^18.
        seed: Of the run, below 2^64.
        stream: Which noise input, a position in `Update.noises()`.
        update: Number of the update, from 0.
        first_row: Number of the first row in the whole batch.
    """
    groups = -(-width // 4)
    row, group = np.meshgrid(np.arange(first_row, first_row + rows), np.arange(groups))
    counter = np.zeros((rows * groups, 4), np.uint32)
    counter[:, 0] = row.T.ravel()
    counter[:, 1] = (stream << 16) + group.T.ravel()
    counter[:, 2], counter[:, 3] = update & 0xFFFFFFFF, update >> 32
    words = philox(counter, seed) >> np.uint32(8)
    u = (words[:, ::2] + 1.0) / 2**24
    v = words[:, 1::2] / 2**24
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    return pairs.reshape(rows, groups * 4)[:, :width].astype(np.float32)


def with_noise(update: Update, columns: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """A batch with the noise that a learner makes for it.

    Args:
        update: What reads the batch.
        columns: Column name to rows; noise that is among them stays as it is.
        number: Number of the update, from 0.
    """
    missing = [name for name in update.noises() if name not in columns]
    if not missing or not columns:
        return columns
    rows = len(next(iter(columns.values())))
    widths = {b.name: b.width for phase in update.phases for b in phase.program.inputs}
    streams = {name: stream for stream, name in enumerate(update.noises())}
    made = {
        name: normal(rows, widths[name], seed=update.seed, stream=streams[name], update=number)
        for name in missing
    }
    return {**columns, **made}
