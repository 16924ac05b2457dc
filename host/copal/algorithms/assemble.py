# SPDX-License-Identifier: MIT
"""From networks and losses to a Built algorithm: what all algorithms do alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from copal.algorithms.base import SCALE, Built, Columns, CommonConfig, Exploration, Source
from copal.algorithms.networks import ObservationScale, flatten_module
from copal.errors import CaptureError, ConfigError
from copal.program import Adam, Buffer, Phase, Target, Update
from copal.program.capture import capture, capture_policy


@dataclass(frozen=True)
class Step:
    """One phase of an update: a loss, and the network that an Adam step on it changes."""

    network: str
    """The network that is trained."""
    loss: Callable[[Any, Any], Any]
    """`loss(nets, batch)` returns losses [B], TD errors [B], and a dictionary of rows to report."""
    learning_rate: float | None = None
    """Step size; None: `config.learning_rate`."""
    every: int = 1
    """Updates for one step of this phase."""


@dataclass(frozen=True)
class Acting:
    """The forward pass that acts."""

    forward: Callable[[Any, Any], Any]
    """`forward(nets, batch)` returns a tensor [B] or [B, width] for each output."""
    networks: tuple[str, ...]
    """Names of the networks that it reads."""
    outputs: tuple[str, ...]
    """Names of the results, `action` among them."""
    noise: int = 0
    """Width of the input `noise`, standard normal numbers that the caller makes; 0: there is none.
    """
    exploration: Exploration = "epsilon"
    """How actors explore."""


def assemble(
    name: str,
    config: CommonConfig,
    *,
    networks: Mapping[str, nn.Module],
    steps: Sequence[Step],
    acting: Acting,
    columns: Columns,
    noises: Mapping[str, int] | None = None,
    target_every: int | None = None,
    opaque: bool = False,
    seed: int = 0,
) -> Built:
    """Captures the losses and the policy, and puts the parts of an algorithm together.

    The losses and the policy see observations that are normalised, and rewards that are scaled, if
    `config` asks for it. A network `x_target` follows the network `x`.

    Args:
        name: The algorithm.
        config: The shared settings.
        networks: Network name to module; a target may share the module of its source.
        steps: Phases in order. The TD errors of the first one are the priorities.
        acting: The policy.
        columns: What the replay buffer holds, of `transitions` for instance.
        noises: Further batch columns, name to width: standard normal numbers that learners make.
        target_every: Updates between two steps of the targets; None: of the config.
        opaque: Let operations pass that only the `torch` backend has, convolutions for instance.
        seed: Of the noise.

    Raises:
        CaptureError: A loss holds what has no counterpart in a Program.
        ConfigError: The policy reads a network that is not there, or a noise has a column's name.
    """
    networks = dict(networks)
    width = _width(columns["obs"])
    _check_names(networks, acting, columns, noises or {})
    if config.normalize_observations:
        networks = {SCALE: ObservationScale(width), **networks}
    losses = tuple(_prepared(step.loss, config) for step in steps)
    inputs = _inputs(columns, noises or {})
    forward = _prepared(acting.forward, config)
    phases = []
    for step, loss in zip(steps, losses, strict=True):
        title = name if len(steps) == 1 else f"{name}-{step.network}"
        program = capture(loss, networks, inputs, gradient=step.network, name=title, opaque=opaque)
        if not program.opaque() and all(op.output is not None for op in program.ops):
            raise CaptureError(
                f"loss of {title}",
                f"losses that depend on the network `{step.network}`",
                "a gradient of zero",
                "a step trains the network that it names; do not detach its loss",
            )
        optimiser = Adam(step.learning_rate or config.learning_rate, eps=config.adam_eps)
        phases.append(Phase(program, optimiser, config.max_grad_norm or None, step.every))
    every = target_every or config.target_update_interval
    update = Update(
        name=name,
        phases=tuple(phases),
        targets=tuple(
            Target(source, f"{source}_target", config.target_tau, every)
            for source in networks
            if f"{source}_target" in networks
        ),
        policy=_policy(name, forward, networks, acting, width, opaque),
        seed=seed,
    )
    used = update.networks()
    networks = {n: m for n, m in networks.items() if n in used}
    parameters = {n: flatten_module(m) for n, m in networks.items()}
    return Built(update, parameters, columns, Source(losses, networks, forward), acting.exploration)


def transitions(width: int, action: tuple[tuple[int, ...], str], dtype: str = "float32") -> Columns:
    """The columns of a replay.

    Args:
        width: Numbers of an observation.
        action: Shape and dtype of an action.
        dtype: Of the observations; images are kept as uint8, and as floats reach the loss.
    """
    return {
        "obs": ((width,), dtype),
        "action": action,
        "reward": ((), "float32"),
        "next_obs": ((width,), dtype),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }


def _check_names(
    networks: Mapping[str, nn.Module], acting: Acting, columns: Columns, noises: Mapping[str, int]
) -> None:
    unknown = [name for name in acting.networks if name not in networks]
    if unknown:
        raise ConfigError("acting", f"networks among {', '.join(networks)}", f"`{unknown[0]}`")
    taken = {*columns, "discount", "weight"}
    for name, width in noises.items():
        if name in taken:
            raise ConfigError("noises", f"other names than {', '.join(sorted(taken))}", f"`{name}`")
        if width < 1:
            raise ConfigError("noises", f"a width of `{name}` of at least 1", str(width))


def _width(column: tuple[tuple[int, ...], str]) -> int:
    shape, _ = column
    return int(torch.Size(shape).numel())


def _inputs(columns: Columns, noises: Mapping[str, int]) -> tuple[Buffer, ...]:
    stored = [
        Buffer(name, _width(column), "int32" if column[1] == "int64" else "float32")
        for name, column in columns.items()
        if name != "truncated"
    ]
    made = [Buffer(name, width, source="normal") for name, width in noises.items()]
    return (*stored, Buffer("discount", 1), Buffer("weight", 1), *made)


def _policy(
    name: str,
    forward: Callable[[Any, Any], Any],
    networks: Mapping[str, nn.Module],
    acting: Acting,
    width: int,
    opaque: bool,
) -> Any:
    inputs = [Buffer("obs", width)]
    if acting.noise:
        inputs.append(Buffer("noise", acting.noise, source="normal"))
    return capture_policy(
        forward,
        {n: m for n, m in networks.items() if n in (SCALE, *acting.networks)},
        inputs,
        acting.outputs,
        name=f"{name}-policy",
        opaque=opaque,
    )


def _prepared(function: Callable[[Any, Any], Any], config: CommonConfig) -> Any:
    """`function(nets, batch)` on normalised observations and scaled rewards."""
    if not config.normalize_observations and config.reward_scale == 1:
        return function

    def prepared(nets: Any, batch: Any) -> Any:
        return function(nets, _Prepared(nets, batch, config))

    return prepared


class _Prepared:
    """A batch whose columns are normalised and scaled when they are first read."""

    def __init__(self, nets: Any, batch: Any, config: CommonConfig) -> None:
        self._nets, self._batch, self._config = nets, batch, config

    def __getattr__(self, name: str) -> torch.Tensor:
        value: torch.Tensor = getattr(self._batch, name)
        if name in ("obs", "next_obs") and self._config.normalize_observations:
            value = self._nets.observation_scale(value)
        elif name == "reward":
            value = value * self._config.reward_scale
        setattr(self, name, value)
        return value
