# SPDX-License-Identifier: MIT
# ruff: noqa: ARG005  every case takes the network's output and the batch
"""Row tensors with several column axes: broadcasting, picking, reducing, distributional losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from capture_oracle import INPUTS, assert_captured, networks, of_q
from torch.nn import functional as F

from copal.program.capture import capture_policy


def grid(q: torch.Tensor, b: Any) -> torch.Tensor:
    """[B, 3, 2], each element from another formula."""
    return torch.cat([q, q * b.side], 1).view(-1, 3, 2)


def _greedy_quantiles(q: torch.Tensor, b: Any) -> torch.Tensor:
    values = grid(q, b)
    return values[torch.arange(len(q)), values.mean(2).argmax(1)].pow(2).sum(1)


def _quantile_regression(q: torch.Tensor, b: Any) -> torch.Tensor:
    """QR-DQN: pairwise differences of target and predicted quantiles."""
    values = grid(q, b)
    current = values[torch.arange(len(q)), b.action]
    after = values.detach()
    best = after.mean(2).argmax(1)[:, None, None].expand(-1, -1, 2)
    target = b.reward[:, None] + 0.9 * after.gather(1, best).squeeze(1)
    u = target.unsqueeze(1) - current.unsqueeze(2)
    fractions = torch.tensor([0.25, 0.75])[:, None]
    huber = F.huber_loss(u, torch.zeros_like(u), reduction="none")
    return ((fractions - (u.detach() < 0).to(u.dtype)).abs() * huber).mean(2).sum(1)


def _categorical_projection(q: torch.Tensor, b: Any) -> torch.Tensor:
    """C51, its projection written with the triangular kernel."""
    support = torch.linspace(-1, 1, 3)
    moved = (b.reward[:, None] + 0.5 * support).clamp(-1, 1)
    near = (1 - (moved[:, :, None] - support).abs()).clamp(0, 1)
    target = (near * F.softmax(b.side, 1)[:, :, None]).sum(1)
    return -(target * F.log_softmax(q, 1)).sum(1)


def _atoms(q: torch.Tensor, b: Any) -> torch.Tensor:
    values = (F.softmax(grid(q, b), dim=2) * torch.tensor([0.0, 1.0])).sum(2)
    return values.gather(1, b.action[:, None])[:, 0]


#: Name to function of the network's output [B, 3] and the batch, with rows [B] as its value.
CASES: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "mean of the last axis": lambda q, b: grid(q, b).mean(2).pow(2).sum(1),
    "sum of the middle axis": lambda q, b: grid(q, b).sum(1).pow(2).sum(1),
    "sum of both axes": lambda q, b: grid(q, b).pow(2).sum((1, 2)),
    "largest of the last axis": lambda q, b: grid(q, b).amax(2).pow(2).sum(1),
    "smallest of the middle axis": lambda q, b: grid(q, b).amin(1).pow(2).sum(1),
    "softmax of the last axis": _atoms,
    "log softmax of the middle axis": lambda q, b: (
        F.log_softmax(grid(q, b), 1) * torch.tensor([1.0, -0.3])
    ).sum((1, 2)),
    "norm of the last axis": lambda q, b: grid(q, b).norm(dim=2).sum(1),
    "norms of other orders": lambda q, b: q.norm(p=1, dim=1) + q.norm(p=float("inf"), dim=1),
    "variance": lambda q, b: q.var(1) + q.std(1, correction=0) + torch.var_mean(q, 1)[1],
    "variance of the last axis": lambda q, b: grid(q, b).var(2).sum(1),
    "standardised": lambda q, b: (
        ((q - q.mean(1, keepdim=True)) / (q.var(1, keepdim=True) + 1e-5).sqrt()).pow(3).sum(1)
    ),
    "dueling heads": lambda q, b: (q[:, :1] + b.side - b.side.mean(1, keepdim=True) + q).gather(
        1, b.action[:, None]
    )[:, 0],
    "outer product": lambda q, b: (q[:, :, None] * b.side[:, None, :]).tanh().sum(2).mean(1),
    "pairwise difference": lambda q, b: (q[:, :, None] - q[:, None, :]).abs().sum((1, 2)),
    "expanded": lambda q, b: q.unsqueeze(1).expand(-1, 2, -1).pow(2).mean((1, 2)),
    "transposed": lambda q, b: (
        grid(q, b).transpose(1, 2).reshape(-1, 6) * torch.cat([b.side, b.side], 1)
    ).sum(1),
    "stacked": lambda q, b: (torch.stack([q, b.side], 1) * b.side[:, None]).pow(2).sum((1, 2)),
    "joined along the last axis": lambda q, b: (
        torch.cat([grid(q, b), grid(q, b).tanh()], 2)[:, :, 1:3].pow(2).sum((1, 2))
    ),
    "split along the middle axis": lambda q, b: grid(q, b).split([1, 2], 1)[1].sum((1, 2)),
    "unbound along the last axis": lambda q, b: grid(q, b).unbind(2)[1].pow(2).sum(1),
    "gather along the middle axis": lambda q, b: (
        grid(q, b).gather(1, b.action[:, None, None].expand(-1, 1, 2)).squeeze(1).pow(2).sum(1)
    ),
    "gather along the last axis": lambda q, b: (
        grid(q, b)
        .gather(2, (q[:, :2].argmax(1)[:, None, None]).expand(-1, 3, 1))
        .squeeze(2)
        .pow(2)
        .sum(1)
    ),
    "index with arange": lambda q, b: grid(q, b)[torch.arange(len(q)), b.action].pow(2).sum(1),
    "index of the best": _greedy_quantiles,
    "matrix product in each row": lambda q, b: (
        torch.bmm(grid(q, b).transpose(1, 2), grid(q, b)).tanh().sum((1, 2))
    ),
    "einsum": lambda q, b: torch.einsum("bi,bi->b", q, b.side),
    "list of columns": lambda q, b: (q[:, [0, 2, 0]] * b.side).sum(1),
    "every second column": lambda q, b: q[:, ::2].pow(2).sum(1),
    "flip": lambda q, b: (q.flip(1) * b.side).sum(1),
    "roll": lambda q, b: (q.roll(1, 1) * b.side).sum(1),
    "repeat": lambda q, b: (q.repeat(1, 2) * torch.cat([b.side, b.side], 1)).pow(2).sum(1),
    "pad": lambda q, b: (F.pad(q, (1, 1), value=0.5) ** 2).sum(1),
    "cumulative sum": lambda q, b: q.cumsum(1).pow(2).sum(1),
    "min with indices": lambda q, b: q.min(1).values + q.gather(1, b.side.argmin(1)[:, None])[:, 0],
    "smaller of two critics": lambda q, b: torch.min(
        torch.cat([q[:, :1], q[:, 1:2]], 1), dim=1, keepdim=True
    )[0].squeeze(1),
    "any, all": lambda q, b: (
        torch.where((b.side > 0.5).any(1), q[:, 0], q[:, 1])
        + torch.where((b.side > -0.5).all(1), q[:, 2], 0.0)
    ),
    "quantile regression": _quantile_regression,
    "categorical projection": _categorical_projection,
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_columns_equals_autograd(name: str, rng: np.random.Generator) -> None:
    """Each function's value and gradient are those of PyTorch."""
    assert_captured(rng, of_q(CASES[name]))


def test_two_heads_of_one_network(rng: np.random.Generator) -> None:
    """Twin critics in one vector: chunk, and the smaller one as the target."""

    def loss(nets: Any, b: Any) -> Any:
        first, second = nets.dueling(b.obs).chunk(2, 1)
        target = torch.minimum(first, second).detach() * 0.9 + b.reward[:, None]
        return ((first - target) ** 2 + (second - target) ** 2).sum(1), b.reward

    assert_captured(rng, loss, "dueling")


def test_slices_that_make_up_a_buffer_disappear() -> None:
    """Splitting and joining again costs nothing."""

    def forward(nets: Any, b: Any) -> torch.Tensor:
        q = nets.q(b.obs)
        return torch.cat([q[:, :1], q[:, 1:]], 1)

    program = capture_policy(forward, networks(), INPUTS, ("q",), name="case")
    assert {op.kind for op in program.ops} == {"dense", "relu"}
