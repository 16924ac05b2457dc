# SPDX-License-Identifier: MIT
"""Stable-Baselines3's DQN or SAC; its replay is uniform, it has no prioritized one."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.callbacks import BaseCallback

from .protocol import Reply, versions
from .training import Clock, Settings, parser, settings

NEVER_STEPS = 10**8


class ClockCallback(BaseCallback):  # type: ignore[misc, unused-ignore]
    """Hands each step to the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def _on_step(self) -> bool:
        updates = self.model._n_updates  # noqa: SLF001 - counted nowhere else
        return not self.clock.step(self.num_timesteps, updates)


def build(chosen: Settings) -> Any:
    """The agent; SAC learns its temperature."""
    shared: dict[str, Any] = {
        "learning_rate": chosen.learning_rate,
        "buffer_size": chosen.buffer_size,
        "learning_starts": chosen.learning_starts,
        "batch_size": chosen.batch_size,
        "tau": chosen.target_tau,
        "gamma": chosen.gamma,
        "train_freq": chosen.update_interval,
        "gradient_steps": 1,
        "target_update_interval": chosen.target_update_interval,
        "policy_kwargs": {"net_arch": list(chosen.hidden)},
        "device": "cpu",
        "seed": chosen.seed,
    }
    if chosen.algo == "sac":
        return SAC("MlpPolicy", chosen.env, ent_coef="auto", **shared)
    return DQN(
        "MlpPolicy",
        chosen.env,
        exploration_fraction=chosen.epsilon_steps / NEVER_STEPS,
        exploration_final_eps=chosen.epsilon_end,
        **shared,
    )


def main(arguments: list[str], reply: Reply) -> None:
    """Measures Stable-Baselines3's rate."""
    options = parser(__doc__).parse_args(arguments)
    chosen = settings(options)
    torch.set_num_threads(chosen.threads)
    model = build(chosen)
    found = versions("stable-baselines3", "torch", "gymnasium", "numpy")
    clock = Clock(chosen.warm_steps, options.ops, found, reply)
    model.learn(NEVER_STEPS, callback=ClockCallback(clock))
