# SPDX-License-Identifier: MIT
"""Environments of Gymnasium and EnvPool behind one small interface."""

from __future__ import annotations

from copal.envs.actions import Actions, Scale
from copal.envs.base import Environments, Episode, is_image
from copal.envs.gymnasium_envs import GymnasiumEnvironments

__all__ = ["Actions", "Environments", "Episode", "Scale", "is_image", "make"]


def make(
    env_id: str,
    count: int,
    *,
    seed: int,
    first_stream: int = 0,
    vectorization: str = "gymnasium",
    frame_stack: int = 1,
) -> Environments:
    """N environments, in their first episode.

    Args:
        env_id: The environment.
        count: N.
        seed: Seed of the run.
        first_stream: Number of the first environment among all of the run.
        vectorization: `gymnasium` or `envpool`.
        frame_stack: Newest observations that make one; EnvPool does that by itself.

    Raises:
        UnknownNameError: No such environment; the near matches are listed.
        ConfigError: A package is missing.
        EnvironmentFailedError: It cannot even be reset.
    """
    if vectorization == "envpool":
        from copal.envs.envpool_envs import EnvPoolEnvironments

        return EnvPoolEnvironments(env_id, count, seed=seed, first_stream=first_stream)
    return GymnasiumEnvironments(
        env_id, count, seed=seed, first_stream=first_stream, frame_stack=frame_stack
    )
