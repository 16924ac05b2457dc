# SPDX-License-Identifier: MIT
"""RLlib's DQN (double) with its prioritized episode buffer, all in the driver process.

That is its fastest layout for one environment: with remote runners each step waits for a call to
another process.
"""

from __future__ import annotations

import logging
import os
from typing import Any

os.environ["RAY_usage_stats_enabled"] = "0"  # noqa: SIM112 - Ray spells it so

import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from .protocol import Reply, versions
from .training import Clock, Settings, parser, settings

STEPS_A_CALL = 50
"""Environment steps of one `train()` call, between which the clock is asked."""

OBJECT_STORE_BYTES = 500 * 2**20


def build(chosen: Settings) -> Any:
    """The algorithm, set to one update every `update_interval` environment steps."""
    config = (
        DQNConfig()
        .environment(chosen.env)
        .env_runners(num_env_runners=0, rollout_fragment_length=1, num_envs_per_env_runner=1)
        .training(
            lr=chosen.learning_rate,
            gamma=chosen.gamma,
            double_q=True,
            dueling=False,
            n_step=chosen.n_step,
            train_batch_size_per_learner=chosen.batch_size,
            training_intensity=chosen.batch_size / chosen.update_interval,
            num_steps_sampled_before_learning_starts=chosen.learning_starts,
            target_network_update_freq=chosen.target_update_interval,
            epsilon=[(0, 1.0), (chosen.epsilon_steps, chosen.epsilon_end)],
            replay_buffer_config={
                "type": "PrioritizedEpisodeReplayBuffer",
                "capacity": chosen.buffer_size,
                "alpha": 0.6,
                "beta": 0.4,
            },
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(chosen.hidden), fcnet_activation="relu", head_fcnet_hiddens=[]
            )
        )
        .learners(num_learners=0)
        .debugging(seed=chosen.seed, log_level="ERROR")
        .reporting(
            min_sample_timesteps_per_iteration=STEPS_A_CALL,
            min_time_s_per_iteration=None,
            metrics_num_episodes_for_smoothing=100,
        )
    )
    return config.build_algo()


def main(arguments: list[str], reply: Reply) -> None:
    """Measures RLlib's rate."""
    options = parser(__doc__).parse_args(arguments)
    chosen = settings(options)
    logging.disable(logging.WARNING)
    torch.set_num_threads(chosen.threads)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
    )
    try:
        algorithm = build(chosen)
        found = versions("ray", "torch", "gymnasium", "numpy")
        clock = Clock(chosen.warm_steps, options.ops, found, reply)
        env_steps = 0
        while not clock.step(
            env_steps, max(0, env_steps - chosen.learning_starts) // chosen.update_interval
        ):
            result = algorithm.train()
            env_steps = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
    finally:
        ray.shutdown()
