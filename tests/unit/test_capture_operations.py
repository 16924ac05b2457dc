# SPDX-License-Identifier: MIT
# ruff: noqa: ARG005  every case takes the network's output and the batch
"""Captured gradients against PyTorch's autograd in float64, one loss an operation."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from capture_oracle import INPUTS, assert_captured, batch, networks, of_q
from torch.func import grad
from torch.nn import functional as F

from copal.program import OPS
from copal.program.capture import capture
from copal.program.modules import flatten_module
from copal.program.reference import run

#: Name to function of the network's output [B, 3] and the batch, with rows [B] as its value.
CASES: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "gather": lambda q, b: q.gather(1, b.action[:, None])[:, 0],
    "index with arange": lambda q, b: q[torch.arange(len(q)), b.action],
    "one hot by comparison": lambda q, b: (
        q * (b.action[:, None] == torch.arange(3)).to(q.dtype)
    ).sum(1),
    "one hot": lambda q, b: (q * F.one_hot(b.action, 3)).sum(1),
    "select": lambda q, b: q[:, 1] * b.reward,
    "slice": lambda q, b: q[:, 1:].sum(1) + q[:, :1].squeeze(1),
    "chunk": lambda q, b: (q[:, :2].chunk(2, 1)[1] * b.obs[:, :1]).squeeze(1),
    "split": lambda q, b: q.split([1, 2], 1)[1].sum(1) * b.reward,
    "unbind": lambda q, b: q.unbind(1)[2] * b.reward,
    "cat": lambda q, b: torch.cat([q, b.side, 2 * q], 1).pow(2).sum(1),
    "stack": lambda q, b: (torch.stack([q[:, 0], b.reward, q[:, 2]], 1) * b.side).sum(1),
    "max": lambda q, b: q.max(1).values,
    "amax": lambda q, b: q.amax(1),
    "amin": lambda q, b: q.amin(1),
    "min": lambda q, b: torch.minimum(q[:, 0], q[:, 1]),
    "torch.max of two": lambda q, b: torch.max(q[:, 0], b.reward),
    "argmax": lambda q, b: q.gather(1, b.side.argmax(1, keepdim=True)).squeeze(1),
    "mean of columns": lambda q, b: q.mean(1) * b.reward,
    "exp": lambda q, b: torch.exp(q).sum(1),
    "log": lambda q, b: torch.log(q.abs() + 1).sum(1),
    "log1p": lambda q, b: torch.log1p(q**2).sum(1),
    "sqrt": lambda q, b: torch.sqrt(q**2 + 1).sum(1),
    "rsqrt": lambda q, b: torch.rsqrt(q**2 + 1).sum(1),
    "reciprocal": lambda q, b: (1 / (q**2 + 1)).sum(1),
    "tanh": lambda q, b: torch.tanh(q).sum(1),
    "sigmoid": lambda q, b: torch.sigmoid(q).sum(1),
    "softplus": lambda q, b: F.softplus(q).sum(1),
    "log sigmoid": lambda q, b: F.logsigmoid(q).sum(1),
    "silu": lambda q, b: F.silu(q).sum(1),
    "elu": lambda q, b: F.elu(q).sum(1),
    "leaky relu": lambda q, b: F.leaky_relu(q).sum(1),
    "relu": lambda q, b: F.relu(q - 0.1).sum(1),
    "abs": lambda q, b: q.abs().sum(1),
    "sign": lambda q, b: (torch.sign(q) * q).sum(1),
    "neg": lambda q, b: (-q).sum(1) * b.reward,
    "pow 3": lambda q, b: (q**3).sum(1),
    "pow -2": lambda q, b: ((q.abs() + 1) ** -2).sum(1),
    "div": lambda q, b: (b.side / (q.abs() + 1)).sum(1),
    "rsub": lambda q, b: (1 - q).sum(1) * b.reward,
    "add with alpha": lambda q, b: torch.add(b.side, q, alpha=0.3).pow(2).sum(1),
    "clamp": lambda q, b: q.clamp(-0.1, 0.2).sum(1) + q.sum(1),
    "clamp from below": lambda q, b: q.clamp(min=0.05).sum(1),
    "where": lambda q, b: torch.where(q > b.side, q, 2 * b.side * q).sum(1),
    "where with number": lambda q, b: torch.where(q < 0, q**2, 0.1).sum(1) + q[:, 0],
    "and, or, not": lambda q, b: (((q > 0) & (q < 1) | ~(b.side <= 0.5)) * q).sum(1),
    "not equal": lambda q, b: ((b.side != 0) * q).sum(1) + (q == b.side).sum(1),
    "greater or equal": lambda q, b: ((q >= 0) * q).sum(1),
    "softmax": lambda q, b: (F.softmax(q, 1) * b.side).sum(1),
    "log softmax": lambda q, b: F.log_softmax(q, 1).gather(1, b.action[:, None]).squeeze(1),
    "logsumexp": lambda q, b: torch.logsumexp(q, 1),
    "norm": lambda q, b: q.norm(dim=1),
    "huber": lambda q, b: F.huber_loss(q[:, 0], b.reward, reduction="none", delta=0.7),
    "smooth l1": lambda q, b: F.smooth_l1_loss(q[:, 0], b.reward, reduction="none"),
    "squared": lambda q, b: F.mse_loss(q[:, 0], b.reward, reduction="none"),
    "detach": lambda q, b: (q.detach() * q).sum(1),
    "in place": lambda q, b: (q * 2).add_(b.side).clamp_(-3, 0.1).sum(1) + q[:, 0],
    "broadcast column": lambda q, b: (q * b.reward.unsqueeze(1)).sum(1),
    "expand": lambda q, b: (b.reward[:, None].expand(-1, 3) * q).sum(1),
    "view of three axes": lambda q, b: q.view(-1, 3, 1).squeeze(2).sum(1) * b.reward,
    "constant vector": lambda q, b: (q * torch.tensor([1.0, -2.0, 0.5])).sum(1),
    "new_zeros": lambda q, b: q[:, 0] * b.reward + torch.zeros_like(b.reward),
    "constant row tensor": lambda q, b: q[:, 0] * b.reward - torch.full((len(q),), 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_operation_equals_autograd(name: str, rng: np.random.Generator) -> None:
    """Each operation's value and gradient are those of PyTorch."""
    assert_captured(rng, of_q(CASES[name]))


def test_network_without_bias_and_concatenated_input(rng: np.random.Generator) -> None:
    """A critic on [obs, side] whose first layer has no bias."""

    def loss(nets: Any, b: Any) -> Any:
        q = nets.wide(torch.cat([b.obs, b.side], 1)).squeeze(1)
        return (q - b.reward) ** 2, q

    program = assert_captured(rng, loss, "wide")
    assert [op.attrs["bias"] for op in program.ops if op.kind == "dense"] == [-1, 54]


def test_gradient_flows_through_another_network(rng: np.random.Generator) -> None:
    """DDPG's policy loss: through the critic, which is a constant, into the actor."""

    def loss(nets: Any, b: Any) -> Any:
        value = nets.wide(torch.cat([b.obs, torch.tanh(nets.q(b.obs))], 1)).squeeze(1)
        return -value, value

    program = assert_captured(rng, loss)
    assert {op.attrs["network"] for op in program.ops if op.kind == "dense"} == {"q", "wide"}
    assert "dense_grad_input" in {op.kind for op in program.ops}


def test_sac_policy_loss(rng: np.random.Generator) -> None:
    """A tanh-Gaussian policy's loss, with the noise as an input."""

    def loss(nets: Any, b: Any) -> Any:
        mean, log_std = nets.dueling(b.obs).chunk(2, 1)
        log_std = log_std.clamp(-5, 2)
        noise = b.side[:, :2]
        raw = mean + log_std.exp() * noise
        action = torch.tanh(raw)
        log_prob = (-0.5 * noise**2 - log_std - 0.9189385).sum(1)
        log_prob = log_prob - (2 * (0.6931472 - raw - F.softplus(-2 * raw))).sum(1)
        padded = torch.cat([b.obs, action, b.side[:, 2:]], 1)
        return 0.2 * log_prob - nets.wide(padded).squeeze(1), log_prob

    assert_captured(rng, loss, "dueling")


def test_gradient_penalty_is_a_second_derivative(rng: np.random.Generator) -> None:
    """A loss that holds a gradient itself: products with a weight in three directions."""

    def loss(nets: Any, b: Any) -> Any:
        def value(side: torch.Tensor) -> torch.Tensor:
            return nets.wide(torch.cat([b.obs, side], 1)).sum()

        penalty = grad(value)(b.side).norm(dim=1)
        return (penalty - 1) ** 2, penalty

    assert_captured(rng, loss, "wide")


def test_parameters_outside_dense_layers(rng: np.random.Generator) -> None:
    """A scalar and a vector of parameters: `param` forward, `sum_over_rows` backward."""

    def loss(nets: Any, b: Any) -> Any:
        rows = (nets.scalars(b.side) ** 2).sum(1) * b.weight
        return rows, rows

    program = assert_captured(rng, loss, "scalars")
    assert {"param", "sum_over_rows"} <= {op.kind for op in program.ops}


def test_unused_parameter_has_no_gradient() -> None:
    """Its part of the flat gradient stays zero; no operation is spent on it."""

    def loss(nets: Any, b: Any) -> Any:
        rows = b.reward * nets.wide(torch.cat([b.obs, b.side], 1)).squeeze(1)
        return rows, rows

    modules = networks()
    program = capture(loss, modules, INPUTS, gradient="q", name="case")
    columns = batch(np.random.default_rng(1))
    result = run(program, {n: flatten_module(m) for n, m in modules.items()}, columns)
    assert result.gradient is not None
    assert not result.gradient.any()


def test_weight_stored_as_in_out(rng: np.random.Generator) -> None:
    """`x @ weight` without a transposition."""

    def loss(nets: Any, b: Any) -> Any:
        rows = (nets.in_out(b.obs) * b.side).sum(1)
        return rows, rows

    assert_captured(rng, loss, "in_out")


def test_module_buffers_are_constants(rng: np.random.Generator) -> None:
    """Bounds kept in a module's buffers, different in each column."""

    def loss(nets: Any, b: Any) -> Any:
        rows = (nets.bounded(b.obs) ** 2).sum(1)
        return rows, rows

    assert_captured(rng, loss, "bounded")


def test_input_of_width_one_reaches_a_network(rng: np.random.Generator) -> None:
    """A column [B] is taken as [B, 1] by a network."""

    def loss(nets: Any, b: Any) -> Any:
        rows = (nets.narrow(b.one) * b.side).sum(1)
        return rows, rows

    assert_captured(rng, loss, "narrow")


def test_network_used_twice_sums_both_gradients(rng: np.random.Generator) -> None:
    """A residual-gradient loss: the network also moves through the next value."""

    def loss(nets: Any, b: Any) -> Any:
        td_error = nets.q(b.obs)[:, 0] - 0.9 * nets.q(2 * b.obs)[:, 1] - b.reward
        return td_error**2, td_error

    program = assert_captured(rng, loss)
    assert sum(op.kind == "dense_grad_weight" for op in program.ops) == 4


def test_mean_loss_equals_loss_of_rows(rng: np.random.Generator) -> None:
    """A loss that ends with `.mean()` gives the very same Program."""

    def rows(nets: Any, b: Any) -> Any:
        td_error = nets.q(b.obs)[:, 0] - b.reward
        return b.weight * F.huber_loss(nets.q(b.obs)[:, 0], b.reward, reduction="none"), td_error

    def mean(nets: Any, b: Any) -> Any:
        row_loss, td_error = rows(nets, b)
        return row_loss.mean(), td_error

    def sum_over_size(nets: Any, b: Any) -> Any:
        row_loss, td_error = rows(nets, b)
        return row_loss.sum() / len(row_loss), td_error

    of_rows, of_mean, of_sum = (assert_captured(rng, f) for f in (rows, mean, sum_over_size))
    assert of_mean == of_rows
    assert of_sum == of_rows


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_loss_function_with_its_default_mean(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], rng: np.random.Generator
) -> None:
    """PyTorch's losses without `reduction="none"`, as most users write them."""

    def mean(nets: Any, b: Any) -> Any:
        q = nets.q(b.obs)[:, 0]
        return loss(q, b.reward), q - b.reward

    assert_captured(rng, mean)


def test_mean_over_rows_and_columns(rng: np.random.Generator) -> None:
    """`mse_loss` with its default reduction over [B, 3]."""

    def loss(nets: Any, b: Any) -> Any:
        q = nets.q(b.obs)
        return F.mse_loss(q, b.side) + 0.5 * q.pow(2).mean(), q[:, 0]

    assert_captured(rng, loss)


def test_reported_rows_become_outputs(rng: np.random.Generator) -> None:
    """The optional third result of a loss."""

    def loss(nets: Any, b: Any) -> Any:
        q = nets.q(b.obs)[:, 0]
        return q, q - b.reward, {"q": q, "scaled": 2 * q}

    program = assert_captured(rng, loss)
    assert set(program.outputs) == {"loss", "td_error", "q", "scaled"}


def test_dead_and_repeated_operations_disappear() -> None:
    """Equal operations are shared, unused ones and unread inputs are left out."""

    def loss(nets: Any, b: Any) -> Any:
        nets.q(b.obs + 1).cumprod(1)
        first, second = nets.q(b.obs), nets.q(b.obs)
        return (first * second)[:, 0], first[:, 0]

    modules = networks()
    program = capture(loss, modules, INPUTS, gradient="q", name="case")
    assert sum(op.kind == "dense" for op in program.ops) == 2
    assert [b.name for b in program.inputs] == ["obs"]
    assert [n.name for n in program.networks] == ["q"]


def test_huber_program_is_small() -> None:
    """Multiplications by one and additions of zero are folded away."""

    def loss(nets: Any, b: Any) -> Any:
        q = nets.q(b.obs)[:, 0]
        return F.huber_loss(q, b.reward, reduction="none"), q - b.reward

    program = capture(loss, networks(), INPUTS, gradient="q", name="case")
    assert len(program.ops) <= 36


def test_relu_backward_is_one_operation() -> None:
    """The comparison and choice that autograd records become `relu_grad`."""
    program = capture(of_q(CASES["select"]), networks(), INPUTS, gradient="q", name="case")
    kinds = [op.kind for op in program.ops]
    assert kinds.count("relu_grad") == 1
    assert "less_equal" not in kinds
    assert "where" not in kinds


def test_capture_is_deterministic() -> None:
    """Twice the same loss, twice the same Program, to the letter."""
    programs = [
        capture(of_q(CASES["huber"]), networks(), INPUTS, gradient="q", name="case").to_json()
        for _ in range(2)
    ]
    assert programs[0] == programs[1]


def test_every_operation_is_reached_by_capture(rng: np.random.Generator) -> None:
    """Capture can produce all kinds of `OPS` but those that stand for what it refuses."""
    losses = [
        (of_q(CASES[c]), "q")
        for c in (
            "gather",
            "max",
            "argmax",
            "min",
            "clamp",
            "where",
            "log",
            "exp",
            "sqrt",
            "tanh",
            "abs",
            "sign",
            "neg",
            "div",
            "rsub",
            "cat",
            "slice",
            "not equal",
            "greater or equal",
            "relu",
            "amax",
            "torch.max of two",
        )
    ]
    scalars = SimpleNamespace(loss=lambda nets, b: ((nets.scalars(b.side)).sum(1), b.reward))
    kinds = {
        op.kind
        for loss, gradient in [*losses, (scalars.loss, "scalars")]
        for op in capture(loss, networks(), INPUTS, gradient=gradient, name="case").ops
    }
    assert kinds == set(OPS) - {"opaque"}
