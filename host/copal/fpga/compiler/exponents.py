# SPDX-License-Identifier: MIT
"""Chooses exponents: from a first batch, then from the ranges that every update reports.

An exponent e stands for value = integer * 2^-e. It grows finer only when bits were unused for a
while, and coarser at once when values saturated. No shift of a product becomes negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.fpga.compiler.plan import Plan
from copal.fpga.compiler.scales import Limit, Sample
from copal.program import reference
from copal.program.noise import with_noise

MOST = 80
"""Largest magnitude of an exponent: two of them and a shift fit every field."""
MOST_SHIFT = 63
"""Largest shift of a product."""
_ROUNDS = 1000
"""Most rounds in which the limits of a plan are met: as many as products follow on each other."""
PATIENCE, PATIENCE_BOUND = 64, 256
"""Updates in which bits beyond the room are unused before an exponent is made finer, and those of
`Plan.bound`."""

Exponents = NDArray[np.int64]


def calibrate(
    plan: Plan,
    parameters: Mapping[str, NDArray[Any]],
    columns: Mapping[str, NDArray[Any]],
    updates: int = 0,
) -> Exponents:
    """Exponents that hold everything an update computes with these numbers, int64 [scales].

    Args:
        plan: What to run.
        parameters: Network name to flat vector [size].
        columns: A batch, as a learner's `step` takes it.
        updates: Updates done before.

    Raises:
        SchemaError: A network or a column is missing or has the wrong shape.
    """
    columns = with_noise(plan.update, columns, updates)
    results = [reference.run(p.program, parameters, columns) for p in plan.update.phases]

    def largest(sample: Sample) -> float:
        if sample.what == "buffer":
            values = results[sample.phase].buffers[sample.name]
        else:
            flat = results[sample.phase].gradient if sample.what == "gradient" else None
            flat = parameters[sample.name] if flat is None else flat
            values = flat[sample.offset : sample.offset + sample.size]
        return float(np.abs(values, dtype=np.float64).max(initial=0))

    chosen = []
    for info in plan.scales.values():
        top = max((largest(s) for s in info.samples), default=0.0)
        chosen.append(info.bits - info.room - _bits(top))
    return bounded(plan, np.array(chosen, np.int64))


def _bits(top: float) -> int:
    """Bits in front of the binary point of a magnitude; 0 of what says nothing."""
    return int(np.frexp(top)[1]) if 0 < top < np.inf else 0


def bounded(plan: Plan, exponents: Exponents) -> Exponents:
    """The exponents, made coarser where a shift would be negative, finer where it is too large.

    Operands of a product yield where no exponent of its result has a shift: what they hold then
    saturates, or has fewer bits.
    """
    found = np.clip(exponents, -MOST, MOST)
    low, high = np.full(len(found), -MOST), np.full(len(found), MOST)
    number = {name: i for i, name in enumerate(plan.scales)}
    limits = [_numbers(limit, number) for limit in plan.limits]
    for _ in range(_ROUNDS):
        before = found.copy()
        for result, a, b in limits:
            first, second = sorted((a, b), key=lambda i: int(found[i]))
            _lift(found, low, first, second, int(low[result]))
            _press(found, high, first, second, int(high[result]) + MOST_SHIFT)
            top = found[a] + found[b]
            found[result] = min(max(found[result], top - MOST_SHIFT), top)
        found = np.clip(found, low, high)
        if np.array_equal(found, before):
            break
    return found


def _lift(found: Exponents, low: Exponents, first: int, second: int, least: int) -> None:
    """Makes two exponents finer, the coarser one first, until their sum is `least`."""
    if found[first] + found[second] >= least:
        return
    for i, other in ((first, second), (second, first)):
        wanted = min(least - int(found[other]), -(-least // 2))
        if found[i] < wanted:
            found[i] = low[i] = wanted


def _press(found: Exponents, high: Exponents, first: int, second: int, most: int) -> None:
    """Makes two exponents coarser, the finer one first, until their sum is `most`."""
    if found[first] + found[second] <= most:
        return
    for i, other in ((second, first), (first, second)):
        wanted = max(most - int(found[other]), most // 2)
        if found[i] > wanted:
            found[i] = high[i] = wanted


def _numbers(limit: Limit, number: Mapping[str, int]) -> tuple[int, int, int]:
    return number[limit.result], number[limit.operands[0]], number[limit.operands[1]]


class ExponentFollower:
    """Keeps exponents right while a run goes on. Cost: O(scales) an update.

    Args:
        plan: What is run.
        exponents: The first ones, of `calibrate`.

    Attributes:
        exponents: Those of the next update, int64 [scales].
        saturated: Values that saturated so far, by exponent, int64 [scales].
        least_unused: Fewest bits that were free since the last change, int64 [scales].
        seen: Updates with values since the last change, int64 [scales].
    """

    def __init__(self, plan: Plan, exponents: Exponents) -> None:
        self._plan = plan
        self.exponents = exponents.copy()
        self._bits = np.array([info.bits for info in plan.scales.values()], np.int64)
        self._room = np.array([info.room for info in plan.scales.values()], np.int64)
        self._patience = np.where(plan.bound, PATIENCE_BOUND, PATIENCE)
        self.saturated = np.zeros(len(exponents), np.int64)
        self.least_unused = np.full(len(exponents), MOST, np.int64)
        self.seen = np.zeros(len(exponents), np.int64)

    def follow(self, ranges: Sequence[NDArray[np.uint64]]) -> tuple[bool, bool]:
        """Takes the entries of RANGE of one update.

        Args:
            ranges: uint64 [scales] of each phase, dumped behind its last RUN.

        Returns:
            Whether `exponents` changed, and whether one of `Plan.bound` did, so that the code that
            refreshes the copies has to run before the next update.
        """
        entries = np.stack(ranges)
        counts = (entries & np.uint64(0xFFFFFFFF)).sum(axis=0).astype(np.int64)
        magnitudes = np.bitwise_or.reduce(entries >> np.uint64(32), axis=0)
        self.saturated += counts
        used = np.frexp(magnitudes.astype(np.float64))[1].astype(np.int64)
        present = magnitudes > 0
        unused = np.where(present, self._bits - used, MOST)
        self.least_unused = np.minimum(self.least_unused, unused)
        self.seen += present
        coarser = present & ((unused < 0) | (counts > 0))
        finer = ~coarser & (self.seen >= self._patience) & (self.least_unused > self._room)
        change = np.where(coarser, np.minimum(unused, 0) - self._room, 0)
        change += np.where(finer, self.least_unused - self._room, 0)
        ended = coarser | (self.seen >= self._patience)
        self.seen[ended], self.least_unused[ended] = 0, MOST
        if not change.any():
            return False, False
        return self.move(self.exponents + change)

    def move(self, wanted: Exponents) -> tuple[bool, bool]:
        """Takes other exponents, within the limits of the plan; returns as `follow`."""
        before = self.exponents
        self.exponents = bounded(self._plan, wanted)
        changed = self.exponents != before
        return bool(changed.any()), bool((changed & self._plan.bound).any())
