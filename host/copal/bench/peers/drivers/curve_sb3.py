# SPDX-License-Identifier: MIT
"""Stable-Baselines3's SAC: its learning curve over environment steps, not its speed."""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

from .curve import head, parser
from .protocol import Reply, versions


class CurveCallback(BaseCallback):  # type: ignore[misc, unused-ignore]
    """Scores the policy every so many steps and replies with a row each time."""

    def __init__(self, options: argparse.Namespace, reply: Reply) -> None:
        super().__init__()
        self.options, self.reply = options, reply
        self.env = gymnasium.make(options.env)
        self.began_s = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps % self.options.eval_interval == 0:
            returns = [self._episode(i) for i in range(self.options.eval_episodes)]
            self.reply(
                {
                    "op": "curve",
                    "seed": self.options.seed,
                    "env_steps": self.num_timesteps,
                    "mean_return": float(np.mean(returns)),
                    "std": float(np.std(returns)),
                    "wall_s": time.perf_counter() - self.began_s,
                }
            )
        return True

    def _episode(self, number: int) -> float:
        obs, _ = self.env.reset(seed=10_000 + number)
        total, ended = 0.0, False
        while not ended:
            action, _ = self.model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = self.env.step(action)
            total += float(reward)
            ended = terminated or truncated
        return total


def main(arguments: list[str], reply: Reply) -> None:
    """Trains once and replies with the curve."""
    options = parser(__doc__).parse_args(arguments)
    torch.set_num_threads(options.threads)
    model = SAC(
        "MlpPolicy",
        options.env,
        learning_rate=options.learning_rate,
        buffer_size=options.buffer_size,
        learning_starts=options.learning_starts,
        batch_size=options.batch_size,
        tau=options.target_tau,
        gamma=options.gamma,
        train_freq=1,
        gradient_steps=1,
        ent_coef="auto",
        policy_kwargs={"net_arch": list(options.hidden)},
        device="cpu",
        seed=options.seed,
    )
    reply(head(options, versions("stable-baselines3", "torch", "gymnasium", "mujoco")))
    model.learn(options.steps, callback=CurveCallback(options, reply))
