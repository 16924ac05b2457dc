# SPDX-License-Identifier: MIT
"""Pipelines without a handshake: operands in every cycle, results some cycles later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

SPECIAL = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x4B000000,
     0x4B7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF],
    np.uint32,
)  # fmt: skip


async def check(
    dut: Any, inputs: Mapping[str, np.ndarray], expected: list[int], latency: int
) -> None:
    """Feeds a row of `inputs` a cycle and compares the port `out` with `expected`.

    Args:
        dut: The pipeline, with ports `clk` and `out`.
        inputs: Port name to its values, one a cycle; unsigned.
        expected: What `out` has to be, one for each row.
        latency: Cycles from an operand to its result.
    """
    rows = len(expected)
    columns = {name: [int(v) for v in values] for name, values in inputs.items()}
    before: dict[str, int] = {}
    for cycle in range(rows + latency):
        await FallingEdge(dut.clk)
        if cycle >= latency:
            at = cycle - latency
            got = int(dut.out.value)
            if got != expected[at]:
                operands = {name: hex(values[at]) for name, values in columns.items()}
                raise AssertionError(f"{got:#x} instead of {expected[at]:#x} for {operands}")
        if cycle < rows:
            for name, values in columns.items():
                if before.get(name) != values[cycle]:
                    before[name] = values[cycle]
                    getattr(dut, name).value = values[cycle]


def begin(dut: Any) -> None:
    """Starts the clock."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())


def floats(rng: np.random.Generator, count: int) -> np.ndarray:
    """Bits of float32: any, near one, few significant bits, special; uint32 [count]."""
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    middle = bits & 0x807FFFFF | rng.integers(100, 155, count, dtype=np.uint32) << 23
    coarse = middle & np.uint32(0xFFFF0000)
    special = rng.choice(SPECIAL, count) | (bits & 0x80000000)
    kind = rng.integers(0, 8, count)
    chosen = np.select([kind < 2, kind < 5, kind < 7], [bits, middle, coarse], special)
    return chosen.astype(np.uint32)


def field(values: np.ndarray, bits: int) -> np.ndarray:
    """Signed values as the unsigned numbers of a port of `bits` bits."""
    mask = (1 << bits) - 1
    return np.array([int(v) & mask for v in values], object)
