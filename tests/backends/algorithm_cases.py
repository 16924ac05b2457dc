# SPDX-License-Identifier: MIT
"""Every algorithm at random small sizes, with batches as a replay gives them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from copal import algorithms
from copal.algorithms import Built
from copal.program.arguments import Batch, Networks
from copal.program.modules import unflatten_into

NAMES = ("dqn", "double-dqn", "ddpg", "td3", "sac")


@dataclass(frozen=True)
class Case:
    """An algorithm built for random spaces and widths."""

    built: Built
    """The algorithm."""
    width: int
    """Numbers of an observation."""
    actions: int
    """Discrete actions, or numbers of an action."""
    rows: int
    """Batch size."""

    @property
    def discrete(self) -> bool:
        """Whether actions are indices."""
        return self.built.exploration == "epsilon"


def make(name: str, rng: np.random.Generator, **settings: Any) -> Case:
    """Builds `name` for random spaces, widths and batch size.

    Args:
        name: The algorithm.
        rng: Source of the sizes.
        settings: Of the algorithm's config.
    """
    width, actions, rows = (int(rng.integers(low, high)) for low, high in ((1, 9), (1, 5), (8, 65)))
    hidden = tuple(int(n) for n in rng.integers(1, 25, size=rng.integers(1, 4)))
    action_space: gym.Space[Any] = gym.spaces.Box(-2.0, 2.0, (actions,))
    if name.endswith("dqn"):
        action_space = gym.spaces.Discrete(actions)
    algorithm = algorithms.get(name)
    if name == "sac":
        # Far from the entropies that occur: its one gradient must not be a sum that cancels.
        settings.setdefault("target_entropy", 40.0)
    config = algorithm.config(**{"hidden": hidden, **settings})
    seed = int(rng.integers(2**63))
    space = gym.spaces.Box(-1.0, 1.0, (width,))
    print(f"{name}: {width} -> {hidden} -> {actions}, {rows} rows, {settings}")
    return Case(algorithm.build(space, action_space, config, seed), width, actions, rows)


def parameters(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Every network, targets too, moved away from where it starts; float32."""
    moved = {}
    for name, vector in case.built.parameters.items():
        moved[name] = (vector + rng.normal(size=vector.size) / 4).astype(np.float32)
    return moved


def batch(case: Case, rng: np.random.Generator, *, noise: bool = True) -> dict[str, np.ndarray]:
    """Rows with n-step discounts, some terminated, weights up to 1, and the learner's noise."""
    rows, width, actions = case.rows, case.width, case.actions
    columns = {
        "obs": rng.normal(size=(rows, width)),
        "reward": 3 * rng.normal(size=rows),
        "next_obs": rng.normal(size=(rows, width)),
        "terminated": rng.random(rows) < 0.3,
        "discount": 0.99 ** rng.integers(1, 6, size=rows),
        "weight": rng.random(rows),
        "action": rng.integers(actions, size=rows)
        if case.discrete
        else rng.uniform(-1, 1, (rows, actions)),
    }
    if noise:
        columns |= {n: rng.normal(size=(rows, actions)) for n in case.built.update.noises()}
    return {n: v.astype(np.float32) if v.dtype == np.float64 else v for n, v in columns.items()}


def autograd(
    case: Case, phase: int, vectors: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the mean loss of one phase and its TD errors, by PyTorch in float64."""
    source = case.built.source
    modules = {n: copy.deepcopy(m).double() for n, m in source.networks.items()}
    for name, module in modules.items():
        unflatten_into(module, vectors[name])
    trained = list(modules[str(case.built.update.phases[phase].program.gradient)].parameters())
    t = {
        n: torch.from_numpy(v if v.dtype == np.int64 else v.astype(np.float64))
        for n, v in columns.items()
    }
    row_loss, td_error = source.losses[phase](Networks(modules), Batch(t))[:2]
    gradients = torch.autograd.grad(row_loss.mean(), trained)
    return np.concatenate([g.numpy().ravel() for g in gradients]), td_error.detach().numpy()
