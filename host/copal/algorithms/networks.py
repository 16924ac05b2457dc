# SPDX-License-Identifier: MIT
"""Network builders, and the way between PyTorch modules and flat vectors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from copal.program.modules import flatten_module, unflatten_into

__all__ = ["flatten_module", "mlp", "unflatten_into"]


def mlp(sizes: Sequence[int], seed: int) -> nn.Sequential:
    """Dense layers of the given sizes with a ReLU between, initialised as PyTorch does by default.

    Args:
        sizes: Inputs, hidden layers, outputs.
        seed: Of the initial parameters; PyTorch's global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
