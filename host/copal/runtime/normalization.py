# SPDX-License-Identifier: MIT
"""Mean and deviation of observations, measured before a run that normalises them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copal import envs
from copal.config import TrainConfig

STEPS = 1_000
"""Env steps of the random rollout; they do not count among the run's."""
_STREAM = 2**31
"""Apart from the streams of the actors, so that their episodes are other ones."""
_SMALLEST_STD = 1e-6


def measure(config: TrainConfig) -> NDArray[np.float32]:
    """Acts at random in an environment of its own, from the run's seed.

    Args:
        config: The run.

    Returns:
        float32 [2 * width]: the mean of each component of an observation, then one over its
        standard deviation; 1 for a component that never changes. These are the parameters of the
        network `observation_scale`.

    Raises:
        EnvironmentFailedError: The environment failed three times in a row.
    """
    pool = envs.make(
        config.env,
        1,
        seed=config.seed,
        first_stream=_STREAM,
        vectorization=config.vectorization,
        frame_stack=config.frame_stack,
    )
    rng = np.random.default_rng((config.seed, _STREAM))
    seen = np.empty((STEPS, pool.obs[0].size))
    try:
        for row in seen:
            row[:] = pool.obs.ravel()
            pool.step(_random(pool, rng))
            pool.advance()
    finally:
        pool.close()
    std = seen.std(axis=0)
    inverse = np.where(std > _SMALLEST_STD, 1 / np.maximum(std, _SMALLEST_STD), 1.0)
    return np.concatenate([seen.mean(axis=0), inverse]).astype(np.float32)


def _random(pool: envs.Environments, rng: np.random.Generator) -> NDArray[np.generic]:
    if pool.actions.kind == "box":
        return rng.uniform(-1, 1, (1, pool.actions.width)).astype(np.float32)
    return rng.integers(pool.actions.count, size=1)
