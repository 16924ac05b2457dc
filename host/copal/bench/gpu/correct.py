# SPDX-License-Identifier: MIT
"""Every algorithm on a GPU device against float64, with fresh numbers and poisoned memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.algorithms.base import Built
from copal.bench.gpu.config import Budget, GpuCheck
from copal.bench.learner_build import build, random_batch
from copal.bench.runner import say
from copal.bench.table import Row
from copal.gpu.device import DeviceBuffer, GpuDevice, Pointer
from copal.gpu.learner import GpuLearner
from copal.gpu.open import open_device
from copal.gpu.plan import PlanOptions, plan
from copal.program.reference import ReferenceLearner

LIMIT = 1e-5
"""Largest relative error of gradients, TD errors and parameters."""
STORED_SEED = 20260901
"""Numbers that every run has in common."""
UPDATES = 2
"""Updates of one launch: a delayed phase runs in the second."""
_SMALL = ((33, 20), 37)
_SIZES = (((256, 256), 256), ((64, 64), 32), ((1, 65, 3), 1))
_CASE_S = 12.0


class Poisoned:
    """A device whose fresh memory is NaN: nothing may count on zeros that nobody wrote.

    Args:
        device: The device.
    """

    def __init__(self, device: GpuDevice) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, name: str, nbytes: int) -> DeviceBuffer:
        """Memory of the device, all bits set."""
        buffer = self._device.allocate(name, nbytes)
        self._device.upload(Pointer(buffer), np.full(nbytes, 0xFF, np.uint8))
        self._device.mark().wait()
        return buffer


def rows(
    config: GpuCheck, budget: Budget, seed: int, device: Callable[[], GpuDevice] | None = None
) -> Iterator[Row]:
    """Compares every algorithm; a row each, with the errors and whether they are small enough.

    Args:
        config: Device and algorithms.
        budget: The time that is left.
        seed: Of the fresh numbers.
        device: Opens the device; None: the one of the configuration.
    """
    opened = device or (lambda: open_device(config.device))
    small = config.small or config.device == "emulate"
    sizes = (_SMALL,) if small else (_SMALL, *_SIZES)
    for algo in config.algos:
        for hidden, batch_size in sizes:
            for numbers in (STORED_SEED, seed):
                name = f"{algo} {'-'.join(map(str, hidden))}, batch {batch_size}"
                row = {"part": "correct", "name": name, "seed": numbers}
                say(f"{name}, seed {numbers}")

                compare = partial(errors, algo, hidden, batch_size, numbers, opened)
                yield from (_judged(r) for r in budget.rows(row, _CASE_S, compare))


def _judged(row: Row) -> Row:
    if "absent" in row:
        return {**row, "ok": row["absent"] == "no time left"}
    # `all`, so that NaN fails too.
    good = all(row[key] < LIMIT for key in ("gradient", "td_error", "parameters"))
    return {**row, "ok": good and row["same_bits"]}


def errors(
    algo: str,
    hidden: Sequence[int],
    batch_size: int,
    seed: int,
    opened: Callable[[], GpuDevice],
) -> Row:
    """Relative errors of an algorithm, the worst of all phases and networks.

    Args:
        algo: Name of the algorithm.
        hidden: Widths of the hidden layers.
        batch_size: Rows of a batch.
        seed: Of parameters and batches.
        opened: Opens a device.

    Returns:
        `gradient`, `td_error` and `parameters` relative to float64, and `same_bits`: whether a
        second run of the same updates gives the same bits.
    """
    built = build(algo, hidden, seed=seed % 2**31)
    start = _moved(built, seed)
    batches = [random_batch(built, batch_size, seed % 2**31 + k) for k in range(UPDATES)]
    oracle = ReferenceLearner(built.update, start)
    learner = _learner(built, start, batch_size, opened)
    try:
        worst = {"gradient": 0.0, "td_error": 0.0, "parameters": 0.0}

        def note(what: str, got: NDArray[Any], want: NDArray[Any]) -> None:
            worst[what] = float(np.fmax(worst[what], _relative(got, want)))
            if np.isnan(got).any():
                worst[what] = float("nan")

        for phase in range(len(built.update.phases)):
            gradient, td, _ = learner.gradient([batches[0]], phase)
            want, want_td, _ = oracle.gradient(batches[0], phase)
            note("gradient", gradient[0], want)
            note("td_error", td[0], want_td)
        found = learner.run([[batch] for batch in batches])
        for k, batch in enumerate(batches):
            note("td_error", found[k, 0], oracle.step(batch))
        for network in learner.plan.layouts:
            note("parameters", learner.vector("parameters", network), oracle.parameters[network])
        bits = _bits(learner)
    finally:
        learner.close()
    again = _learner(built, start, batch_size, opened)
    try:
        again.run([[batch] for batch in batches])
        return {**worst, "same_bits": _bits(again) == bits}
    finally:
        again.close()


def _learner(
    built: Built,
    start: dict[str, NDArray[np.float32]],
    batch_size: int,
    opened: Callable[[], GpuDevice],
) -> GpuLearner:
    device: Any = Poisoned(opened())
    try:
        options = PlanOptions(shared_bytes=device.limits.shared_bytes)
        planned = plan(built.update, batch_size, options)
        learner = GpuLearner(device, planned, updates=UPDATES)
        learner.begin(start)
    except BaseException:
        device.close()
        raise
    return learner


def _moved(built: Built, seed: int) -> dict[str, NDArray[np.float32]]:
    """Parameters away from where they start, so that targets differ from what they follow."""
    rng = np.random.default_rng(seed)
    return {
        name: (vector + 0.2 * rng.standard_normal(vector.size)).astype(np.float32)
        for name, vector in built.parameters.items()
    }


def _bits(learner: GpuLearner) -> dict[str, bytes]:
    return {name: learner.vector("parameters", name).tobytes() for name in learner.plan.layouts}


def _relative(got: NDArray[Any], want: NDArray[Any]) -> float:
    difference = np.linalg.norm(np.asarray(got, np.float64) - want)
    return float(difference / max(float(np.linalg.norm(want)), 1e-30))
