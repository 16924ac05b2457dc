# SPDX-License-Identifier: MIT
"""A training step of Stable-Baselines3's DQN: its own, uniform, or copal's prioritized one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnv

from . import step
from .protocol import Reply, versions


def build(chosen: step.Settings) -> Any:
    """The model, with a full buffer."""
    model_class = DQN
    if chosen.parts != "own":
        from copal.adapters import sb3 as ours

        model_class = ours.DQN
    model = model_class(
        "MlpPolicy",
        chosen.env,
        learning_rate=step.LEARNING_RATE,
        buffer_size=chosen.rows,
        learning_starts=0,
        batch_size=chosen.batch_size,
        gamma=step.GAMMA,
        train_freq=1,
        n_steps=chosen.n_step,
        target_update_interval=step.TARGET_INTERVAL,
        policy_kwargs={"net_arch": list(chosen.hidden)},
        seed=1,
        device="cpu",
    )
    model.set_logger(configure(None, []))
    played = step.play(chosen.env, 10_000)
    done = np.logical_or(played["terminated"], played["truncated"])
    for row in range(chosen.rows):
        one = slice(row % 10_000, row % 10_000 + 1)
        infos = [{"TimeLimit.truncated": bool(played["truncated"][one][0])}]
        obs, after = played["obs"][one], played["next_obs"][one]
        action, reward = played["action"][one], played["reward"][one]
        model.replay_buffer.add(obs, after, action, reward, done[one], infos)
    return model


def main(arguments: list[str], reply: Reply) -> None:
    """Measures the training step of Stable-Baselines3."""
    chosen, ops = step.settings(arguments, __doc__)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(chosen.threads)
    model = build(chosen)
    _, callback = model._setup_learn(10**9)  # noqa: SLF001 - what `learn` begins with
    env: VecEnv = model.env

    def update() -> None:
        model.train(1, chosen.batch_size)

    def whole() -> None:
        model.collect_rollouts(
            env, callback, model.train_freq, model.replay_buffer, learning_starts=0
        )
        update()

    found = versions("stable-baselines3", "torch", "numpy")
    step.answer({"update": update, "step": whole}, ops, found, reply)
