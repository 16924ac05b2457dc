# SPDX-License-Identifier: MIT
"""Learners on the emulated GPU, and random Programs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cpu_cases import Builder, dense, network

from copal.gpu.device import GpuDevice
from copal.gpu.emulate import EmulatedDevice
from copal.gpu.learner import GpuLearner
from copal.gpu.plan import PlanOptions, plan
from copal.program import Adam, Buffer, Phase, Program, Update

TOLERANCE = 1e-5
"""Relative error against float64 that docs/gpu.md promises."""


def start(
    update: Update,
    parameters: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]],
    batch_size: int,
    *,
    device: GpuDevice | None = None,
    updates: int = 1,
    seeds: Sequence[int] | None = None,
    **options: Any,
) -> GpuLearner:
    """A learner at its first update, with zero moments; one agent for each set of parameters."""
    agents = [parameters] if isinstance(parameters, Mapping) else list(parameters)
    planned = plan(update, batch_size, PlanOptions(agents=len(agents), **options))
    learner = GpuLearner(device or EmulatedDevice(), planned, updates=updates, seeds=seeds)
    for agent, vectors in enumerate(agents):
        learner.begin(vectors, agent)
    return learner


def bits(learner: GpuLearner, agent: int = 0) -> dict[str, bytes]:
    """Everything that an agent carries on, to compare bit by bit."""
    update = learner.plan.update
    found = {n: learner.vector("parameters", n, agent).tobytes() for n in learner.plan.layouts}
    for what in ("first", "second"):
        found |= {f"{what} {n}": learner.vector(what, n, agent).tobytes() for n in update.trained()}
    return found


def update_of(program: Program) -> Update:
    """One phase, no targets, no policy to speak of."""
    policy = Program("none", program.networks, (Buffer("obs", 1),), (), {"q": "obs"})
    return Update("one", (Phase(program, Adam()),), (), policy)


class RandomProgram:
    """Random operations on random widths; every result counts somewhere.

    Args:
        rng: Source of all choices.
        widths: Widths to choose from.
    """

    def __init__(self, rng: np.random.Generator, widths: Sequence[int]) -> None:
        self._rng, self._b = rng, Builder()
        self._widths = list(widths)
        self.networks = {w: network(f"net{w}", (w, int(rng.choice(widths)))) for w in set(widths)}
        self._floats: dict[str, int] = {}
        self._indices: list[str] = []
        self.inputs: list[Buffer] = []
        for i, w in enumerate((*widths, 1)):
            self.inputs.append(Buffer(f"in{i}", w))
            self._floats[f"in{i}"] = w

    def grow(self, kinds: Sequence[str]) -> None:
        """Adds an operation of each kind, in this order."""
        for kind in kinds:
            self._add(kind)

    def program(self, outputs: int) -> Program:
        """The Program with `outputs` of its buffers as outputs, and a gradient."""
        names = [n for n in self._floats if n.startswith("v")][-outputs:]
        net = self.networks[max(self.networks)]
        layer = net.layers[0]
        x, y = self._of(layer.fan_out), self._of(layer.fan_in)
        self._b.add_sum("dense_grad_weight", x, y, **dense(net, layer))
        self._b.add_sum("sum_over_rows", x, offset=layer.bias)
        self._b.add_sum("sum_over_rows", x, offset=layer.bias)
        td = self._b.add("row_sum", x)
        roles = {f"o{i}": name for i, name in enumerate(names)}
        return Program(
            "random",
            tuple(self.networks.values()),
            tuple(self.inputs),
            tuple(self._b.ops),
            {"td_error": td, "loss": td, **roles},
            net.name,
        )

    def _keep(self, name: str, width: int) -> None:
        self._floats[name] = width

    def _any(self) -> str:
        return str(self._rng.choice(list(self._floats)))

    def _of(self, width: int) -> str:
        """A float buffer of `width`; a slice or concatenation if there is none."""
        fitting = [n for n, w in self._floats.items() if w == width]
        if fitting:
            return str(self._rng.choice(fitting))
        wider = [n for n, w in self._floats.items() if w > width]
        if wider:
            name = self._b.add("slice", wider[-1], width=width, start=0, stop=width)
        else:
            parts: list[str] = []
            while (missing := width - sum(self._floats[p] for p in parts)) > 0:
                parts.append(self._of(min(missing, max(self._floats.values()))))
            name = self._b.add("concat", *parts, width=width)
        self._keep(name, width)
        return name

    def _partner(self, width: int) -> str:
        return self._of(width if self._rng.random() < 0.6 else 1)

    def _index(self, below: int) -> str:
        """An index below `below`."""
        index = self._b.add("row_argmax", self._of(below), dtype="int32")
        self._indices.append(index)
        return index

    def _add(self, kind: str) -> None:
        b, rng = self._b, self._rng
        x = self._any()
        w = self._floats[x]
        if kind in ("dense", "dense_grad_input"):
            net = self.networks[int(rng.choice(list(self.networks)))]
            layer = net.layers[0]
            given, out = layer.fan_in, layer.fan_out
            if kind == "dense_grad_input":
                given, out = out, given
            attrs = dense(net, layer)
            if rng.random() < 0.3:
                attrs["bias"] = -1
            name, w = b.add(kind, self._of(given), width=out, **attrs), out
        elif kind == "const":
            name, w = b.add("const", value=float(rng.normal())), 1
        elif kind == "param":
            net = self.networks[max(self.networks)]
            w = int(rng.integers(1, net.layers[0].fan_out + 1))
            name = b.add("param", width=w, network=net.name, offset=net.layers[0].bias)
        elif kind == "concat":
            parts = [self._any() for _ in range(int(rng.integers(1, 4)))]
            w = sum(self._floats[p] for p in parts)
            name = b.add("concat", *parts, width=w)
        elif kind == "slice":
            start = int(rng.integers(0, w))
            stop = int(rng.integers(start + 1, w + 1))
            name, w = b.add("slice", x, width=stop - start, start=start, stop=stop), stop - start
        elif kind == "gather":
            name, w = b.add("gather", x, self._index(w)), 1
        elif kind == "scatter":
            w = int(rng.choice(self._widths))
            name = b.add_scatter(self._of(1), self._index(w), w)
        elif kind in ("row_max", "row_sum"):
            name, w = b.add(kind, x), 1
        elif kind == "row_argmax":
            index = b.add(kind, x, dtype="int32")
            name, w = b.add("add", index, self._of(1)), 1
        elif kind == "where":
            choice = b.add("less", x, self._partner(w), width=w)
            name = b.add("where", choice, self._partner(w), self._of(w), width=w)
        elif kind in ("exp", "log", "sqrt", "div"):
            name = self._guarded(kind, x, w)
        elif kind in ("neg", "abs", "sign", "tanh", "relu"):
            name = b.add(kind, x, width=w)
        elif kind == "relu_grad":
            name = b.add(kind, x, b.add("relu", self._of(w), width=w), width=w)
        else:
            name = b.add(kind, x, self._partner(w), width=w)
        # Keeps the numbers near 1 whatever is built on them.
        self._keep(b.add("tanh", name, width=w), w)

    def _guarded(self, kind: str, x: str, w: int) -> str:
        """An operation inside its domain."""
        b = self._b
        if kind == "exp":
            return b.add("exp", b.add("tanh", x, width=w), width=w)
        positive = b.add("add", b.add("abs", x, width=w), b.add("const", value=0.5), width=w)
        if kind == "div":
            return b.add("div", self._of(w), positive, width=w)
        return b.add(kind, positive, width=w)
