# SPDX-License-Identifier: MIT
"""Every algorithm's kernels compile for every architecture and stay within their limits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from copal.bench.learner_build import build
from copal.gpu.compiler import ARCHITECTURES, Resources, compile_unit
from copal.gpu.plan import GpuPlan, plan
from copal.gpu.source import unit

HIDDEN, BATCH_SIZE = (256, 256), 256
REGISTERS = {"gradient": 240, "reduce": 44, "sum": 40, "average": 24}
"""Most registers a thread, by kind of kernel; 255 is where spills begin."""
LIMITS: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "dqn": (("average_0",), (34_816,)),
    "double-dqn": (("average_0",), (34_816,)),
    "ddpg": (("average_0", "average_1"), (36_864, 43_008)),
    "td3": (("average_0", "average_1"), (67_584, 43_008)),
    "sac": (("average_0",), (67_584, 61_440, 17_408)),
}
"""By algorithm: its averages, and most shared memory a block in each phase, bytes."""
SMALLEST_SHARED = 99 * 1024
"""What a block may have on sm_120; sm_80 has 163 KiB, sm_90 227 KiB."""


@functools.cache
def _planned(algo: str) -> GpuPlan:
    return plan(build(algo, HIDDEN).update, BATCH_SIZE)


@pytest.fixture(scope="module")
def compiled() -> Iterator[Mapping[tuple[str, str], Future[Mapping[str, Resources]]]]:
    """Figures of all, being compiled two at a time; the first run of a version takes longest."""

    def figures(algo: str, architecture: str) -> Mapping[str, Resources]:
        return compile_unit(unit(_planned(algo)), architecture).resources

    pool = ThreadPoolExecutor(2)
    for algo in LIMITS:
        _planned(algo)
    yield {
        (algo, architecture): pool.submit(figures, algo, architecture)
        for algo in LIMITS
        for architecture in ARCHITECTURES
    }
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("algo", LIMITS)
def test_registers_spills_and_stack(
    compiled: Mapping[tuple[str, str], Future[Mapping[str, Resources]]],
    algo: str,
    architecture: str,
) -> None:
    """No kernel spills or keeps anything in local memory; static shared memory is small."""
    found = compiled[algo, architecture].result(timeout=280)
    phases = range(len(_planned(algo).phases))
    want = {f"{kind}_{n}" for n in phases for kind in ("gradient", "sum", "reduce")}
    assert set(found) == want | set(LIMITS[algo][0])
    for name, used in found.items():
        assert used.spill_bytes == 0, name
        assert used.stack_bytes == 0, name
        assert used.shared_bytes <= 1024, name
        assert used.registers <= REGISTERS[name.split("_")[0]], (name, used)


@pytest.mark.parametrize("algo", LIMITS)
def test_shared_memory(algo: str) -> None:
    """Of each phase within its limit, and within what every architecture has."""
    wanted = [4 * phase.placement.shared_floats for phase in _planned(algo).phases]
    limits = LIMITS[algo][1]
    assert len(wanted) == len(limits)
    assert all(want <= limit <= SMALLEST_SHARED for want, limit in zip(wanted, limits, strict=True))
