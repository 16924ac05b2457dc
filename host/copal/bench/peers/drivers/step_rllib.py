# SPDX-License-Identifier: MIT
"""RLlib's `training_step` of double DQN, all in this process, with its buffer or copal's parts.

RLlib's step cannot be taken apart, so only the whole `step` is measured.
"""

from __future__ import annotations

import logging
import os
from typing import Any

os.environ["RAY_usage_stats_enabled"] = "0"  # noqa: SIM112 - Ray spells it so

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from . import step
from .protocol import Reply, versions

OBJECT_STORE_BYTES = 200 * 2**20
EPISODE_STEPS = 200


def build(chosen: step.Settings) -> Any:
    """The algorithm, with one update a step of the environment."""
    config_class, buffer = DQNConfig, "PrioritizedEpisodeReplayBuffer"
    if chosen.parts != "own":
        from copal.adapters import rllib as ours

        buffer = "copal.adapters.rllib.PrioritizedEpisodeReplayBuffer"
        config_class = ours.DQNConfig if chosen.parts == "dqn" else DQNConfig
    model = DefaultModelConfig(
        fcnet_hiddens=list(chosen.hidden), fcnet_activation="relu", head_fcnet_hiddens=[]
    )
    config = (
        config_class()
        .environment(chosen.env)
        .env_runners(num_env_runners=0, rollout_fragment_length=chosen.n_step)
        .training(
            lr=step.LEARNING_RATE,
            gamma=step.GAMMA,
            double_q=True,
            dueling=False,
            n_step=chosen.n_step,
            train_batch_size_per_learner=chosen.batch_size,
            training_intensity=chosen.batch_size / chosen.n_step,
            num_steps_sampled_before_learning_starts=0,
            target_network_update_freq=step.TARGET_INTERVAL,
            epsilon=0.05,
            replay_buffer_config={
                "type": buffer,
                "capacity": chosen.rows,
                "alpha": step.ALPHA,
                "beta": step.BETA,
            },
        )
        .rl_module(model_config=model)
        .learners(num_learners=0)
        .debugging(seed=1, log_level="ERROR")
    )
    return config.build_algo()


def fill(buffer: Any, chosen: step.Settings) -> None:
    """Fills the buffer with episodes of random play."""
    played = step.play(chosen.env, EPISODE_STEPS)
    env = gymnasium.make(chosen.env)
    for number in range(chosen.rows // EPISODE_STEPS):
        episode = SingleAgentEpisode(
            id_=f"played-{number}",
            observations=[*played["obs"], played["next_obs"][-1]],
            observation_space=env.observation_space,
            actions=list(played["action"]),
            action_space=env.action_space,
            rewards=[float(reward) for reward in played["reward"]],
            terminated=True,
            len_lookback_buffer=0,
        )
        buffer.add([episode])


def main(arguments: list[str], reply: Reply) -> None:
    """Measures RLlib's training step."""
    chosen, ops = step.settings(arguments, __doc__)
    logging.disable(logging.WARNING)
    torch.set_num_threads(chosen.threads)
    np.random.seed(1)
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
    )
    try:
        algorithm = build(chosen)
        fill(algorithm.local_replay_buffer, chosen)
        algorithm.train()
        found = versions("ray", "torch", "numpy")
        step.answer({"step": algorithm.training_step}, ops, found, reply)
    finally:
        ray.shutdown()
