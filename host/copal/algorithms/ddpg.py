# SPDX-License-Identifier: MIT
"""DDPG (Lillicrap et al. 2016), on prioritized n-step rows.

    y = R + discount * (1 - terminated) * Q'(s', mu'(s'))
    loss of the critic, a row = weight * loss(Q(s, a) - y)
    loss of the actor, a row  = -Q(s, mu(s))

Q is the critic, mu the actor, Q' and mu' their averaged copies. R is the sum of n discounted
rewards and `discount` its gamma^n, both made by the replay buffer; `weight` corrects for
prioritized sampling. Actions lie in [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.base import POSITIVE, Built, CommonConfig
from copal.algorithms.losses import Rows, td_loss
from copal.algorithms.networks import Critic, mlp, seeded
from copal.algorithms.spaces import box_actions, observation_width


@dataclass(frozen=True)
class DdpgConfig(CommonConfig):
    """Settings of DDPG.

    Raises:
        ConfigError: A value is out of range.
    """

    learning_rate: float = 1e-3
    """Step size of Adam."""
    actor_learning_rate: float | None = None
    """Step size of the actor's Adam; None: `learning_rate`."""

    def checks(self) -> dict[str, Any]:
        """See `CommonConfig.checks`."""
        expected, fits = POSITIVE
        optional = (f"{expected}, or None", lambda v: v is None or fits(v))
        return {**super().checks(), "actor_learning_rate": optional}


def critic_loss(config: DdpgConfig) -> Any:
    """The critic's loss, as a function of the networks and the batch."""

    def loss(nets: Any, batch: Any) -> Rows:
        q = nets.critic(batch.obs, batch.action)
        with torch.no_grad():
            next_action = nets.actor_target(batch.next_obs)
            next_q = nets.critic_target(batch.next_obs, next_action)
            y = batch.reward + batch.discount * (1 - batch.terminated) * next_q
        return batch.weight * td_loss(config.huber, q, y), q - y, {"q": q}

    return loss


def actor_loss(nets: Any, batch: Any) -> Rows:
    """The actor's loss: it climbs the critic."""
    q = nets.critic(batch.obs, nets.actor(batch.obs))
    return -q, torch.zeros_like(q), {}


def deterministic(nets: Any, batch: Any) -> torch.Tensor:
    """The policy: an action [B, actions] in [-1, 1]."""
    action: torch.Tensor = nets.actor(batch.obs)
    return action


def tanh_actor(width: int, hidden: tuple[int, ...], actions: int) -> nn.Sequential:
    """A network whose outputs lie in [-1, 1]."""
    return nn.Sequential(*mlp((width, *hidden, actions)), nn.Tanh())


def build(
    observation_space: Any, action_space: Any, config: DdpgConfig | None = None, seed: int = 0
) -> Built:
    """Makes actor and critic and captures the update.

    Args:
        observation_space: A Box of floats; any shape, flattened.
        action_space: A Box of floats with finite bounds.
        config: Settings; None: the defaults.
        seed: Of the initial parameters.

    Raises:
        ConfigError: A space does not fit.
    """
    config = config or DdpgConfig()
    actions = box_actions(action_space, "DDPG")
    width = observation_width(observation_space)
    with seeded(seed):
        actor = tanh_actor(width, config.hidden, actions)
        critic = Critic(width, actions, config.hidden)
    return assemble(
        "ddpg",
        config,
        networks={
            "actor": actor,
            "actor_target": actor,
            "critic": critic,
            "critic_target": critic,
        },
        steps=[
            Step("critic", critic_loss(config)),
            Step("actor", actor_loss, config.actor_learning_rate),
        ],
        acting=Acting(deterministic, ("actor",), ("action",), exploration="gaussian"),
        columns=transitions(width, ((actions,), "float32")),
        seed=seed,
    )
