# SPDX-License-Identifier: MIT
"""tianshou's DQN (double, its default) with prioritized replay."""

from __future__ import annotations

import contextlib
import logging
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, PrioritizedVectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from .protocol import Reply, versions
from .training import Clock, Settings, StopTraining, parser, settings

NEVER_STEPS = 10**8


def build(chosen: Settings) -> tuple[Any, Any]:
    """The algorithm and its collector, with `learning_starts` steps already collected."""
    np.random.seed(chosen.seed)
    torch.manual_seed(chosen.seed)
    envs = DummyVectorEnv([lambda: gymnasium.make(chosen.env)])
    envs.seed(chosen.seed)
    one = gymnasium.make(chosen.env)
    net = Net(
        state_shape=one.observation_space.shape,
        action_shape=one.action_space.n,  # type: ignore[attr-defined]
        hidden_sizes=list(chosen.hidden),
    )
    policy = DiscreteQLearningPolicy(
        model=net,
        action_space=one.action_space,
        observation_space=one.observation_space,
        eps_training=0.1,
        eps_inference=0.0,
    )
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=chosen.learning_rate),
        gamma=chosen.gamma,
        n_step_return_horizon=chosen.n_step,
        target_update_freq=chosen.target_update_interval,
    )
    replay = PrioritizedVectorReplayBuffer(chosen.buffer_size, buffer_num=1, alpha=0.6, beta=0.4)
    collector = Collector(algorithm, envs, replay, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=chosen.learning_starts)
    return algorithm, collector


def main(arguments: list[str], reply: Reply) -> None:
    """Measures tianshou's rate."""
    options = parser(__doc__).parse_args(arguments)
    chosen = settings(options)
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    torch.set_num_threads(chosen.threads)
    algorithm, collector = build(chosen)
    found = versions("tianshou", "torch", "numba", "gymnasium", "numpy")
    # Its own count of steps starts after `learning_starts`.
    clock = Clock(chosen.warm_steps - chosen.learning_starts, options.ops, found, reply)

    def on_step(epoch: int, env_steps: int) -> None:
        del epoch
        if clock.step(env_steps, env_steps // chosen.update_interval):
            raise StopTraining

    params = OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=NEVER_STEPS,
        training_fn=on_step,
        verbose=False,
        show_progress=False,
        collection_step_num_env_steps=chosen.update_interval,
        update_step_num_gradient_steps_per_sample=1.0 / chosen.update_interval,
        batch_size=chosen.batch_size,
        test_step_num_episodes=1,
    )
    with contextlib.suppress(StopTraining):
        algorithm.run_training(params)
