# SPDX-License-Identifier: MIT
"""Clock, reset, stalls and settings that every test bench here uses."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

STALLS = (0.0, 0.3, 0.8)
"""Shares of the cycles in which a side of a stream waits."""
SECONDS = float(os.environ.get("COPAL_SIM_SECONDS", "2"))
"""Wall-clock seconds of every soak."""


def stalls(share: float, rng: random.Random) -> Iterator[bool]:
    """Whether a stream waits, cycle by cycle: single cycles and bursts."""
    while True:
        waiting = rng.random() < share
        for _ in range(rng.choice((1, 1, 1, 7)) if share else 1):
            yield waiting


def generator() -> random.Random:
    """A generator seeded by the run's seed, which the log shows."""
    return random.Random(cocotb.RANDOM_SEED)


def soak() -> Iterator[int]:
    """Counts rounds until `SECONDS` are over; at least one."""
    end, n = time.monotonic() + SECONDS, 0
    while n == 0 or time.monotonic() < end:
        yield n
        n += 1


async def start(clk: Any, reset: Any, *, active_level: int = 1, cycles: int = 4) -> None:
    """Starts the clock and holds the reset for some cycles."""
    cocotb.start_soon(Clock(clk, 10, unit="ns").start())
    await pulse(clk, reset, active_level=active_level, cycles=cycles)


async def pulse(clk: Any, reset: Any, *, active_level: int = 1, cycles: int = 4) -> None:
    """Asserts the reset for some cycles."""
    reset.value = active_level
    for _ in range(cycles):
        await RisingEdge(clk)
    reset.value = 1 - active_level
    await RisingEdge(clk)
