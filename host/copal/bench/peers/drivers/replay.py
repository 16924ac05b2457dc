# SPDX-License-Identifier: MIT
"""The replay benchmark that every implementation runs: prepared inputs, operations, timing.

A transition is obs [8] float32, next_obs [8] float32, an integer action, a float32 reward and a
done flag. A buffer is filled to its capacity with priorities |N(0, 1)| + 1e-3; alpha 0.6,
beta 0.4. Inputs are made before the clock starts.
"""

from __future__ import annotations

import argparse
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .protocol import Reply, pin, requests

OBS_SIZE = 8
ACTIONS = 4
ALPHA, BETA = 0.6, 0.4
FILL_ROWS = 100_000
PREPARED = 64
"""Prepared inputs an operation walks over, so that no call repeats the one before."""

Columns = dict[str, NDArray[Any]]


def transitions(generator: np.random.Generator, n: int) -> Columns:
    """N random transitions: obs and next_obs [n, 8] float32, action [n] int64, reward [n] float32.

    `done` [n] is all False: an episode's end costs some peers extra work that is not measured here.
    """
    return {
        "obs": generator.standard_normal((n, OBS_SIZE), dtype=np.float32),
        "action": generator.integers(0, ACTIONS, n),
        "reward": generator.standard_normal(n, dtype=np.float32),
        "next_obs": generator.standard_normal((n, OBS_SIZE), dtype=np.float32),
        "done": np.zeros(n, bool),
    }


def td_errors(generator: np.random.Generator, n: int) -> NDArray[np.float32]:
    """N priorities [n] float32 as the benchmarks use them."""
    return np.abs(generator.standard_normal(n, dtype=np.float32)) + np.float32(1e-3)


def fill_sizes(rows: int) -> Iterator[int]:
    """The sizes of the pieces in which a buffer of `rows` rows is filled."""
    for start in range(0, rows, FILL_ROWS):
        yield min(FILL_ROWS, rows - start)


class ReplayPeer(ABC):
    """One implementation: filled at construction, then asked for callables to time.

    Args:
        rows: Capacity of the buffer, all of it filled.
    """

    versions: dict[str, str]

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.generator = np.random.default_rng(0)

    @abstractmethod
    def insert(self, n: int) -> Callable[[int], object]:
        """A call that adds n transitions; its argument counts up."""

    @abstractmethod
    def sample(self, n: int) -> Callable[[int], object]:
        """A call that draws n transitions with importance weights."""

    @abstractmethod
    def update(self, n: int) -> Callable[[int], object]:
        """A call that sets n priorities at prepared random places."""

    @abstractmethod
    def cycle(self, n: int) -> Callable[[int], object]:
        """A call that adds one transition, draws n and sets the priorities of those drawn."""

    def calls_together(self, op: str, n: int) -> int:
        """How many calls make one whole; a block holds a multiple of it.

        More than 1 where a cost comes once in many calls, such as an eviction.
        """
        del op, n
        return 1

    def refresh(self) -> None:
        """Called before each block, outside the clock: renews what later inserts outdated."""
        return

    def places(self, n: int) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Prepared pairs of n random slots and n priorities."""
        return [
            (self.generator.integers(0, self.rows, n), td_errors(self.generator, n))
            for _ in range(PREPARED)
        ]

    def operation(self, op: str, n: int) -> Callable[[int], object]:
        """The callable behind an operation's name.

        Raises:
            ValueError: There is no such operation.
        """
        makers = {
            "insert": self.insert,
            "sample": self.sample,
            "update": self.update,
            "cycle": self.cycle,
        }
        if op not in makers:
            raise ValueError(f"unknown operation `{op}`, expected one of {', '.join(makers)}")
        return makers[op](n)


@dataclass
class Timed:
    """An operation, and how often it is called in one block."""

    call: Callable[[int], object]
    """Takes a count that goes up from call to call."""

    calls: int
    """Calls a block, chosen once so that a block lasts as long as asked."""

    count: int = 0
    """Calls made so far."""

    @classmethod
    def calibrated(cls, call: Callable[[int], object], block_s: float, together: int = 1) -> Timed:
        """Warms the operation up and chooses how many calls fill `block_s` seconds.

        Args:
            call: The operation.
            block_s: Wanted length of a block in seconds.
            together: The number of calls is a multiple of this.
        """
        timed = cls(call, 2)
        timed.block_us()
        timed.calls = 3
        once_s = max(timed.block_us() * 1e-6, 1e-7)
        timed.calls = together * max(1, round(block_s / once_s / together))
        return timed

    def block_us(self) -> float:
        """Runs one block; returns the mean time of a call in microseconds."""
        call, first = self.call, self.count
        start = time.perf_counter()
        for i in range(first, first + self.calls):
            call(i)
        elapsed = time.perf_counter() - start
        self.count += self.calls
        return elapsed / self.calls * 1e6


def run(peer: Callable[[int], ReplayPeer], arguments: list[str], reply: Reply) -> None:
    """The main function of every replay driver.

    Args:
        peer: Builds the filled buffer from its number of rows.
        arguments: Command line.
        reply: Takes the rows.
    """
    parser = argparse.ArgumentParser(description="insert, sample and update one replay buffer")
    parser.add_argument("--rows", type=int, required=True, help="capacity, filled before timing")
    parser.add_argument("--cpus", type=int, nargs="*", default=[], help="processors to stay on")
    parser.add_argument("--block-ms", type=float, default=60.0, help="length of one timing")
    parser.add_argument("--ops", default="", help="op:n,op:n instead of requests on stdin")
    options = parser.parse_args(arguments)
    pin(options.cpus)
    built = peer(options.rows)
    reply({"ready": True, "versions": built.versions})
    timed: dict[tuple[str, int], Timed] = {}
    for request in requests(options.ops):
        op, n = request["op"], request["n"]
        built.refresh()
        if (op, n) not in timed:
            timed[op, n] = Timed.calibrated(
                built.operation(op, n), options.block_ms * 1e-3, built.calls_together(op, n)
            )
        cell = timed[op, n]
        reply({"op": op, "n": n, "us": cell.block_us(), "calls": cell.calls})
