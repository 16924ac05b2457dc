# SPDX-License-Identifier: MIT
"""Settings of a run that depend on the algorithm: TrainConfig field to value, for each of ours.

Known without PyTorch, so that `--help` can show them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DQN: Mapping[str, Any] = {
    "hidden": (256, 256),
    "learning_rate": 5e-4,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "huber": True,
    "max_grad_norm": 10.0,
    "target_tau": 0.005,
    "target_update_interval": 1,
    "prioritized": True,
}

#: Those of the original papers' successors: Adam at 1e-3, no clipping, uniform noise of 0.1.
DDPG: Mapping[str, Any] = {
    **DQN,
    "learning_rate": 1e-3,
    "batch_size": 256,
    "huber": False,
    "max_grad_norm": 0.0,
    "exploration_noise": 0.1,
}

TD3: Mapping[str, Any] = {
    **DDPG,
    "policy_delay": 2,
    "target_noise": 0.2,
    "target_noise_clip": 0.5,
}

SAC: Mapping[str, Any] = {
    **DQN,
    "learning_rate": 3e-4,
    "batch_size": 256,
    "huber": False,
    "max_grad_norm": 0.0,
    "initial_temperature": 1.0,
    "autotune": True,
}
