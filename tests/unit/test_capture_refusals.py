# SPDX-License-Identifier: MIT
# ruff: noqa: ARG004, ARG005  every case takes the network's output and the batch
"""What cannot be captured is refused, with the ATen operation and the line it came from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from copal.errors import CaptureError
from copal.program import Buffer
from copal.program.capture import capture, capture_policy
from copal.program.tracing import source_of

INPUTS = (Buffer("obs", 5), Buffer("action", 1, "int32"), Buffer("reward", 1))

Rows = Callable[[torch.Tensor, Any], torch.Tensor]


def refusal(rows: Rows, network: nn.Module | None = None) -> CaptureError:
    """The error of capturing a loss whose rows are `rows(network output, batch)`."""

    def loss(nets: Any, batch: Any) -> Any:
        value = rows(nets.q(batch.obs), batch)
        return value, batch.reward

    with pytest.raises(CaptureError) as caught:
        capture(loss, {"q": network or nn.Linear(5, 3)}, INPUTS, gradient="q", name="case")
    return caught.value


@pytest.mark.parametrize(
    ("operation", "rows"),
    [
        ("cumprod", lambda q, b: q.cumprod(1)[:, 0] * b.reward),
        ("sin", lambda q, b: torch.sin(q)[:, 0] * b.reward),
        ("pow", lambda q, b: (q**1.7)[:, 0] * b.reward),
        ("sort", lambda q, b: q.sort(1).values[:, 0] * b.reward),
        ("randn_like", lambda q, b: q[:, 0] * torch.randn_like(b.reward)),
        ("bernoulli", lambda q, b: F.dropout(q, 0.5)[:, 0] * b.reward),
        ("_to_copy", lambda q, b: q[:, 0] * b.action.float()),
        ("add", lambda q, b: q[:, 0] * (b.action + 1)),
        ("gelu", lambda q, b: F.gelu(q)[:, 0] * b.reward),
        ("floor", lambda q, b: torch.floor(q)[:, 0] * b.reward),
        ("topk", lambda q, b: q.topk(2, 1).values[:, 0] * b.reward),
        ("max", lambda q, b: q.view(-1, 3, 1).max(2).values[:, 0] * b.reward),
        ("linalg_vector_norm", lambda q, b: q.norm(p=3, dim=1)),
        ("convolution", lambda q, b: F.conv1d(q[:, None], q.new_ones(1, 1, 2))[:, 0, 0]),
    ],
)
def test_operation_without_counterpart_is_named(operation: str, rows: Rows) -> None:
    """The field of the error is the ATen operation."""
    assert operation in refusal(rows).field


@pytest.mark.parametrize(
    ("operation", "rows"),
    [
        ("_softmax", lambda q, b: F.softmax(q, 0)[:, 0] * b.reward),
        ("sub", lambda q, b: q[:, 0] - b.reward.mean()),
        ("div", lambda q, b: q[:, 0] / b.reward.sum()),
        ("amax", lambda q, b: q.amax(0)[b.action] * b.reward),
        ("mm", lambda q, b: (q @ q.T)[:, 0]),
        ("select", lambda q, b: q[0].sum() * b.reward),
        ("slice", lambda q, b: torch.cat([q[1:], q[:1]])[:, 0]),
        ("flip", lambda q, b: q.flip(0)[:, 0]),
        ("sub", lambda q, b: (q[:, 0] - b.reward.unsqueeze(1)).sum(1)),
        ("std", lambda q, b: (q / q.std(0))[:, 0]),
        ("mul", lambda q, b: q[:, 0] + torch.arange(len(q)) * b.reward),
        ("cat", lambda q, b: torch.stack([q[:, 0], b.reward]).amin(0)),
        ("var", lambda q, b: q.var(0)[b.action] * b.reward),
        ("flip", lambda q, b: q.flip([1, 0])[:, 0] * b.reward),
        ("repeat", lambda q, b: q.repeat(2, 1)[: len(q), 0] * b.reward),
    ],
)
def test_rows_that_depend_on_each_other_are_refused(operation: str, rows: Rows) -> None:
    """Any path from one row of the batch to another one ends in an error."""
    error = refusal(rows)
    assert operation in error.field or operation == "std"
    assert error.hint


def test_batch_norm_is_refused_by_its_name() -> None:
    """Batch normalisation couples rows by definition."""
    network = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    assert "batch_norm" in refusal(lambda q, b: q[:, 0] * b.reward, network).field


def test_broadcast_of_column_against_row_is_explained() -> None:
    """[B] minus [B, 1], the classic slip, says what it would have done."""
    error = refusal(lambda q, b: (q[:, 0] - b.reward.unsqueeze(1)).mean(1))
    assert "[B, B]" in error.got
    assert "squeeze" in error.hint


def test_line_of_the_loss_is_named() -> None:
    """File, number and text of the line that called the operation."""

    def rows(q: torch.Tensor, b: Any) -> torch.Tensor:
        doubled = 2 * q
        odd = doubled.cumprod(1)
        return odd[:, 0] * b.reward

    first = inspect.getsourcelines(rows)[1]
    got = refusal(rows).got
    assert f"{__file__}:{first + 2}: `odd = doubled.cumprod(1)`" in got


def test_node_of_the_gradient_has_the_line_of_its_nearest_argument() -> None:
    """The backward pass has no lines of its own."""
    graph = fx.Graph()
    far, near = graph.placeholder("far"), graph.placeholder("near")
    far.stack_trace, near.stack_trace = "far", "near"
    through = graph.call_function(torch.neg, (far,))
    assert source_of(graph.call_function(torch.add, (through, near))) == "near"
    assert source_of(graph.call_function(torch.neg, (through,))) == "far"
    assert "not known" in source_of(graph.placeholder("alone"))


def test_operation_of_the_backward_pass_alone_has_the_line_of_its_forward() -> None:
    """A power of -64 is known, its derivative's x ** -65 is not."""

    def rows(q: torch.Tensor, b: Any) -> torch.Tensor:
        base = q.abs() + 1
        steep = base**-64
        after = steep[:, 0] * b.reward
        return after + b.reward

    first = inspect.getsourcelines(rows)[1]
    error = refusal(rows)
    assert "pow" in error.field
    assert "-65" in error.got
    assert f"{__file__}:{first + 2}: `steep = base**-64`" in error.got


@pytest.mark.parametrize(
    ("operation", "layer"), [("convolution", nn.Conv1d(1, 3, 5)), ("bernoulli", nn.Dropout(0.5))]
)
def test_layer_without_counterpart_is_named_with_the_line_that_runs_the_network(
    operation: str, layer: nn.Module
) -> None:
    """A layer of PyTorch has no line of the user's: the call of the network has."""
    network = nn.Sequential(nn.Unflatten(1, (1, 5)), layer, nn.Flatten(), nn.LazyLinear(3))
    network(torch.zeros(2, 5))
    error = refusal(lambda q, b: q[:, 0] * b.reward, network)
    assert operation in error.field
    assert "value = rows(nets.q(batch.obs), batch)" in error.got


def test_overwriting_an_input_is_refused() -> None:
    """Other losses read the same column."""

    def rows(q: torch.Tensor, b: Any) -> torch.Tensor:
        b.reward.add_(1)
        return q[:, 0] * b.reward

    error = refusal(rows)
    assert "add_" in error.field
    assert f"{__file__}:" in error.got
    assert "b.reward.add_(1)" in error.got


def test_custom_autograd_function_is_refused() -> None:
    """PyTorch cannot trace through one."""

    class Twice(torch.autograd.Function):
        """Doubles."""

        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
            return None

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return 2 * gradient

    error = refusal(lambda q, b: Twice.apply(q)[:, 0] * b.reward)
    assert error.field == "torch.autograd.Function"
    assert __file__ in error.got


def test_branch_on_a_value_is_refused() -> None:
    """Control flow that depends on data cannot be in a static Program."""

    def rows(q: torch.Tensor, b: Any) -> torch.Tensor:
        if b.reward.sum() > 0:
            return q[:, 0]
        return q[:, 1]

    error = refusal(rows)
    assert "if b.reward.sum() > 0:" in error.got
    assert "torch.where" in error.hint


def test_sum_loss_is_refused_with_a_hint() -> None:
    """A sum over the batch depends on the batch size; the rows' losses do not."""
    assert "loss of each row" in refusal(lambda q, b: (q[:, 0] * b.reward).sum()).hint


def test_loss_scaled_by_batch_size_is_refused() -> None:
    """A number that is the batch size in disguise."""
    error = refusal(lambda q, b: q[:, 0] * b.reward * len(q))
    assert "batch size" in error.expected


def test_weight_decay_inside_the_loss_is_refused() -> None:
    """A term of the parameters alone is not a sum over rows."""

    def loss(nets: Any, b: Any) -> Any:
        decay = nets.q(torch.zeros(1, 5)).pow(2).sum()
        return (nets.q(b.obs)[:, 0] - b.reward).pow(2).mean() + decay, b.reward

    with pytest.raises(CaptureError):
        capture(loss, {"q": nn.Linear(5, 3)}, INPUTS, gradient="q", name="case")


@pytest.mark.parametrize(
    ("field", "result"),
    [
        ("loss", lambda q, b: q[:, 0]),
        ("row_losses", lambda q, b: (q, b.reward)),
        ("td_errors", lambda q, b: (q[:, 0], q)),
        ("td_errors", lambda q, b: (q[:, 0], 0.5)),
        ("extra", lambda q, b: (q[:, 0], b.reward, {"extra": q})),
        ("extras", lambda q, b: (q[:, 0], b.reward, {"loss": b.reward})),
    ],
)
def test_wrong_result_of_a_loss_is_refused(field: str, result: Any) -> None:
    """A loss returns losses and TD errors of rows, and named rows."""

    def loss(nets: Any, b: Any) -> Any:
        return result(nets.q(b.obs), b)

    with pytest.raises(CaptureError) as caught:
        capture(loss, {"q": nn.Linear(5, 3)}, INPUTS, gradient="q", name="case")
    assert caught.value.field == field


def test_unknown_gradient_network_is_refused() -> None:
    """`gradient` names one of the networks."""
    with pytest.raises(CaptureError, match="`gradient`"):
        capture(lambda nets, b: None, {"q": nn.Linear(5, 3)}, INPUTS, gradient="p", name="case")


def test_unknown_network_or_column_lists_the_known_ones() -> None:
    """A typing mistake inside the loss says what there is."""

    def rows(q: torch.Tensor, b: Any) -> torch.Tensor:
        return b.rewards

    assert "no column `rewards`, only obs, action, reward" in refusal(rows).got
    with pytest.raises(CaptureError, match=r"no network `p`, only q"):
        capture(lambda n, b: n.p, {"q": nn.Linear(5, 3)}, INPUTS, gradient="q", name="case")


def test_policy_with_another_number_of_outputs_is_refused() -> None:
    """`outputs` names each result of the forward pass."""
    with pytest.raises(CaptureError, match="`outputs`"):
        capture_policy(
            lambda nets, b: nets.q(b.obs),
            {"q": nn.Linear(5, 3)},
            INPUTS,
            ("q", "action"),
            name="case",
        )


def test_policy_over_all_rows_is_refused() -> None:
    """A policy acts on each row alone."""
    with pytest.raises(CaptureError):
        capture_policy(
            lambda nets, b: nets.q(b.obs).sum(0), {"q": nn.Linear(5, 3)}, INPUTS, ("q",), name="c"
        )
