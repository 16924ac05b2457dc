# SPDX-License-Identifier: MIT
"""DQN (Mnih et al. 2015) and double DQN (van Hasselt et al. 2016), on prioritized n-step rows.

    y = R + discount * (1 - terminated) * max_a Q'(s', a)                      DQN
    y = R + discount * (1 - terminated) * Q'(s', argmax_a Q(s', a))            double DQN
    loss of a row = weight * huber(Q(s, a) - y)

R is the sum of n discounted rewards and `discount` its gamma^n, both made by the replay buffer;
`weight` corrects for prioritized sampling; Q' is the target network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from copal.algorithms.base import Built, Columns, Source, discrete_actions, observation_width
from copal.algorithms.networks import flatten_module, mlp
from copal.errors import ConfigError
from copal.program import Adam, Buffer, Phase, Target, Update
from copal.program.capture import capture, capture_policy


@dataclass(frozen=True)
class DqnConfig:
    """Settings of DQN.

    Raises:
        ConfigError: A value is out of range.
    """

    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers."""
    learning_rate: float = 5e-4
    """Step size of Adam."""
    adam_eps: float = 1e-8
    """Added to the denominator of Adam's step."""
    loss: Literal["huber", "squared"] = "huber"
    """Loss of a TD error: linear beyond 1, or half its square."""
    double: bool = False
    """Choose the next action with the online network, value it with the target network."""
    target_tau: float = 0.005
    """Averaging rate of the target network; 1 copies."""
    target_update_interval: int = 1
    """Updates between two steps of the target network."""
    max_grad_norm: float | None = 10.0
    """Clip the gradient to this Euclidean norm; None: no clipping."""

    def __post_init__(self) -> None:
        checks = {
            "hidden": ("sizes above 0", all(n > 0 for n in self.hidden)),
            "learning_rate": ("a number above 0", self.learning_rate > 0),
            "adam_eps": ("a number above 0", self.adam_eps > 0),
            "loss": ("huber or squared", self.loss in ("huber", "squared")),
            "target_tau": ("a number in (0, 1]", 0 < self.target_tau <= 1),
            "target_update_interval": ("an integer above 0", self.target_update_interval > 0),
            "max_grad_norm": (
                "a number above 0 or None",
                self.max_grad_norm is None or self.max_grad_norm > 0,
            ),
        }
        for name, (expected, fine) in checks.items():
            if not fine:
                raise ConfigError(name, expected, str(getattr(self, name)))


def dqn_loss(config: DqnConfig) -> Any:
    """The loss of a batch of rows, as a function of networks `q`, `q_target` and the batch."""

    def loss(nets: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        q = nets.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_values = nets.q_target(batch.next_obs)
            if config.double:
                best = nets.q(batch.next_obs).argmax(1, keepdim=True)
                next_value = next_values.gather(1, best).squeeze(1)
            else:
                next_value = next_values.amax(1)
            y = batch.reward + batch.discount * (1 - batch.terminated) * next_value
        td_error = q - y
        if config.loss == "huber":
            row_loss = nn.functional.huber_loss(q, y, reduction="none")
        else:
            row_loss = 0.5 * td_error**2
        return batch.weight * row_loss, td_error, {"q": q}

    return loss


def greedy(nets: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The policy: action values [B, actions] and the best action [B]."""
    q = nets.q(batch.obs)
    return q, q.argmax(1)


def build(
    observation_space: Any, action_space: Any, config: DqnConfig | None = None, seed: int = 0
) -> Built:
    """Makes the Q network and captures the update.

    Args:
        observation_space: A Box of floats; any shape, flattened.
        action_space: Discrete.
        config: Settings; None: the defaults.
        seed: Of the initial parameters.

    Raises:
        ConfigError: A space does not fit.
    """
    config = config or DqnConfig()
    name = "double-dqn" if config.double else "dqn"
    actions = discrete_actions(action_space, "DQN")
    width = observation_width(observation_space)
    q = mlp((width, *config.hidden, actions), seed)
    networks = {"q": q, "q_target": q}
    loss = dqn_loss(config)
    program = capture(loss, networks, _inputs(width), gradient="q", name=name)
    policy = capture_policy(
        greedy, {"q": q}, [Buffer("obs", width)], ("q", "action"), name=f"{name}-policy"
    )
    optimiser = Adam(learning_rate=config.learning_rate, eps=config.adam_eps)
    update = Update(
        name=name,
        phases=(Phase(program, optimiser, config.max_grad_norm),),
        targets=(Target("q", "q_target", config.target_tau, config.target_update_interval),),
        policy=policy,
    )
    initial = flatten_module(q)
    parameters = {"q": initial, "q_target": initial.copy()}
    return Built(update, parameters, _columns(width), Source((loss,), networks))


def _inputs(width: int) -> tuple[Buffer, ...]:
    return (
        Buffer("obs", width),
        Buffer("action", 1, "int32"),
        Buffer("reward", 1),
        Buffer("next_obs", width),
        Buffer("terminated", 1),
        Buffer("discount", 1),
        Buffer("weight", 1),
    )


def _columns(width: int) -> Columns:
    return {
        "obs": ((width,), "float32"),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "next_obs": ((width,), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
