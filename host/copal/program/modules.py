# SPDX-License-Identifier: MIT
"""PyTorch modules as flat float32 vectors, in the layout that every executor shares."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from copal.errors import SchemaError
from copal.program.program import Dense, Network


def parameter_offsets(module: nn.Module) -> dict[str, int]:
    """Where each parameter starts in the flat vector, by its name in `named_parameters()`."""
    offsets, end = {}, 0
    for name, parameter in module.named_parameters():
        offsets[name] = end
        end += parameter.numel()
    return offsets


def network_of(name: str, module: nn.Module) -> Network:
    """The layout of `module`: its parameters in order, dense layers as [out, in] then bias."""
    offsets = parameter_offsets(module)
    layers = []
    for path, part in module.named_modules():
        weight = f"{path}.weight" if path else "weight"
        if isinstance(part, nn.Linear) and weight in offsets:
            bias = offsets[weight.removesuffix("weight") + "bias"] if part.bias is not None else -1
            layers.append(Dense(offsets[weight], bias, part.in_features, part.out_features))
    size = sum(p.numel() for p in module.parameters())
    return Network(name, size, tuple(sorted(layers, key=lambda d: d.weight)))


def flatten_module(module: nn.Module) -> NDArray[np.float32]:
    """A copy of the parameters of `module` as one float32 vector."""
    parts = [p.detach().cpu().numpy().ravel() for p in module.parameters()]
    if not parts:
        return np.zeros(0, np.float32)
    return np.concatenate(parts).astype(np.float32)


def unflatten_into(module: nn.Module, vector: NDArray[np.floating]) -> None:
    """Copies a flat vector into the parameters of `module`.

    Args:
        module: Receives the values, in its own dtype.
        vector: float [size], as `flatten_module` returns it.

    Raises:
        SchemaError: The vector has another size; nothing is changed.
    """
    size = sum(p.numel() for p in module.parameters())
    if vector.shape != (size,):
        raise SchemaError("vector", f"shape ({size},)", f"shape {vector.shape}")
    with torch.no_grad():
        start = 0
        for parameter in module.parameters():
            stop = start + parameter.numel()
            values = torch.from_numpy(np.array(vector[start:stop]))
            parameter.copy_(values.view_as(parameter))
            start = stop
