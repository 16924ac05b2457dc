# SPDX-License-Identifier: MIT
"""What observation and action spaces an algorithm takes, and what to do about the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from copal.errors import ConfigError


def observation_width(space: Any) -> int:
    """Numbers of one flattened observation.

    Args:
        space: A Gymnasium space.

    Raises:
        ConfigError: It is not a Box of floats.
    """
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if type(space).__name__ != "Box" or shape is None:
        raise ConfigError(
            "observation_space",
            "a Box of floats",
            str(space),
            "wrap the environment in gymnasium.wrappers.FlattenObservation",
        )
    if dtype == np.uint8 and len(shape) >= 2:
        raise ConfigError(
            "observation_space",
            "a Box of floats, of any shape",
            f"images, uint8 {shape}",
            "networks of this algorithm are made of dense layers: use `--algo dqn`, or pass "
            "features or scaled floats",
        )
    width: int = math.prod(shape)
    if width < 1:
        raise ConfigError("observation_space", "at least one number", str(space))
    return width


def discrete_actions(space: Any, algorithm: str) -> int:
    """Number of actions of a Discrete space that starts at 0.

    Args:
        space: A Gymnasium space.
        algorithm: Name for the error message.

    Raises:
        ConfigError: The actions are not discrete.
    """
    if type(space).__name__ == "Discrete" and int(space.start) == 0:
        return int(space.n)
    if type(space).__name__ == "Box":
        hint = (
            "algorithms for continuous actions are DDPG, TD3 and SAC: choose one with `--algo sac`,"
            " or an environment with discrete actions"
        )
    else:
        hint = "wrap the environment so that its actions are Discrete(n), counted from 0"
    raise ConfigError(
        "action_space", f"discrete actions, which {algorithm} needs", str(space), hint
    )


def box_actions(space: Any, algorithm: str) -> int:
    """Numbers of one flattened action of a bounded Box of floats.

    Args:
        space: A Gymnasium space.
        algorithm: Name for the error message.

    Raises:
        ConfigError: The actions are not continuous, or have no finite bounds.
    """
    if type(space).__name__ != "Box" or not np.issubdtype(space.dtype, np.floating):
        if type(space).__name__ == "Discrete":
            hint = (
                "algorithms for discrete actions are DQN and double DQN: choose one with "
                "`--algo dqn`, or an environment with continuous actions"
            )
        else:
            hint = "wrap the environment so that its actions are a Box of floats"
        raise ConfigError(
            "action_space", f"continuous actions, which {algorithm} needs", str(space), hint
        )
    width: int = math.prod(space.shape)
    if width < 1:
        raise ConfigError("action_space", "at least one number", str(space))
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(
            "action_space",
            "finite bounds",
            str(space),
            "wrap the environment in gymnasium.wrappers.RescaleAction or ClipAction, or give its "
            "action space bounds",
        )
    return width
