# SPDX-License-Identifier: MIT
"""What an algorithm delivers, and the settings that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from copal.errors import ConfigError
from copal.program import Update

if TYPE_CHECKING:
    from torch import nn

#: Column name to (shape without the row axis, dtype), as a replay buffer takes it.
Columns = Mapping[str, tuple[tuple[int, ...], str]]

#: How actors explore: "epsilon" takes random discrete actions now and then; "gaussian" adds normal
#: noise to the policy's output `action`; "policy" takes the output `sample` of a policy that reads
#: standard normal numbers from its input `noise`.
Exploration = Literal["epsilon", "gaussian", "policy"]

#: Network that normalises observations; its parameters are measured before a run, never trained.
SCALE = "observation_scale"


@dataclass(frozen=True)
class CommonConfig:
    """Settings that every algorithm has.

    Raises:
        ConfigError: A value is out of range.
    """

    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers of every network."""
    learning_rate: float = 3e-4
    """Step size of Adam."""
    adam_eps: float = 1e-8
    """Added to the denominator of Adam's step."""
    huber: bool = False
    """Loss of a TD error: linear beyond 1 instead of half its square."""
    target_tau: float = 0.005
    """Averaging rate of the target networks; 1 copies."""
    target_update_interval: int = 1
    """Updates between two steps of the target networks."""
    max_grad_norm: float | None = None
    """Clip each gradient to this Euclidean norm; None or 0: no clipping."""
    reward_scale: float = 1.0
    """Factor of every reward in the loss."""
    normalize_observations: bool = False
    """Subtract a mean and divide by a deviation, both fixed before the run."""

    def __post_init__(self) -> None:
        for name, (expected, fits) in self.checks().items():
            value = getattr(self, name)
            try:
                fine = bool(fits(value))
            except TypeError:  # it is not even a number
                fine = False
            if not fine:
                raise ConfigError(name, expected, str(value))

    def checks(self) -> dict[str, tuple[str, Callable[[Any], bool]]]:
        """Setting to what it has to be, in words and as a function of its value."""
        return {
            "hidden": ("sizes above 0", lambda v: all(_is_count(n) for n in v)),
            "learning_rate": POSITIVE,
            "adam_eps": POSITIVE,
            "huber": FLAG,
            "target_tau": ("a number in (0, 1]", lambda v: 0 < v <= 1),
            "target_update_interval": COUNT,
            "max_grad_norm": (
                "a number above 0, or 0 or None for no clipping",
                lambda v: v is None or 0 <= v < math.inf,
            ),
            "reward_scale": POSITIVE,
            "normalize_observations": FLAG,
        }

    @classmethod
    def names(cls) -> frozenset[str]:
        """Names of the settings."""
        return frozenset(f.name for f in fields(cls))


#: Checks that several settings share, in words and as a function of the value.
POSITIVE: tuple[str, Callable[[Any], bool]] = (
    "a finite number above 0",
    lambda v: 0 < v < math.inf,
)
NOT_NEGATIVE: tuple[str, Callable[[Any], bool]] = (
    "a finite number of at least 0",
    lambda v: 0 <= v < math.inf,
)
COUNT: tuple[str, Callable[[Any], bool]] = ("an integer above 0", lambda v: _is_count(v))
FLAG: tuple[str, Callable[[Any], bool]] = ("True or False", lambda v: isinstance(v, bool))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True)
class Source:
    """The PyTorch code that an Update was captured from, for the `torch` backend."""

    losses: tuple[Callable[[Any, Any], Any], ...]
    """`loss(nets, batch)` of each phase, in order."""
    networks: Mapping[str, nn.Module]
    """Network name to a module of its architecture; several names may share one."""
    forward: Callable[[Any, Any], Any] | None = None
    """`forward(nets, batch)` of the policy; needed where only PyTorch can run it."""


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
    exploration: Exploration = "epsilon"
    """How actors explore."""


class Algorithm(Protocol):
    """One file of `copal.algorithms`, or an object of the user's own."""

    @property
    def name(self) -> str:
        """What the user types after `--algo`."""

    @property
    def config(self) -> type:
        """Frozen dataclass of its settings; those with a name of TrainConfig are taken from it."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """TrainConfig field to the value that it has with this algorithm unless it is set."""

    def build(
        self, observation_space: Any, action_space: Any, config: Any = None, seed: int = 0
    ) -> Built:
        """Makes networks and captures the update.

        Args:
            observation_space: Gymnasium space of one observation.
            action_space: Gymnasium space of one action.
            config: Settings, an instance of `config`; None: the defaults.
            seed: Of the initial parameters and of the noise that learners make.

        Raises:
            ConfigError: A space does not fit the algorithm.
        """
