# SPDX-License-Identifier: MIT
"""What a loss is called with: networks by name and columns by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

Parameters = Mapping[str, torch.Tensor]


class Networks:
    """A loss sees it as `nets`: `nets.q(x)` runs network `q`. Columns [B] are taken as [B, 1].

    Keyword arguments reach the module as they are; it returns a tensor or a tuple of tensors.

    Args:
        modules: Network name to module; several names may share one.
        parameters: Network name to the parameters to run it with, by name; None: its own.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], parameters: Mapping[str, Parameters] | None = None
    ) -> None:
        self._modules, self._parameters = modules, parameters

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._modules:
            raise AttributeError(f"no network `{name}`, only {', '.join(self._modules)}")

        def call(*columns: torch.Tensor, **options: Any) -> Any:
            matrices = tuple(c.unsqueeze(1) if c.ndim == 1 else c for c in columns)
            module = self._modules[name]
            if self._parameters is None:
                return module(*matrices, **options)
            return functional_call(module, dict(self._parameters[name]), matrices, options)

        return call


class Batch:
    """A loss sees it as `batch`: `batch.obs` is a column, [B, width] or [B].

    Args:
        columns: Column name to tensor.
    """

    def __init__(self, columns: Mapping[str, torch.Tensor]) -> None:
        self._columns = columns

    def __getattr__(self, name: str) -> torch.Tensor:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(f"no column `{name}`, only {', '.join(self._columns)}")
        return self._columns[name]
