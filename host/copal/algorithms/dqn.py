# SPDX-License-Identifier: MIT
"""DQN (Mnih et al. 2015) and double DQN (van Hasselt et al. 2016), on prioritized n-step rows.

    y = R + discount * (1 - terminated) * max_a Q'(s', a)                      DQN
    y = R + discount * (1 - terminated) * Q'(s', argmax_a Q(s', a))            double DQN
    loss of a row = weight * huber(Q(s, a) - y)

R is the sum of n discounted rewards and `discount` its gamma^n, both made by the replay buffer;
`weight` corrects for prioritized sampling; Q' is the target network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.base import FLAG, Built, CommonConfig
from copal.algorithms.images import nature_cnn
from copal.algorithms.losses import Rows, td_loss
from copal.algorithms.networks import mlp
from copal.algorithms.spaces import discrete_actions, observation_width
from copal.envs.base import is_image
from copal.errors import ConfigError


@dataclass(frozen=True)
class DqnConfig(CommonConfig):
    """Settings of DQN.

    Raises:
        ConfigError: A value is out of range.
    """

    learning_rate: float = 5e-4
    """Step size of Adam."""
    huber: bool = True
    """Loss of a TD error: linear beyond 1 instead of half its square."""
    max_grad_norm: float | None = 10.0
    """Clip the gradient to this Euclidean norm; None or 0: no clipping."""
    double: bool = False
    """Choose the next action with the online network, value it with the target network."""

    def checks(self) -> dict[str, Any]:
        """See `CommonConfig.checks`."""
        return {**super().checks(), "double": FLAG}


def dqn_loss(config: DqnConfig) -> Any:
    """The loss of a batch of rows, as a function of networks `q`, `q_target` and the batch."""

    def loss(nets: Any, batch: Any) -> Rows:
        q = nets.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_values = nets.q_target(batch.next_obs)
            if config.double:
                best = nets.q(batch.next_obs).argmax(1, keepdim=True)
                next_value = next_values.gather(1, best).squeeze(1)
            else:
                next_value = next_values.amax(1)
            y = batch.reward + batch.discount * (1 - batch.terminated) * next_value
        return batch.weight * td_loss(config.huber, q, y), q - y, {"q": q}

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
        observation_space: A Box of floats; any shape, flattened. Or of images, uint8, which a
            convolutional network reads (Mnih et al. 2015): only the `torch` backend runs it, and
            `config.hidden` is not used.
        action_space: Discrete.
        config: Settings; None: the defaults.
        seed: Of the initial parameters.

    Raises:
        ConfigError: A space does not fit.
    """
    config = config or DqnConfig()
    actions = discrete_actions(action_space, "DQN")
    image = is_image(observation_space)
    if image:
        _check_image_settings(config)
        width, dtype = math.prod(observation_space.shape), "uint8"
        q: nn.Module = nature_cnn(observation_space.shape, actions, seed)
    else:
        width, dtype = observation_width(observation_space), "float32"
        q = mlp((width, *config.hidden, actions), seed)
    return assemble(
        "double-dqn" if config.double else "dqn",
        config,
        networks={"q": q, "q_target": q},
        steps=[Step("q", dqn_loss(config))],
        acting=Acting(greedy, ("q",), ("q", "action")),
        columns=transitions(width, ((), "int64"), dtype),
        opaque=image,
        seed=seed,
    )


def _check_image_settings(config: DqnConfig) -> None:
    if config.normalize_observations:
        raise ConfigError(
            "normalize_observations",
            "False with images, whose pixels are divided by 255",
            "True",
            "leave the flag out",
        )
