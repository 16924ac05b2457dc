# SPDX-License-Identifier: MIT
"""What an algorithm delivers, and the checks that its builders share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from copal.errors import ConfigError
from copal.program import Update

if TYPE_CHECKING:
    from torch import nn

#: Column name to (shape without the row axis, dtype), as a replay buffer takes it.
Columns = Mapping[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Source:
    """The PyTorch code that an Update was captured from, for the `torch` backend."""

    losses: tuple[Callable[[Any, Any], Any], ...]
    """`loss(nets, batch)` of each phase, in order."""
    networks: Mapping[str, nn.Module]
    """Network name to a module of its architecture; several names may share one."""


@dataclass(frozen=True)
class Built:
    """An algorithm for given spaces, ready to train."""

    update: Update
    """What learners run."""
    parameters: dict[str, NDArray[np.float32]]
    """Network name to initial flat vector."""
    columns: Columns
    """What the replay buffer has to hold."""
    source: Source
    """The code it was captured from."""


class Algorithm(Protocol):
    """One file of `copal.algorithms`."""

    @property
    def name(self) -> str:
        """What the user types after `--algo`."""

    @property
    def config(self) -> type:
        """Frozen dataclass of its settings."""

    def build(
        self, observation_space: Any, action_space: Any, config: Any = None, seed: int = 0
    ) -> Built:
        """Makes networks and captures the update.

        Args:
            observation_space: Gymnasium space of one observation.
            action_space: Gymnasium space of one action.
            config: Settings, an instance of `config`; None: the defaults.
            seed: Of the initial parameters.

        Raises:
            ConfigError: A space does not fit the algorithm.
        """


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
            "networks here are made of dense layers: pass features or a scaled float observation",
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
            "algorithms for continuous actions are DDPG, TD3 and SAC, which are not part of this "
            "version: choose an environment with discrete actions"
        )
    else:
        hint = "wrap the environment so that its actions are Discrete(n), counted from 0"
    raise ConfigError(
        "action_space", f"discrete actions, which {algorithm} needs", str(space), hint
    )
