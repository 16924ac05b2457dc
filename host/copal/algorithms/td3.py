# SPDX-License-Identifier: MIT
"""TD3 (Fujimoto et al. 2018): DDPG with twin critics, a smoothed target and a delayed actor.

    a' = clip(mu'(s') + clip(target_noise * N(0, 1), -c, c), -1, 1)
    y = R + discount * (1 - terminated) * min(Q1'(s', a'), Q2'(s', a'))
    loss of the critics, a row = weight * (loss(Q1(s, a) - y) + loss(Q2(s, a) - y))
    loss of the actor, a row   = -Q1(s, mu(s)), in every `policy_delay`-th update

Names are those of `copal.algorithms.ddpg`; the targets follow when the actor steps. The priority of
a row is the mean of its two absolute TD errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.base import COUNT, NOT_NEGATIVE, Built
from copal.algorithms.ddpg import DdpgConfig, deterministic, tanh_actor
from copal.algorithms.losses import Rows, matrix, twin_td_loss
from copal.algorithms.networks import TwinCritic, seeded
from copal.algorithms.spaces import box_actions, observation_width


@dataclass(frozen=True)
class Td3Config(DdpgConfig):
    """Settings of TD3; the targets step every `policy_delay * target_update_interval` updates.

    Raises:
        ConfigError: A value is out of range.
    """

    policy_delay: int = 2
    """Updates of the critics for one of the actor and the targets."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target's action, half the action's range being 1."""
    target_noise_clip: float = 0.5
    """Largest noise on the target's action."""

    def checks(self) -> dict[str, Any]:
        """See `CommonConfig.checks`."""
        return {
            **super().checks(),
            "policy_delay": COUNT,
            "target_noise": NOT_NEGATIVE,
            "target_noise_clip": NOT_NEGATIVE,
        }


def critic_loss(config: Td3Config) -> Any:
    """The loss of both critics, as a function of the networks and the batch."""
    bound = config.target_noise_clip

    def loss(nets: Any, batch: Any) -> Rows:
        first, second = nets.critic(batch.obs, batch.action)
        with torch.no_grad():
            noise = (config.target_noise * matrix(batch.noise)).clamp(-bound, bound)
            next_action = (nets.actor_target(batch.next_obs) + noise).clamp(-1, 1)
            next_q = torch.minimum(*nets.critic_target(batch.next_obs, next_action))
            y = batch.reward + batch.discount * (1 - batch.terminated) * next_q
        row_loss, td_error = twin_td_loss(config.huber, first, second, y)
        return batch.weight * row_loss, td_error, {"q": first}

    return loss


def actor_loss(nets: Any, batch: Any) -> Rows:
    """The actor's loss: it climbs the first critic."""
    q = nets.critic(batch.obs, nets.actor(batch.obs), only_first=True)
    return -q, torch.zeros_like(q), {}


def build(
    observation_space: Any, action_space: Any, config: Td3Config | None = None, seed: int = 0
) -> Built:
    """Makes actor and critics and captures the update.

    Args:
        observation_space: A Box of floats; any shape, flattened.
        action_space: A Box of floats with finite bounds.
        config: Settings; None: the defaults.
        seed: Of the initial parameters and the noise.

    Raises:
        ConfigError: A space does not fit.
    """
    config = config or Td3Config()
    actions = box_actions(action_space, "TD3")
    width = observation_width(observation_space)
    with seeded(seed):
        actor = tanh_actor(width, config.hidden, actions)
        critic = TwinCritic(width, actions, config.hidden)
    return assemble(
        "td3",
        config,
        networks={
            "actor": actor,
            "actor_target": actor,
            "critic": critic,
            "critic_target": critic,
        },
        steps=[
            Step("critic", critic_loss(config)),
            Step("actor", actor_loss, config.actor_learning_rate, config.policy_delay),
        ],
        acting=Acting(deterministic, ("actor",), ("action",), exploration="gaussian"),
        columns=transitions(width, ((actions,), "float32")),
        noises={"noise": actions},
        target_every=config.policy_delay * config.target_update_interval,
        seed=seed,
    )
