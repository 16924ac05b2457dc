# SPDX-License-Identifier: MIT
"""Programs and batches that the tests of the cpu backend share, built without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from copal.backends.base import LearnerState
from copal.backends.cpu import CpuLearner
from copal.program import Adam, Buffer, Dense, Network, Op, Phase, Program, Target, Update

BATCH_SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 100, 256, 300)


def network(name: str, sizes: Sequence[int]) -> Network:
    """A multilayer perceptron, each layer [out, in] then its bias."""
    layers, at = [], 0
    for fan_in, fan_out in pairwise(sizes):
        layers.append(Dense(at, at + fan_in * fan_out, fan_in, fan_out))
        at += fan_in * fan_out + fan_out
    return Network(name, at, tuple(layers))


class Builder:
    """Appends operations and names their buffers."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(
        self, kind: str, *inputs: str, width: int = 1, dtype: str = "float32", **attrs: Any
    ) -> str:
        """Adds an operation with an output; returns the output's name."""
        name = f"v{len(self.ops)}"
        self.ops.append(Op(kind, inputs, Buffer(name, width, dtype), attrs))
        return name

    def add_scatter(self, x: str, index: str, width: int) -> str:
        """Adds a scatter, whose attribute is called like the argument of `add`."""
        name = f"v{len(self.ops)}"
        self.ops.append(Op("scatter", (x, index), Buffer(name, width), {"width": width}))
        return name

    def add_sum(self, kind: str, *inputs: str, **attrs: Any) -> None:
        """Adds a gradient operation."""
        self.ops.append(Op(kind, inputs, None, attrs))

    def forward(self, net: Network, x: str) -> list[str]:
        """Layer inputs, then the output."""
        values = [x]
        for i, layer in enumerate(net.layers):
            x = self.add("dense", x, width=layer.fan_out, **dense(net, layer))
            if i < len(net.layers) - 1:
                x = self.add("relu", x, width=layer.fan_out)
            values.append(x)
        return values

    def backward(self, net: Network, values: Sequence[str], grad: str) -> None:
        """Gradient of every layer, from the gradient of the output."""
        for i in reversed(range(len(net.layers))):
            layer = net.layers[i]
            self.add_sum("dense_grad_weight", grad, values[i], **dense(net, layer))
            self.add_sum("sum_over_rows", grad, offset=layer.bias)
            if i:
                grad = self.add("dense_grad_input", grad, width=layer.fan_in, **dense(net, layer))
                grad = self.add("relu_grad", grad, values[i], width=layer.fan_in)


def dense(net: Network, layer: Dense) -> dict[str, Any]:
    """Attributes of a dense operation."""
    return {
        "network": net.name,
        "weight": layer.weight,
        "bias": layer.bias,
        "fan_in": layer.fan_in,
        "fan_out": layer.fan_out,
    }


def dqn_program(sizes: Sequence[int]) -> Program:
    """The gradient of DQN's squared loss: weight * (q - y)^2 / 2."""
    q, target = network("q", sizes), network("q_target", sizes)
    b = Builder()
    best = b.add("row_max", b.forward(target, "next_obs")[-1])
    alive = b.add("sub", b.add("const", value=1.0), "terminated")
    y = b.add("add", "reward", b.add("mul", b.add("mul", "discount", alive), best))
    values = b.forward(q, "obs")
    td = b.add("sub", b.add("gather", values[-1], "action"), y)
    grad = b.add("mul", "weight", td)
    half = b.add("const", value=0.5)
    loss = b.add("mul", half, b.add("mul", grad, td))
    b.backward(q, values, b.add_scatter(grad, "action", sizes[-1]))
    inputs = (
        Buffer("obs", sizes[0]),
        Buffer("action", 1, "int32"),
        Buffer("reward", 1),
        Buffer("next_obs", sizes[0]),
        Buffer("terminated", 1),
        Buffer("discount", 1),
        Buffer("weight", 1),
    )
    outputs = {"td_error": td, "loss": loss}
    return Program("dqn", (q, target), inputs, tuple(b.ops), outputs, "q")


def policy_program(sizes: Sequence[int]) -> Program:
    """Action values and the greedy action."""
    q = network("q", sizes)
    b = Builder()
    out = b.forward(q, "obs")[-1]
    action = b.add("row_argmax", out, dtype="int32")
    return Program(
        "policy", (q,), (Buffer("obs", sizes[0]),), tuple(b.ops), {"q": out, "action": action}
    )


def dqn_update(
    sizes: Sequence[int],
    *,
    max_grad_norm: float | None = None,
    targets: tuple[Target, ...] = (Target("q", "q_target", 0.05),),
    learning_rate: float = 1e-3,
) -> Update:
    """One phase, Adam and a target network."""
    phase = Phase(dqn_program(sizes), Adam(learning_rate=learning_rate), max_grad_norm)
    return Update("dqn", (phase,), targets, policy_program(sizes))


def parameters(update: Update, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Small random parameters."""
    return {
        name: (rng.standard_normal(size) / 4).astype(np.float32)
        for name, size in update.networks().items()
    }


def batch(sizes: Sequence[int], rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random transitions in the dtypes of a replay buffer."""
    return {
        "obs": rng.standard_normal((rows, sizes[0])).astype(np.float32),
        "action": rng.integers(0, sizes[-1], rows),
        "reward": rng.standard_normal(rows).astype(np.float32),
        "next_obs": rng.standard_normal((rows, sizes[0])).astype(np.float32),
        "terminated": rng.random(rows) < 0.2,
        "discount": np.full(rows, 0.97, np.float32),
        "weight": rng.random(rows).astype(np.float32),
    }


def learner(
    update: Update, start: Mapping[str, np.ndarray], rows: int, **options: Any
) -> CpuLearner:
    """A learner at its first update."""
    return CpuLearner(update, LearnerState.initial(update, start), batch_size=rows, **options)


def relative(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest magnitude."""
    scale = np.abs(expected).max()
    return (
        float(np.abs(actual - expected).max() / scale) if scale > 0 else float(np.abs(actual).max())
    )
