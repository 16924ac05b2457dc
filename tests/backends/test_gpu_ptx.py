# SPDX-License-Identifier: MIT
"""The PTX of whole updates, run by an interpreter behind CuPy's face, against shim and float64.

Shared memory is watched: every use that no barrier orders is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import algorithm_cases as cases
import gymnasium as gym
import numpy as np
import pytest

from copal import algorithms
from copal.errors import GpuError
from copal.gpu import learner, source
from copal.gpu.cupy_device import CupyDevice
from copal.gpu.device import GpuDevice, Unit
from copal.gpu.emulate import EmulatedDevice
from copal.gpu.learner import GpuLearner
from copal.gpu.plan import PlanOptions, plan
from copal.program.reference import ReferenceLearner
from fake_cupy import install

LIMIT = 1e-5
"""Largest relative error against float64."""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CupyDevice]:
    """Opens a GPU that interprets PTX."""

    def open_device(*, races: bool = True) -> CupyDevice:
        install(monkeypatch, 2**28, races=races)
        return CupyDevice()

    return open_device


def _relative(got: Any, want: Any) -> float:
    """Relative error of a vector; NaN if anything is."""
    difference = np.linalg.norm(np.asarray(got, np.float64) - want)
    return float(difference / max(np.linalg.norm(want), 1e-30))


def _opened(device: GpuDevice, case: cases.Case, start: dict[str, Any], updates: int) -> GpuLearner:
    update = case.built.update
    opened = GpuLearner(device, plan(update, case.rows), updates=updates)
    opened.begin(start)
    return opened


def _compare(
    case: cases.Case, device: GpuDevice, start: dict[str, Any], batches: Sequence[dict[str, Any]]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Gradients of each phase, then all updates in one launch: TD errors and parameters."""
    update = case.built.update
    ours = _opened(device, case, start, len(batches))
    oracle = ReferenceLearner(update, start)
    for phase in range(len(update.phases)):
        gradient, td, _ = ours.gradient([batches[0]], phase)
        want, want_td, _ = oracle.gradient(batches[0], phase)
        assert _relative(gradient[0], want) < LIMIT
        assert _relative(td[0], want_td) < LIMIT
    found = ours.run([[batch] for batch in batches])
    for got, batch in zip(found[:, 0], batches, strict=True):
        assert _relative(got, oracle.step(batch)) < LIMIT
    vectors = {network: ours.vector("parameters", network) for network in start}
    for network, got in vectors.items():
        assert _relative(got, oracle.parameters[network]) < LIMIT, network
    ours.close()
    return found, vectors


@pytest.mark.parametrize("name", cases.NAMES)
def test_updates_of_random_sizes(
    cuda: Callable[..., CupyDevice], rng: np.random.Generator, name: str
) -> None:
    """Two updates in one launch of every algorithm; the kernels make the noise."""
    case = cases.make(name, rng)
    start = cases.parameters(case, rng)
    batches = [cases.batch(case, rng, noise=False) for _ in range(2)]
    _compare(case, cuda(), start, batches)


def test_update_of_a_wide_network(
    cuda: Callable[..., CupyDevice], rng: np.random.Generator
) -> None:
    """DQN 8-256-256-4 with a batch that fills no block, also equal to the kernels as g++ has them.

    Not watched, which takes too long.
    """
    built = _dqn(8, 4, (256, 256))
    case = cases.Case(built, 8, 4, 250)
    start = {n: v.copy() for n, v in built.parameters.items()}
    start["q_target"] = start["q_target"] + rng.normal(size=start["q"].size).astype("f4") / 50
    batch = cases.batch(case, rng)
    td, vectors = _compare(case, cuda(races=False), start, [batch])
    shim = _opened(EmulatedDevice(), case, start, 1)
    np.testing.assert_allclose(td, shim.run([[batch]]), rtol=1e-4, atol=1e-5)
    for network, vector in vectors.items():
        shown = shim.vector("parameters", network)
        np.testing.assert_allclose(vector, shown, rtol=1e-4, atol=1e-6)
    shim.close()


def test_dropped_barriers_are_noticed(
    cuda: Callable[..., CupyDevice], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each barrier of the gradient is needed: without it the interpreter finds the race."""
    case = cases.Case(_dqn(5, 3, (40, 33)), 5, 3, 45)
    original = source.unit(plan(case.built.update, case.rows))
    gradient = original.source.index("gradient_0(")
    barriers = [m for m in re.finditer(r"__syncthreads\(\);", original.source)
                if m.start() > gradient]  # fmt: skip
    assert len(barriers) >= 6
    start = cases.parameters(case, rng)
    for number in rng.choice(len(barriers), 2, replace=False):
        begin, end = barriers[number].span()
        text = original.source[:begin] + original.source[end:]
        mutant = Unit(original.name, text, original.kernels)
        monkeypatch.setattr(learner, "unit", lambda _, mutant=mutant: mutant)
        opened = _opened(cuda(), case, start, 1)
        with pytest.raises(GpuError, match=r"shared memory is .*no barrier between"):
            opened.run([[cases.batch(case, rng)]])


def test_agents_side_by_side(cuda: Callable[..., CupyDevice], rng: np.random.Generator) -> None:
    """Two agents in one launch are two learners of one agent each."""
    case = cases.Case(_dqn(3, 2, (17,)), 3, 2, 21)
    update = case.built.update
    both = GpuLearner(cuda(), plan(update, case.rows, PlanOptions(agents=2)))
    starts = [cases.parameters(case, rng) for _ in range(2)]
    batches = [cases.batch(case, rng) for _ in range(2)]
    for agent, start in enumerate(starts):
        both.begin(start, agent)
    td = both.run([batches])
    for agent, (start, batch) in enumerate(zip(starts, batches, strict=True)):
        oracle = ReferenceLearner(update, start)
        assert _relative(td[0, agent], oracle.step(batch)) < LIMIT
        for network in start:
            got = both.vector("parameters", network, agent)
            assert _relative(got, oracle.parameters[network]) < LIMIT


def _dqn(observations: int, actions: int, hidden: tuple[int, ...]) -> algorithms.Built:
    algorithm = algorithms.get("dqn")
    space = gym.spaces.Box(-1.0, 1.0, (observations,))
    return algorithm.build(space, gym.spaces.Discrete(actions), algorithm.config(hidden=hidden), 1)
