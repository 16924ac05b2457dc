# SPDX-License-Identifier: MIT
"""What the learner benchmark runs: an algorithm of given sizes, and a random batch for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from copal import algorithms
from copal.algorithms.base import Built

DISCRETE = (8, 4)
"""Observations and actions of LunarLander."""
CONTINUOUS = (17, 6)
"""Those of HalfCheetah."""


def build(
    algo: str,
    hidden: Sequence[int],
    obs: int | None = None,
    actions: int | None = None,
    seed: int = 0,
) -> Built:
    """The algorithm without clipping, on the kind of actions that it takes.

    Args:
        algo: Name of an algorithm.
        hidden: Sizes of the hidden layers.
        obs: Numbers of an observation; None: those of a well-known environment.
        actions: Number of actions, or of a continuous action's components; None: likewise.
        seed: Of the parameters.

    Raises:
        UnknownNameError: There is no such algorithm.
        ConfigError: It takes neither discrete nor continuous actions.
    """
    import gymnasium as gym

    algorithm = algorithms.get(algo)
    wanted = {"hidden": tuple(hidden), "max_grad_norm": None}
    known = {f.name for f in fields(algorithm.config)}
    config = algorithm.config(**{k: v for k, v in wanted.items() if k in known})
    discrete = gym.spaces.Discrete(actions or DISCRETE[1])
    continuous = gym.spaces.Box(-1, 1, (actions or CONTINUOUS[1],))
    spaces = [
        (gym.spaces.Box(-1, 1, (obs or DISCRETE[0],)), discrete),
        (gym.spaces.Box(-1, 1, (obs or CONTINUOUS[0],)), continuous),
    ]
    return algorithms.build_on_first(algorithm, spaces, config, seed)


def random_batch(built: Built, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Random columns [batch_size, ...] for every stored input of the Update.

    Args:
        built: The algorithm; noise that learners make is left out.
        batch_size: Rows.
        seed: Of the numbers.

    Returns:
        Columns in the replay's dtypes, actions within their bounds.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "discount": np.full(batch_size, 0.99, np.float32),
        "weight": rng.random(batch_size).astype(np.float32),
    }
    for name, (shape, dtype) in built.columns.items():
        kind, size = np.dtype(dtype), (batch_size, *shape)
        if kind.kind == "b":
            columns[name] = rng.random(size) < 0.1
        elif kind.kind in "iu":
            columns[name] = rng.integers(0, _choices(built), size).astype(kind)
        elif name == "action":
            columns[name] = rng.uniform(-1, 1, size).astype(kind)
        else:
            columns[name] = rng.standard_normal(size).astype(kind)
    return columns


def _choices(built: Built) -> int:
    """Number of discrete actions: the width of the policy's action values."""
    policy = built.update.policy
    widths = {buffer.name: buffer.width for buffer in policy.buffers()}
    return widths[policy.outputs["q"]]


def noise_widths(built: Built) -> dict[str, int]:
    """Width of each column of standard normal numbers that learners make."""
    inputs = (b for phase in built.update.phases for b in phase.program.inputs)
    return {b.name: b.width for b in inputs if b.source == "normal"}


def update_flops(built: Built, batch_size: int) -> float:
    """Floating-point operations of one update's dense products, on average over updates."""
    phases = built.update.phases
    return batch_size * sum(phase.program.flops_per_row() / phase.every for phase in phases)
