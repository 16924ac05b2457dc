# SPDX-License-Identifier: MIT
"""The convolutional network of DQN on images (Mnih et al. 2015), from flat rows of bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from copal.algorithms.networks import seeded
from copal.errors import ConfigError

SMALLEST = 36
"""Pixels a side that three convolutions leave something of."""
_CHANNELS = (1, 3, 4)
"""Lengths of a last axis that is taken for colours."""


class Pixels(nn.Module):
    """Rows of bytes [B, width] as planes [B, C, H, W] in [0, 1].

    Args:
        shape: Of one observation: [H, W], [C, H, W], [H, W, C], or with an axis of stacked frames
            in front of one of the latter. A last axis of 1, 3 or 4 holds the colours.

    Raises:
        ConfigError: The images are smaller than `SMALLEST` or have other axes.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self._shape = tuple(shape)
        colours_last = len(shape) >= 3 and shape[-1] in _CHANNELS
        axes = list(range(1, len(shape) + 1))
        self._order = [0, *axes[:-3], axes[-1], *axes[-3:-1]] if colours_last else [0, *axes]
        ordered = [(0, *shape)[axis] for axis in self._order[1:]]
        self.planes = (math.prod(ordered[:-2]), *ordered[-2:])
        if not 2 <= len(shape) <= 4 or min(self.planes[1:]) < SMALLEST:
            raise ConfigError(
                "observation_space",
                f"images of at least {SMALLEST} x {SMALLEST} pixels",
                f"shape {self._shape}",
                "resize the observations to 84 x 84, or flatten small ones to a vector of floats",
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Planes float [B, C, H, W] from numbers 0 to 255, [B, width]."""
        images = x.reshape(-1, *self._shape).permute(self._order)
        return images.reshape(-1, *self.planes) / 255


def nature_cnn(shape: Sequence[int], outputs: int, seed: int) -> nn.Sequential:
    """Three convolutions and a dense layer of 512, as in Mnih et al. 2015, Methods.

    Args:
        shape: Of one observation; see `Pixels`.
        outputs: Numbers in the result, one an action.
        seed: Of the initial parameters; PyTorch's global generator is left as it was.

    Raises:
        ConfigError: The images are too small or have other axes.
    """
    pixels = Pixels(shape)
    with seeded(seed):
        convolutions = nn.Sequential(
            pixels,
            nn.Conv2d(pixels.planes[0], 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            features = convolutions(torch.zeros(1, math.prod(shape))).shape[1]
        head = (nn.Linear(features, 512), nn.ReLU(), nn.Linear(512, outputs))
    return nn.Sequential(*convolutions, *head)
