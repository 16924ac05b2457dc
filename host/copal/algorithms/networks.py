# SPDX-License-Identifier: MIT
"""Network builders, and the way between PyTorch modules and flat vectors."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from copal.program.modules import flatten_module, unflatten_into

__all__ = [
    "Critic",
    "ObservationScale",
    "Temperature",
    "TwinCritic",
    "flatten_module",
    "mlp",
    "seeded",
    "unflatten_into",
]


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Modules made inside depend on `seed` alone; PyTorch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def mlp(sizes: Sequence[int], seed: int | None = None) -> nn.Sequential:
    """Dense layers of the given sizes with a ReLU between, initialised as PyTorch does by default.

    Args:
        sizes: Inputs, hidden layers, outputs.
        seed: Of the initial parameters; None: from PyTorch's global generator.
    """
    if seed is not None:
        with seeded(seed):
            return mlp(sizes)
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Critic(nn.Module):
    """Value of an action: `critic(obs, action)` takes [B, width] and [B, actions], returns [B].

    Args:
        width: Numbers of an observation.
        actions: Numbers of an action.
        hidden: Sizes of the hidden layers.
    """

    def __init__(self, width: int, actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.layers = mlp((width + actions, *hidden, 1))

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """See the class."""
        value: torch.Tensor = self.layers(torch.cat([obs, action], 1))
        return value.squeeze(1)


class TwinCritic(nn.Module):
    """Two critics of the same form, one parameter vector.

    Args:
        width: Numbers of an observation.
        actions: Numbers of an action.
        hidden: Sizes of the hidden layers.
    """

    def __init__(self, width: int, actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.first = Critic(width, actions, hidden)
        self.second = Critic(width, actions, hidden)

    def forward(
        self, obs: torch.Tensor, action: torch.Tensor, *, only_first: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Both values, each [B], or the first alone."""
        first: torch.Tensor = self.first(obs, action)
        return first if only_first else (first, self.second(obs, action))


class Temperature(nn.Module):
    """One positive number, kept as its logarithm.

    Args:
        initial: Its first value.
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(initial)]))

    def forward(self) -> torch.Tensor:
        """The logarithm, [1]."""
        return self.log_alpha


class ObservationScale(nn.Module):
    """`(obs - mean) * inverse_std`, within [-10, 10]; never trained.

    Args:
        width: Numbers of an observation.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.inverse_std = nn.Parameter(torch.ones(width), requires_grad=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Takes and returns [B, width]."""
        return ((obs - self.mean) * self.inverse_std).clamp(-10, 10)
