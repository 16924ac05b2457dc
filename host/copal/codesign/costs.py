# SPDX-License-Identifier: MIT
"""What each stage costs alone: from the curves' first points, and what they do not tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from copal.codesign.mapping import IN_HOST_MEMORY
from copal.codesign.profile import Cost, Curve, Profile
from copal.codesign.rig import Rig
from copal.codesign.stages import STAGES

BLOCK_S = 0.03
"""Length of one timing."""
SMALLEST_US = 1e-3


def from_points(profile: Profile) -> list[Cost]:
    """Stages of one actor alone, and of one learner alone of each backend."""
    found = _of("", profile.actors, "env step")
    for curve in profile.learners:
        if not curve.simulated:
            found += _of(curve.backend, curve, "update")
    return found


def measure(rig: Rig, curve: Curve, repeats: int) -> list[Cost]:
    """Splits an update into what grows with the rows and what does not; times the read-back.

    `row_program` is what the rows of a batch cost, `reduce` what an update costs whatever its rows
    are: summing, Adam, averaging. Both come from updates of a whole batch and of a single row.
    `transfer_weights` is reading the acting networks back, where they are not in host memory.

    Args:
        rig: Where batches come from.
        curve: The backend, with its options.
        repeats: Figures of each.
    """
    rows = rig.batch_size
    whole = _update_us(rig, curve, rows, repeats)
    single = _update_us(rig, curve, 1, repeats) if rows > 1 else whole
    by_row = [
        max(SMALLEST_US, (w - s) / max(1, rows - 1)) for w, s in zip(whole, single, strict=True)
    ]
    reduce = [max(SMALLEST_US, s - r) for s, r in zip(single, by_row, strict=True)]
    program = [max(SMALLEST_US, w - r) for w, r in zip(whole, reduce, strict=True)]
    name = curve.backend
    found = [
        Cost("row_program", name, tuple(program), unit=f"{rows} rows"),
        Cost("reduce", name, tuple(reduce), unit="update"),
    ]
    if name not in IN_HOST_MEMORY:
        found.append(Cost("transfer_weights", name, tuple(_read_back_us(rig, curve, repeats))))
    return found


def _of(backend: str, curve: Curve, unit: str) -> list[Cost]:
    first = next((p for p in curve.points if p.x == 1), None)
    if first is None:
        return []
    return [
        Cost(stage, backend, tuple(max(SMALLEST_US, us) for us in first.stages[stage]), unit=unit)
        for stage in STAGES
        if first.stages.get(stage)
    ]


def _update_us(rig: Rig, curve: Curve, rows: int, repeats: int) -> list[float]:
    learner = rig.learner(curve.backend, 1, batch_size=rows, **curve.options)
    batch: Mapping[str, Any] = dict(rig.replay.sample(rows, beta=0.4).items())
    try:
        return timed(lambda: learner.step(batch), repeats)
    finally:
        learner.close()


def _read_back_us(rig: Rig, curve: Curve, repeats: int) -> list[float]:
    learner = rig.learner(curve.backend, 1, **curve.options)
    names = [network.name for network in rig.built.update.policy.networks]
    batch = dict(rig.replay.sample(rig.batch_size, beta=0.4).items())

    def read() -> None:
        np.concatenate([learner.parameters(name) for name in names])

    found = []
    try:
        for _ in range(repeats):
            learner.step(batch)  # a learner may keep what it has read of an update
            began = time.perf_counter()
            read()
            found.append((time.perf_counter() - began) * 1e6)
    finally:
        learner.close()
    return found


def timed(call: Callable[[], object], repeats: int, block_s: float = BLOCK_S) -> list[float]:
    """Microseconds a call, `repeats` figures of blocks of calls."""
    call()
    began = time.perf_counter()
    call()
    count = max(1, int(block_s / max(time.perf_counter() - began, 1e-7)))
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(count):
            call()
        found.append((time.perf_counter() - began) / count * 1e6)
    return found
