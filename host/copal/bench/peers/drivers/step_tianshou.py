# SPDX-License-Identifier: MIT
"""A training step of tianshou's double DQN, with its prioritized buffer or with copal's."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, PrioritizedReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net

from . import step
from .protocol import Reply, versions

PART = 10_000


def fill(buffer: Any, chosen: step.Settings) -> None:
    """Fills the buffer with random play, repeated, and gives it random priorities."""
    played = step.play(chosen.env, PART)
    part = PrioritizedReplayBuffer(PART, alpha=step.ALPHA, beta=step.BETA)
    for row in range(PART):
        part.add(
            Batch(
                obs=played["obs"][row],
                act=played["action"][row],
                rew=float(played["reward"][row]),
                terminated=played["terminated"][row],
                truncated=played["truncated"][row],
                obs_next=played["next_obs"][row],
                info=Batch(env_id=0),
            )
        )
    for _ in range(-(-chosen.rows // PART)):
        buffer.update(part)
    buffer.update_weight(np.arange(chosen.rows), np.random.default_rng(1).normal(size=chosen.rows))


def build(chosen: step.Settings) -> tuple[Any, Any, Any]:
    """The algorithm, its full buffer and a collector into it."""
    buffer_class, algorithm_class = PrioritizedReplayBuffer, DQN
    if chosen.parts != "own":
        from copal.adapters import tianshou as ours

        buffer_class = ours.PrioritizedReplayBuffer
        algorithm_class = ours.DQN if chosen.parts == "dqn" else DQN
    env = gymnasium.make(chosen.env)
    net = Net(
        state_shape=env.observation_space.shape,
        action_shape=env.action_space.n,  # type: ignore[attr-defined]
        hidden_sizes=list(chosen.hidden),
    )
    policy = DiscreteQLearningPolicy(
        model=net,
        action_space=env.action_space,
        observation_space=env.observation_space,
        eps_training=0.05,
    )
    algorithm = algorithm_class(
        policy=policy,
        optim=AdamOptimizerFactory(lr=step.LEARNING_RATE),
        gamma=step.GAMMA,
        n_step_return_horizon=chosen.n_step,
        target_update_freq=step.TARGET_INTERVAL,
    )
    buffer = buffer_class(chosen.rows, alpha=step.ALPHA, beta=step.BETA)
    envs = DummyVectorEnv([lambda: gymnasium.make(chosen.env)])
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    fill(buffer, chosen)
    return algorithm, buffer, collector


def main(arguments: list[str], reply: Reply) -> None:
    """Measures tianshou's training step."""
    chosen, ops = step.settings(arguments, __doc__)
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    torch.set_num_threads(chosen.threads)
    algorithm, buffer, collector = build(chosen)

    def update() -> None:
        algorithm.update(buffer=buffer, sample_size=chosen.batch_size)

    def whole() -> None:
        collector.collect(n_step=1)
        update()

    with policy_within_training_step(algorithm.policy):
        found = versions("tianshou", "torch", "numba", "numpy")
        step.answer({"update": update, "step": whole}, ops, found, reply)
