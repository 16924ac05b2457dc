# SPDX-License-Identifier: MIT
"""Networks, columns and the comparison with autograd that the tests of capture share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import grad

from copal.program import Buffer, Program
from copal.program.arguments import Batch, Networks
from copal.program.capture import capture
from copal.program.modules import flatten_module
from copal.program.reference import run

ROWS = 13
INPUTS = (
    Buffer("obs", 5),
    Buffer("side", 3),
    Buffer("action", 1, "int32"),
    Buffer("reward", 1),
    Buffer("weight", 1),
    Buffer("one", 1),
)


class Scalars(nn.Module):
    """Parameters outside any dense layer: a temperature, and a gain a column."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.3))
        self.gain = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.temperature.exp() * x + self.gain


class InOut(nn.Module):
    """A weight stored as [in, out], the other way round than in nn.Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Bounded(nn.Module):
    """A network with buffers: bounds that differ from column to column."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x)) * self.scale + torch.tensor([0.0, 1.0, -1.0])


def networks() -> dict[str, nn.Module]:
    q = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    return {
        "q": q,
        "q_target": q,
        "wide": nn.Sequential(nn.Linear(8, 6, bias=False), nn.Tanh(), nn.Linear(6, 1)),
        "scalars": Scalars(),
        "in_out": InOut(),
        "bounded": Bounded(),
        "narrow": nn.Linear(1, 3),
        "dueling": nn.Linear(5, 4),
        "normed": nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3), nn.SiLU(), nn.Linear(3, 3)),
    }


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "obs": rng.normal(size=(ROWS, 5)),
        "side": rng.normal(size=(ROWS, 3)),
        "action": rng.integers(3, size=ROWS),
        "reward": rng.normal(size=ROWS),
        "weight": rng.random(ROWS) + 0.1,
        "one": rng.normal(size=ROWS),
    }


def assert_captured(
    rng: np.random.Generator,
    loss: Callable[[Any, Any], Any],
    gradient: str = "q",
    *,
    atol: float = 1e-12,
) -> Program:
    """Captures `loss` and compares outputs and gradient with autograd, on a fresh batch."""
    modules = networks()
    program = capture(loss, modules, INPUTS, gradient=gradient, name="case")
    columns = batch(rng)
    got = run(program, {n: flatten_module(m) for n, m in modules.items()}, columns)

    tensors = {k: torch.from_numpy(v) for k, v in columns.items()}
    modules = {n: m.double() for n, m in modules.items()}
    own = {n: {k: p.detach() for k, p in m.named_parameters()} for n, m in modules.items()}

    def total(parameters: dict[str, torch.Tensor]) -> Any:
        rows, td_error = loss(Networks(modules, {**own, gradient: parameters}), Batch(tensors))[:2]
        return rows.sum() if rows.ndim else rows * ROWS, (rows, td_error)

    expected, (rows, td_error) = grad(total, has_aux=True)(own[gradient])
    flat = np.concatenate([expected[k].numpy().ravel() for k in own[gradient]])
    scale = np.abs(flat).max()
    assert scale > 0
    assert got.gradient is not None
    np.testing.assert_allclose(got.gradient / scale, flat / scale, atol=atol)
    np.testing.assert_allclose(got.outputs["td_error"], td_error.numpy(), atol=1e-12)
    if rows.ndim:
        np.testing.assert_allclose(got.outputs["loss"], rows.numpy(), atol=1e-12)
    else:
        np.testing.assert_allclose(got.outputs["loss"].mean(), rows.numpy(), atol=1e-12)
    return program


def of_q(function: Callable[[torch.Tensor, Any], torch.Tensor]) -> Callable[[Any, Any], Any]:
    """A loss that applies `function` to the network's output and the batch."""

    def loss(nets: Any, b: Any) -> Any:
        rows = function(nets.q(b.obs), b)
        return b.weight * rows, rows

    return loss
