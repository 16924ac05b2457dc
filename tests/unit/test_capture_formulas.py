# SPDX-License-Identifier: MIT
# ruff: noqa: ARG005  every case takes the network's output and the batch
"""Activations, losses and distributions that are formulas of a Program's operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from capture_oracle import INPUTS, assert_captured, networks, of_q
from torch.func import grad
from torch.nn import functional as F

from copal.program.capture import capture


def _normal(q: torch.Tensor, b: Any) -> torch.Tensor:
    return torch.distributions.Normal(q, torch.exp(b.side)).log_prob(b.side).sum(1)


def _categorical(q: torch.Tensor, b: Any) -> torch.Tensor:
    choice = torch.distributions.Categorical(logits=q)
    return choice.log_prob(b.action) + 0.01 * choice.entropy()


#: Name to function of the network's output [B, 3] and the batch, with rows [B] as its value.
CASES: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "softplus with beta": lambda q, b: F.softplus(q, beta=2.0, threshold=1.0).sum(1),
    "gelu": lambda q, b: F.gelu(q, approximate="tanh").sum(1),
    "celu, selu, mish": lambda q, b: (F.celu(q, 0.7) + F.selu(q) + F.mish(q)).sum(1),
    "relu6, hardtanh": lambda q, b: (F.relu6(q) + F.hardtanh(q - 0.3)).sum(1),
    "hardswish, hardsigmoid": lambda q, b: (F.hardswish(q) + F.hardsigmoid(q)).sum(1),
    "softsign, tanhshrink": lambda q, b: (F.softsign(q) + F.tanhshrink(q)).sum(1),
    "glu": lambda q, b: F.glu(torch.cat([q, b.side], 1), 1).sum(1),
    "layer norm": lambda q, b: (F.layer_norm(q, (3,), eps=0.01) * b.side).sum(1),
    "normalize": lambda q, b: (F.normalize(q, dim=1) * b.side).sum(1),
    "cosine": lambda q, b: F.cosine_similarity(q, b.side, dim=1),
    "expm1, log1p": lambda q, b: (torch.expm1(q) + torch.log1p(q.abs())).sum(1),
    "sinh, cosh": lambda q, b: (torch.sinh(q) + torch.cosh(2 * q)).sum(1),
    "atanh, asinh": lambda q, b: (torch.atanh(0.9 * torch.tanh(q)) + torch.asinh(q)).sum(1),
    "acosh": lambda q, b: torch.acosh(q.abs() + 1.1).sum(1),
    "exp2, log2, log10": lambda q, b: (
        torch.exp2(q) + torch.log2(q.abs() + 1) + torch.log10(q.abs() + 1)
    ).sum(1),
    "half powers": lambda q, b: ((q**2 + 1) ** -0.5 + (q**2 + 1) ** 1.5).sum(1),
    "tenth power": lambda q, b: (q**10).sum(1),
    "number to a power": lambda q, b: (2.0**q).sum(1),
    "tensor to a power": lambda q, b: ((q.abs() + 0.1) ** b.side).sum(1),
    "huber, wide": lambda q, b: F.huber_loss(q[:, 0], b.reward, reduction="none", delta=2.5),
    "smooth l1, narrow": lambda q, b: F.smooth_l1_loss(
        q[:, 0], b.reward, reduction="none", beta=0.3
    ),
    "l1": lambda q, b: F.l1_loss(q[:, 0], b.reward, reduction="none"),
    "clamp between tensors": lambda q, b: (
        torch.clamp(q, min=-b.side.abs(), max=b.side.abs()).sum(1) + q[:, 0]
    ),
    "nan to num": lambda q, b: torch.nan_to_num(q).sum(1),
    "is finite": lambda q, b: torch.where(torch.isfinite(q) & ~torch.isinf(q), q, 0.0).sum(1),
    "exclusive or": lambda q, b: torch.where((b.side > 0) ^ (q > 0), q, 0.0).sum(1) + q[:, 1],
    "cross entropy": lambda q, b: F.cross_entropy(q, b.action, reduction="none"),
    "cross entropy of distributions": lambda q, b: F.cross_entropy(
        q, F.softmax(b.side, 1), reduction="none"
    ),
    "kl": lambda q, b: F.kl_div(F.log_softmax(q, 1), F.softmax(b.side, 1), reduction="none").sum(1),
    "binary cross entropy": lambda q, b: F.binary_cross_entropy_with_logits(
        q, torch.sigmoid(b.side), reduction="none"
    ).sum(1),
    "normal distribution": _normal,
    "categorical distribution": _categorical,
    "masked by infinity": lambda q, b: torch.cat(
        [q.masked_fill(b.side > 0, -math.inf), q], 1
    ).logsumexp(1),
    "munchausen": lambda q, b: (
        (0.03 * F.log_softmax(q / 0.03, 1)).gather(1, b.action[:, None]).clamp(-1, 0)[:, 0]
        + q[:, 0]
    ),
    "value rescaling": lambda q, b: (
        torch.sign(q) * (torch.sqrt(torch.abs(q) + 1) - 1) + 0.001 * q
    ).sum(1),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_formula_equals_autograd(name: str, rng: np.random.Generator) -> None:
    """Each function's value and gradient are those of PyTorch."""
    # PyTorch's own derivative of hardsigmoid has 1/6 as a float32, in float64 too.
    atol = 1e-7 if "hardsigmoid" in name else 1e-12
    assert_captured(rng, of_q(CASES[name]), atol=atol)


def test_network_with_layer_norm(rng: np.random.Generator) -> None:
    """Normalisation within each row, with its trained gain and offset."""

    def loss(nets: Any, b: Any) -> Any:
        rows = (nets.normed(b.obs) * b.side).sum(1)
        return rows, rows

    assert_captured(rng, loss, "normed")


def test_gradient_penalty_through_layer_norm(rng: np.random.Generator) -> None:
    """Second derivatives of everything that such a network is made of."""

    def loss(nets: Any, b: Any) -> Any:
        slope = grad(lambda x: (nets.normed(x) * b.side).sum())(b.obs)
        penalty = (slope.norm(dim=1) - 1) ** 2
        return penalty, penalty

    assert_captured(rng, loss, "normed")


def test_gradient_penalty_between_two_actions(rng: np.random.Generator) -> None:
    """WGAN-GP's penalty at a point between data and policy, beside a conservative term."""

    def loss(nets: Any, b: Any) -> Any:
        policy = torch.tanh(nets.bounded(b.obs)).detach()
        mixed = b.side + torch.sigmoid(b.reward)[:, None] * (policy - b.side)

        def value(side: torch.Tensor) -> torch.Tensor:
            return nets.wide(torch.cat([b.obs, side], 1)).sum()

        penalty = (grad(value)(mixed).pow(2).sum(1) + 1e-12).sqrt().sub(1).pow(2)
        both = torch.cat([nets.wide(torch.cat([b.obs, a], 1)) for a in (policy, b.side)], 1)
        conservative = torch.logsumexp(both, 1) - both[:, 1]
        return 10 * penalty + conservative, penalty

    assert_captured(rng, loss, "wide")


def test_validation_of_distributions_is_left_as_it_was() -> None:
    """Capture switches it off only while it traces."""
    capture(of_q(_normal), networks(), INPUTS, gradient="q", name="case")
    with pytest.raises(ValueError, match="scale"):
        torch.distributions.Normal(0.0, -1.0)


def test_program_holds_no_infinite_constant() -> None:
    """JSON has none: it is the quotient of 1 and 0."""
    program = capture(
        of_q(CASES["masked by infinity"]), networks(), INPUTS, gradient="q", name="case"
    )
    constants = [op.attrs["value"] for op in program.ops if op.kind == "const"]
    assert all(math.isfinite(c) for c in constants)
    assert "Infinity" not in program.to_json()
