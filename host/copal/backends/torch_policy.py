# SPDX-License-Identifier: MIT
"""Acts with a policy that only PyTorch can run, a convolutional one for instance."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.algorithms.base import Source
from copal.errors import ProgramError
from copal.program import Program


class TorchPolicy:
    """The face of `native.Policy` before PyTorch modules. Threads take turns.

    Args:
        program: The policy; names its networks, inputs and outputs.
        source: The modules and the forward pass that it was captured from.

    Raises:
        ProgramError: `source` has no forward pass.
    """

    def __init__(self, program: Program, source: Source) -> None:
        if source.forward is None:
            raise ProgramError(
                "source.forward",
                "the forward pass of a policy that holds operations only PyTorch has",
                "None",
                "`copal.algorithms.assemble.assemble` keeps it",
            )
        self._program, self._forward = program, source.forward
        self._modules = {n.name: copy.deepcopy(source.networks[n.name]) for n in program.networks}
        self._roles = tuple(program.outputs)
        self._version: int | None = None
        self._turn = threading.Lock()

    def act(
        self, source: Any, obs: NDArray[Any], noise: NDArray[np.float32] | None = None
    ) -> Mapping[str, NDArray[Any]]:
        """Outputs by role, one row an observation.

        Args:
            source: A `native.WeightStore` or float32 [size], the networks one behind another.
            obs: [n, width], of bytes or floats.
            noise: Standard normal numbers [n, width], if the policy draws.
        """
        import torch

        from copal.program.arguments import Batch, Networks

        columns = {"obs": torch.from_numpy(np.asarray(obs, np.float32))}
        if noise is not None:
            columns["noise"] = torch.from_numpy(noise)
        with self._turn, torch.no_grad():
            self._load(source)
            results = self._forward(Networks(self._modules), Batch(columns))
        results = [results] if isinstance(results, torch.Tensor) else results
        return {role: r.numpy() for role, r in zip(self._roles, results, strict=True)}

    def act_into(
        self,
        source: Any,
        obs: NDArray[Any],
        out: NDArray[Any],
        role: str = "action",
        noise: NDArray[np.float32] | None = None,
    ) -> None:
        """Writes the output `role` into `out`, [n] or [n, width]."""
        out[...] = self.act(source, obs, noise)[role].reshape(out.shape)

    def _load(self, source: Any) -> None:
        from copal.program.modules import unflatten_into

        if isinstance(source, np.ndarray):
            vector, self._version = source, None
        elif source.version == self._version:
            return
        else:
            vector, self._version = source.read()
        start = 0
        for network in self._program.networks:
            stop = start + network.size
            unflatten_into(self._modules[network.name], vector[start:stop])
            start = stop
