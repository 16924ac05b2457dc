# SPDX-License-Identifier: MIT
"""Whole updates of every algorithm on the engine's model, against the float64 reference."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from fpga_engine import Engine, engine, random_batch
from torch import nn

from copal.algorithms import ddpg, dqn, sac, td3
from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.base import Built, CommonConfig
from copal.algorithms.networks import mlp
from copal.fpga.compiler import compile_update
from copal.program import Phase, reference
from copal.program.noise import with_noise


def box(width: int) -> gym.spaces.Box:
    return gym.spaces.Box(-1, 1, (width,), np.float32)


@functools.cache
def dqn_built(
    width: int = 3, actions: int = 4, hidden: tuple[int, ...] = (9, 7), **settings: Any
) -> Built:
    config = dqn.DqnConfig(hidden=hidden, **settings)
    return dqn.build(box(width), gym.spaces.Discrete(actions), config)


ALGORITHMS: dict[str, Callable[[], Built]] = {
    "dqn": dqn_built,
    "dqn without clipping": lambda: dqn_built(max_grad_norm=None, huber=False),
    "double dqn": lambda: dqn_built(double=True, normalize_observations=True),
    "ddpg": lambda: ddpg.build(box(3), box(2), ddpg.DdpgConfig(hidden=(8, 9))),
    "td3": lambda: td3.build(box(3), box(1), td3.Td3Config(hidden=(9, 5))),
    "sac": lambda: sac.build(box(3), box(2), sac.SacConfig(hidden=(9, 7))),
    "sac with clipping": lambda: sac.build(
        box(3), box(1), sac.SacConfig(hidden=(8,), max_grad_norm=0.3, target_update_interval=3)
    ),
}


@functools.cache
def algorithm(name: str) -> Built:
    """One of `ALGORITHMS`; capturing takes longer than a test."""
    return ALGORITHMS[name]()


def relative(got: Any, want: Any) -> float:
    """Norm of the difference by the norm of what is wanted."""
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-12))


def follow(built: Built, rows: int, updates: int, rng: np.random.Generator, **settings: Any) -> Any:
    """Runs updates on the model and checks each part of them from where it started.

    Returns:
        The engine, and relative errors of the gradients against float64 where nothing saturated.
    """
    block, choices = settings.pop("block_rows", None), settings.pop("choices", 4)
    plan = compile_update(built.update, engine(**settings), rows, block)
    run = Engine(plan, built.parameters, rng)
    errors = []
    for u in range(updates):
        batch = with_noise(built.update, random_batch(built.update, rows, rng, choices), u)
        saturated = run.follower.saturated.sum() if run.follower else 0
        moments = {name: run.moments(name) for name in built.update.trained()}
        outputs = run.step(batch)
        expected = {**run.starts[0]}
        for i, gradient in run.gradients.items():
            phase = built.update.phases[i]
            result = reference.run(phase.program, run.starts[i], batch)
            got, want = outputs[i, "td_error"][:, 0], result.outputs["td_error"]
            if run.follower.saturated.sum() == saturated:
                errors.append(relative(gradient, result.gradient / rows))
                np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max(initial=1))
            name = str(phase.program.gradient)
            expected[name] = _stepped(
                phase, gradient, run.starts[i][name], moments[name], run.steps[i]
            )
        for t in built.update.targets:
            if (u + 1) % t.every == 0:
                follower = expected[t.target].astype(np.float64)
                expected[t.target] = follower + t.tau * (expected[t.source] - follower)
        for name, want in expected.items():
            moved = np.abs(want - run.starts[0][name]).max(initial=0)
            clipped = any(p.max_grad_norm for p in built.update.phases)
            # The norm is less exact while gradients are far smaller than those that came before.
            tolerance = (0.3 if clipped else 1e-4) * moved + 3e-7
            np.testing.assert_allclose(run.parameters()[name], want, atol=tolerance, rtol=0)
    return run, errors


def _stepped(phase: Phase, gradient: Any, start: Any, moments: Any, step: int) -> Any:
    """Adam in float64 on the engine's own gradient."""
    parameters = start.astype(np.float64)
    if phase.max_grad_norm is not None:
        gradient = gradient * reference.clip_factor(gradient, phase.max_grad_norm)
    first, second = (m.astype(np.float64) for m in moments)
    reference.adam_step(phase.optimiser, step, gradient, parameters, first, second)
    return parameters


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_of_every_algorithm(name: str, rng: np.random.Generator) -> None:
    """Gradients, TD errors, optimiser and targets over several updates."""
    _, errors = follow(algorithm(name), 20, 6, rng)
    assert np.median(errors) < 5e-3


@pytest.mark.parametrize("name", ["dqn", "sac with clipping"])
def test_norm_of_a_clipped_gradient(name: str, rng: np.random.Generator) -> None:
    """The factor that the engine multiplies a gradient with, biases included."""
    update = algorithm(name).update
    phases = tuple(dataclasses.replace(p, max_grad_norm=0.01) for p in update.phases)
    plan = compile_update(dataclasses.replace(update, phases=phases), engine(), 20)
    run = Engine(plan, algorithm(name).parameters, rng)
    run.step(random_batch(update, 20, rng))
    for phase, gradient in run.gradients.items():
        factor = run.model.memories.k[16 * phase + 8, 0] * 20
        assert factor == pytest.approx(reference.clip_factor(gradient, 0.01), rel=2e-3)


@pytest.mark.parametrize("rows", [1, 3, 5, 33])
def test_rows_that_fill_no_tile(rows: int, rng: np.random.Generator) -> None:
    """Lanes behind the last row count nowhere."""
    _, errors = follow(dqn_built(max_grad_norm=None), rows, 3, rng)
    assert np.median(errors) < 5e-3


@pytest.mark.parametrize(
    "shape", [(1, 2, (1,)), (3, 18, (17,)), (17, 3, (3, 1, 17, 4)), (4, 2, ())]
)
@pytest.mark.parametrize("array_size", [4, 8])
def test_odd_shapes(
    shape: tuple[int, int, tuple[int, ...]], array_size: int, rng: np.random.Generator
) -> None:
    """Layers narrower and wider than the array, many actions, deep networks, no hidden layer."""
    width, actions, hidden = shape
    built = dqn_built(width, actions, hidden)
    _, errors = follow(built, 10, 3, rng, array_size=array_size, choices=actions)
    assert np.median(errors) < 5e-3


@pytest.mark.parametrize(
    ("a_bits", "b_bits", "most"), [(16, 16, 2e-2), (18, 18, 5e-3), (18, 25, 2e-3)]
)
def test_operand_widths(a_bits: int, b_bits: int, most: float, rng: np.random.Generator) -> None:
    """Narrower operands are less exact, not wrong."""
    _, errors = follow(algorithm("td3"), 16, 4, rng, a_bits=a_bits, b_bits=b_bits)
    assert np.median(errors) < most


@pytest.mark.parametrize("block_rows", [4, 8, 20])
@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_blocks_sum_to_the_whole_batch(
    name: str, block_rows: int, rng: np.random.Generator
) -> None:
    """A batch in blocks, the last one smaller, gives the same TD errors and the same step."""
    built = algorithm(name)
    batch = random_batch(built.update, 21, rng)
    runs = []
    for rows in (None, block_rows):
        plan = compile_update(built.update, engine(), 21, rows)
        runs.append(Engine(plan, built.parameters, rng))
    one, parts = (run.step(batch) for run in runs)
    assert len(runs[1].plan.phases[0].blocks) == -(-21 // block_rows)
    for key, want in one.items():
        if key[0] == 0:
            np.testing.assert_array_equal(parts[key], want)
    first, second = (run.gradients[0] for run in runs)
    assert relative(second, first) < 1e-5


def test_gradient_in_a_realistic_size(rng: np.random.Generator) -> None:
    """The error that the issue asks for, on wide layers."""
    _, errors = follow(dqn_built(8, 4, (64, 64)), 64, 5, rng, array_size=8)
    assert np.median(errors) < 5e-3


class _Twice(nn.Module):
    """Hidden features that two heads share."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.value, self.other = mlp((3, 8, 6)), mlp((6, 5, 1)), mlp((6, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.body(x))
        values: torch.Tensor = self.value(hidden) + self.other(hidden).tanh()
        return values.squeeze(1)


def _own(loss: Callable[[Any, Any], Any]) -> Built:
    """An algorithm of one's own on a network with two heads."""
    return assemble(
        "own",
        CommonConfig(),
        networks={"v": _Twice(), "v_target": _Twice()},
        steps=[Step("v", loss)],
        acting=Acting(lambda nets, batch: (nets.v(batch.obs),), ("v",), ("action",)),
        columns=transitions(3, ((1,), "float32")),
    )


def _td(nets: Any, batch: Any) -> Any:
    with torch.no_grad():
        y = batch.reward + batch.discount * nets.v_target(batch.next_obs)
    error = nets.v(batch.obs) - y
    return 0.5 * batch.weight * error**2, error, {}


def _residual(nets: Any, batch: Any) -> Any:
    """Residual gradient: the network is differentiated at both observations."""
    error = nets.v(batch.obs) - batch.reward - batch.discount * nets.v(batch.next_obs)
    old = nets.v_target(batch.obs).detach()
    return 0.5 * error**2 + 0.1 * (nets.v(batch.obs) - old) ** 2, error, {}


@pytest.mark.parametrize("loss", [_td, _residual])
def test_algorithms_of_one_s_own(loss: Callable[[Any, Any], Any], rng: np.random.Generator) -> None:
    """Gradients that meet in a hidden layer, and weights that get two gradients in one update."""
    run, errors = follow(_own(loss), 13, 4, rng, array_size=4)
    assert np.median(errors) < 5e-3
    runs = run.plan.phases[0].blocks[0].runs
    assert (len(runs) > 1) == (loss is _residual)
    _, errors = follow(_own(loss), 13, 3, rng, block_rows=4)
    assert np.median(errors) < 5e-3
