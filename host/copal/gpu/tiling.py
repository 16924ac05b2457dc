# SPDX-License-Identifier: MIT
"""How a batch and a dense product are divided among blocks, warps and lanes."""

from __future__ import annotations

from dataclasses import dataclass

from copal.errors import ConfigError

MAX_ROWS = 16
"""Rows that a thread can hold in registers, a column each (kernels/gradient.cuh)."""
MAX_SHARES = 128
"""Blocks of a phase: about the multiprocessors of an H100. The same everywhere, so that the order
of sums, and with it the bits, does not depend on the GPU."""


@dataclass(frozen=True)
class Shares:
    """Who works on which rows: block s on rows s * each to (s + 1) * each, some at a time."""

    rows: int
    """Rows that a block holds at a time: 1, 2, 4, 8 or 16."""
    each: int
    """Rows of a share; the last one may have fewer."""
    count: int
    """Shares, one block each."""


def shares(batch_size: int, learners: int = 1, rows: int | None = None) -> Shares:
    """Divides a batch.

    Args:
        batch_size: Rows of a batch.
        learners: Shares; 1: as many as are good.
        rows: Rows at a time; None: 4 up to a batch of 128, 8 up to 512, then 16: where what a block
            computes takes as long as the weights that it reads.

    Raises:
        ConfigError: A share would have no row, or `rows` is none of 1, 2, 4, 8 and 16.
    """
    if batch_size < 1 or not 1 <= learners <= batch_size:
        raise ConfigError("learners", f"1 to {batch_size}, the rows of a batch", str(learners))
    if rows is None:
        wanted = 4 if batch_size <= 128 else 8 if batch_size <= 512 else MAX_ROWS
        rows = min(wanted, 1 << (batch_size - 1).bit_length())
    if rows not in (1, 2, 4, 8, MAX_ROWS):
        raise ConfigError("rows", "1, 2, 4, 8 or 16", str(rows))
    if learners > 1:
        each = -(-batch_size // learners)
    else:
        blocks = -(-batch_size // rows)
        each = rows * -(-blocks // MAX_SHARES)
    return Shares(min(rows, 1 << (each - 1).bit_length()), each, -(-batch_size // each))


@dataclass(frozen=True)
class Tile:
    """How a dense product is divided (kernels/dense.cuh)."""

    slices: int
    """Lanes that share one sum."""
    rows: int
    """Rows that a thread has."""


def tile(groups: int, blocks: int, rows: int, warps: int, *, least: int) -> Tile:
    """Gives every warp work: first by more slices of a sum, then by fewer rows a thread.

    Args:
        groups: Outputs, four each.
        blocks: Terms of a sum, four each.
        rows: Rows of a block.
        warps: Warps of a block.
        least: Slices from which on lanes that are neighbours read whole lines.
    """
    most = 1 << (min(blocks, 32).bit_length() - 1)
    slices, each = min(least, most), min(rows, 8)

    def tasks() -> int:
        return -(-groups * slices // 32) * (rows // each)

    while tasks() < warps and slices < most:
        slices *= 2
    while tasks() < warps and each > 1:
        each //= 2
    return Tile(slices, each)
