# SPDX-License-Identifier: MIT
"""A lean single-file SAC in the style of CleanRL: torch eager, fused Adam, a NumPy ring.

One update is that of both critics, the actor and the temperature, and one step of the averaged
critics. Actions are in [-1, 1] inside and scaled to the environment's bounds.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from .protocol import Reply, versions
from .train_cleanrl import Ring, network
from .training import Clock, Settings, parser, settings

LOG_STD_RANGE = (-20.0, 2.0)


class Twin(nn.Module):
    """Two critics."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.first, self.second = network(inputs, hidden, 1), network(inputs, hidden, 1)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B] of actions."""
        x = torch.cat((obs, action), 1)
        return self.first(x).squeeze(1), self.second(x).squeeze(1)


class Learner:
    """Actor, critics and temperature, and one update of SAC."""

    def __init__(self, inputs: int, outputs: int, chosen: Settings) -> None:
        self.settings, self.target_entropy = chosen, -float(outputs)
        self.actor = network(inputs, chosen.hidden, 2 * outputs)
        self.critic = Twin(inputs + outputs, chosen.hidden)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.actor_parameters = _tensors(self.actor)
        self.critic_parameters = _tensors(self.critic)
        self.target_parameters = _tensors(self.target)
        rate = chosen.learning_rate
        self.actor_optimizer = torch.optim.Adam(self.actor_parameters, rate, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic_parameters, rate, fused=True)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], rate, fused=True)
        self.updates = 0

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Random actions [B, A] and the logarithms of their densities [B]."""
        mean, log_std = self.actor(obs).chunk(2, 1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        noise = torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
        return u.tanh(), (log_normal - log_slope).sum(1)

    @torch.no_grad()
    def act(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """A random action of one observation."""
        action: NDArray[np.float32] = self.sample(torch.from_numpy(obs[None]))[0][0].numpy()
        return action

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, discount: Tensor
    ) -> None:
        """One gradient step of everything on a batch [B]."""
        alpha = float(self.log_alpha.detach().exp())
        with torch.no_grad():
            next_action, next_log_prob = self.sample(next_obs)
            value = torch.minimum(*self.target(next_obs, next_action)) - alpha * next_log_prob
            wanted = reward + discount * value
        first, second = self.critic(obs, action)
        loss = 0.5 * (F.mse_loss(first, wanted) + F.mse_loss(second, wanted))
        _descend(loss, self.critic_optimizer, self.critic_parameters)
        drawn, log_prob = self.sample(obs)
        loss = (alpha * log_prob - torch.minimum(*self.critic(obs, drawn))).mean()
        _descend(loss, self.actor_optimizer, self.actor_parameters)
        loss = -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean()
        _descend(loss, self.alpha_optimizer, [self.log_alpha])
        self.updates += 1
        if self.updates % self.settings.target_update_interval == 0:
            tau = self.settings.target_tau
            torch._foreach_lerp_(self.target_parameters, self.critic_parameters, tau)


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


def _descend(loss: Tensor, optimizer: Any, parameters: list[Any]) -> None:
    optimizer.zero_grad()
    loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]
    optimizer.step()


class Run:
    """One environment, one learner; `step` is one environment step and the update that is due."""

    def __init__(self, chosen: Settings) -> None:
        torch.set_num_threads(chosen.threads)
        torch.manual_seed(chosen.seed)
        np.random.seed(chosen.seed)
        self.settings = chosen
        self.env = gymnasium.make(chosen.env)
        space: Any = self.env.action_space
        self.middle, self.half = (space.high + space.low) / 2, (space.high - space.low) / 2
        inputs = int(self.env.observation_space.shape[0])  # type: ignore[index]
        self.outputs = int(space.shape[0])
        self.learner = Learner(inputs, self.outputs, chosen)
        self.ring = Ring(chosen.buffer_size, inputs, self.outputs)
        self.obs, _ = self.env.reset(seed=chosen.seed)
        self.steps = 0

    def step(self) -> None:
        """Acts, stores what came of it, and learns when an update is due."""
        chosen = self.settings
        self.steps += 1
        if self.steps <= chosen.learning_starts:
            action = np.random.uniform(-1, 1, self.outputs).astype(np.float32)
        else:
            action = self.learner.act(self.obs)
        outcome = self.env.step(self.middle + self.half * action)
        next_obs, reward, terminated, truncated, _ = outcome
        discount = 0.0 if terminated else chosen.gamma
        self.ring.add(self.obs, action, float(reward), next_obs, discount)
        self.obs = next_obs
        if terminated or truncated:
            self.obs, _ = self.env.reset()
        if self.steps > chosen.learning_starts and self.steps % chosen.update_interval == 0:
            self.learner.update(*self.ring.sample(chosen.batch_size))


def main(arguments: list[str], reply: Reply) -> None:
    """Measures the loop's rate."""
    options = parser(__doc__).parse_args(arguments)
    run = Run(settings(options))
    found = versions("torch", "gymnasium", "numpy")
    clock = Clock(run.settings.warm_steps, options.ops, found, reply)
    while not clock.step(run.steps, run.learner.updates):
        run.step()
