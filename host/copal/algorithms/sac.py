# SPDX-License-Identifier: MIT
"""SAC (Haarnoja et al. 2018, both papers), with twin critics and a learnt temperature.

    a ~ pi(s): u = mean + std * N(0, 1), a = tanh(u)
    log pi(a|s) = sum over components of log N(u; mean, std) - log(1 - tanh(u)^2)
    y = R + discount * (1 - terminated) * (min(Q1'(s', a'), Q2'(s', a')) - alpha * log pi(a'|s'))
    loss of the critics, a row    = weight * (loss(Q1(s, a) - y) + loss(Q2(s, a) - y))
    loss of the actor, a row      = alpha * log pi(b|s) - min(Q1(s, b), Q2(s, b)),  b ~ pi(s)
    loss of the temperature, a row = -log alpha * (log pi(b|s) + target entropy)

R is the sum of n discounted rewards and `discount` its gamma^n, both made by the replay buffer;
`weight` corrects for prioritized sampling; Q1' and Q2' are the averaged critics. log(1 - tanh(u)^2)
is computed as 2 (log 2 - u - softplus(-2u)), which neither overflows nor cancels. The priority of a
row is the mean of its two absolute TD errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import softplus

from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.base import FLAG, POSITIVE, Built
from copal.algorithms.ddpg import DdpgConfig
from copal.algorithms.losses import Rows, matrix, twin_td_loss
from copal.algorithms.networks import Temperature, TwinCritic, mlp, seeded
from copal.algorithms.spaces import box_actions, observation_width

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class SacConfig(DdpgConfig):
    """Settings of SAC.

    Raises:
        ConfigError: A value is out of range.
    """

    learning_rate: float = 3e-4
    """Step size of Adam, also of the temperature's."""
    initial_temperature: float = 1.0
    """First value of alpha, the weight of the entropy; its only value without `autotune`."""
    target_entropy: float | None = None
    """Entropy that alpha is tuned for, in nats; None: minus the number of action components."""
    autotune: bool = True
    """Learn alpha."""

    def checks(self) -> dict[str, Any]:
        """See `CommonConfig.checks`."""
        return {
            **super().checks(),
            "initial_temperature": POSITIVE,
            "target_entropy": (
                "a finite number or None",
                lambda v: v is None or math.isfinite(v),
            ),
            "autotune": FLAG,
        }


def squashed_gaussian(
    outputs: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws actions.

    Args:
        outputs: Of the actor, [B, 2 * actions]: means, then logarithms of standard deviations.
        noise: Standard normal numbers, [B, actions].

    Returns:
        Actions in [-1, 1], [B, actions], and the logarithms of their densities, [B].
    """
    mean, log_std = outputs.chunk(2, 1)
    log_std = log_std.clamp(*LOG_STD_RANGE)
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (math.log(2) - u - softplus(-2 * u))
    return u.tanh(), (log_normal - log_slope).sum(1)


def critic_loss(config: SacConfig) -> Any:
    """The loss of both critics, as a function of the networks and the batch."""

    def loss(nets: Any, batch: Any) -> Rows:
        first, second = nets.critic(batch.obs, batch.action)
        with torch.no_grad():
            outputs = nets.actor(batch.next_obs)
            next_action, next_log_prob = squashed_gaussian(outputs, matrix(batch.next_noise))
            next_q = torch.minimum(*nets.critic_target(batch.next_obs, next_action))
            soft_value = next_q - nets.temperature().exp() * next_log_prob
            y = batch.reward + batch.discount * (1 - batch.terminated) * soft_value
        row_loss, td_error = twin_td_loss(config.huber, first, second, y)
        return batch.weight * row_loss, td_error, {"q": first}

    return loss


def actor_loss(nets: Any, batch: Any) -> Rows:
    """The actor's loss: it climbs the smaller critic, and stays random."""
    action, log_prob = squashed_gaussian(nets.actor(batch.obs), matrix(batch.noise))
    q = torch.minimum(*nets.critic(batch.obs, action))
    row_loss = nets.temperature().exp() * log_prob - q
    return row_loss, torch.zeros_like(q), {"entropy": -log_prob}


def temperature_loss(target_entropy: float) -> Any:
    """The loss of log alpha, which grows while the policy's entropy is below its target."""

    def loss(nets: Any, batch: Any) -> Rows:
        with torch.no_grad():
            _, log_prob = squashed_gaussian(nets.actor(batch.obs), matrix(batch.noise))
        row_loss = -nets.temperature() * (log_prob + target_entropy)
        zeros = torch.zeros_like(log_prob)
        return row_loss, zeros, {"temperature": zeros + nets.temperature().exp()}

    return loss


def policy(nets: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The policy: its most likely action and a random one, both [B, actions] in [-1, 1]."""
    outputs = nets.actor(batch.obs)
    mean, _ = outputs.chunk(2, 1)
    sample, _ = squashed_gaussian(outputs, matrix(batch.noise))
    return mean.tanh(), sample


def build(
    observation_space: Any, action_space: Any, config: SacConfig | None = None, seed: int = 0
) -> Built:
    """Makes actor, critics and temperature and captures the update.

    Args:
        observation_space: A Box of floats; any shape, flattened.
        action_space: A Box of floats with finite bounds.
        config: Settings; None: the defaults.
        seed: Of the initial parameters and the noise.

    Raises:
        ConfigError: A space does not fit.
    """
    config = config or SacConfig()
    actions = box_actions(action_space, "SAC")
    width = observation_width(observation_space)
    with seeded(seed):
        actor = mlp((width, *config.hidden, 2 * actions))
        critic = TwinCritic(width, actions, config.hidden)
    steps = [
        Step("critic", critic_loss(config)),
        Step("actor", actor_loss, config.actor_learning_rate),
    ]
    if config.autotune:
        wanted = -float(actions) if config.target_entropy is None else config.target_entropy
        steps.append(Step("temperature", temperature_loss(wanted)))
    return assemble(
        "sac",
        config,
        networks={
            "actor": actor,
            "critic": critic,
            "critic_target": critic,
            "temperature": Temperature(config.initial_temperature),
        },
        steps=steps,
        acting=Acting(policy, ("actor",), ("action", "sample"), actions, "policy"),
        columns=transitions(width, ((actions,), "float32")),
        noises={"next_noise": actions, "noise": actions},
        seed=seed,
    )
