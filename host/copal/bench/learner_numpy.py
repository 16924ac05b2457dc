# SPDX-License-Identifier: MIT
"""The NumPy side of the learner benchmark: the captured Program interpreted, and bare products."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from copal.algorithms.base import Built
from copal.bench.learner_build import noise_widths
from copal.native import native
from copal.program import Phase, Update
from copal.program.reference import adam_step, run

Call = Callable[[], object]


def bound_us(update: Update, batch_size: int, rounds: int) -> list[float]:
    """Microseconds of an update's bare dense products, one figure a round.

    A phase that runs in every second update counts half.
    """
    counts: dict[tuple[str, int, int], float] = {}
    for phase in update.phases:
        for op in phase.program.ops:
            if op.kind.startswith("dense"):
                shape = op.kind, int(op.attrs["fan_in"]), int(op.attrs["fan_out"])
                counts[shape] = counts.get(shape, 0) + 1 / phase.every
    products = [
        [us * count for us in _product_us(*shape, batch_size, rounds)]
        for shape, count in counts.items()
    ]
    return [sum(us) for us in zip(*products, strict=True)]


def _product_us(kind: str, fan_in: int, fan_out: int, batch_size: int, rounds: int) -> list[float]:
    """Microseconds of one bare product, the fastest library's figure of each round."""
    own = ["auto", "eigen"] if native.has_own_gemm else ["eigen"]
    numpy = _numpy_product(kind, batch_size, fan_in, fan_out)
    repeats = max(1, int(2e8 / (2 * batch_size * fan_in * fan_out)))
    found = []
    for _ in range(rounds):
        us = [
            native.product_seconds(kind, gemm, batch_size, fan_in, fan_out, repeats) * 1e6
            for gemm in own
        ]
        started = time.perf_counter()
        for _ in range(repeats):
            numpy()
        found.append(min(*us, (time.perf_counter() - started) / repeats * 1e6))
    return found


def _numpy_product(kind: str, batch_size: int, fan_in: int, fan_out: int) -> Call:
    w = np.full((fan_out, fan_in), 0.5, np.float32)
    x = np.full((batch_size, fan_in), 0.5, np.float32)
    d = np.full((batch_size, fan_out), 0.5, np.float32)
    if kind == "dense":
        return lambda: np.matmul(x, w.T, out=d)
    if kind == "dense_grad_input":
        return lambda: np.matmul(d, w, out=x)
    return lambda: np.matmul(d.T, x, out=w)


class Updater:
    """One update a call in NumPy's float32: noise, row programs, Adam, averaging.

    Args:
        built: The algorithm.
        batch: Columns; noise that is missing is drawn in each update.
    """

    def __init__(self, built: Built, batch: dict[str, Any]) -> None:
        self._update, self._batch = built.update, batch
        self.parameters = {name: v.copy() for name, v in built.parameters.items()}
        self._moments = {
            name: (np.zeros_like(self.parameters[name]), np.zeros_like(self.parameters[name]))
            for name in built.update.trained()
        }
        self._steps = dict.fromkeys(self._moments, 0)
        self._widths = {n: w for n, w in noise_widths(built).items() if n not in batch}
        self._rng, self._updates = np.random.default_rng(0), itertools.count(1)

    def __call__(self) -> None:
        """Runs one update."""
        number, size = next(self._updates), len(self._batch["weight"])
        drawn = {
            n: self._rng.standard_normal((size, w), np.float32) for n, w in self._widths.items()
        }
        for phase in self._update.phases:
            if number % phase.every == 0:
                self._run(phase, {**self._batch, **drawn})
        for target in self._update.targets:
            if number % target.every == 0:
                follower = self.parameters[target.target]
                follower += np.float32(target.tau) * (self.parameters[target.source] - follower)

    def _run(self, phase: Phase, batch: dict[str, Any]) -> None:
        result = run(phase.program, self.parameters, batch, np.float32)
        name = str(phase.program.gradient)
        assert result.gradient is not None
        gradient = result.gradient / np.float32(len(batch["weight"]))
        self._steps[name] += 1
        adam_step(
            phase.optimiser,
            self._steps[name],
            gradient,
            self.parameters[name],
            *self._moments[name],
        )
