# SPDX-License-Identifier: MIT
"""Environments of Gymnasium and EnvPool behind one small interface."""

from __future__ import annotations

from copal.envs.base import Environments, Episode
from copal.envs.gymnasium_envs import GymnasiumEnvironments

__all__ = ["Environments", "Episode", "make"]


def make(
    env_id: str, count: int, *, seed: int, first_stream: int = 0, vectorization: str = "gymnasium"
) -> Environments:
    """N environments, in their first episode.

    Args:
        env_id: The environment.
        count: N.
        seed: Seed of the run.
        first_stream: Number of the first environment among all of the run.
        vectorization: `gymnasium` or `envpool`.

    Raises:
        UnknownNameError: No such environment; the near matches are listed.
        ConfigError: A package is missing.
        EnvironmentFailedError: It cannot even be reset.
    """
    if vectorization == "envpool":
        from copal.envs.envpool_envs import EnvPoolEnvironments

        return EnvPoolEnvironments(env_id, count, seed=seed, first_stream=first_stream)
    return GymnasiumEnvironments(env_id, count, seed=seed, first_stream=first_stream)
