# SPDX-License-Identifier: MIT
"""A training step of TorchRL's double DQN loss, with its prioritized sampler or copal's parts."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, OneHot, PrioritizedSampler, TensorDictReplayBuffer
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate

from . import step
from .protocol import Reply, versions

PART = 10_000


def rows(played: dict[str, Any], actions: int) -> TensorDict:
    """Played steps as TorchRL's losses read them."""
    one = {name: torch.from_numpy(np.asarray(values)) for name, values in played.items()}
    action = torch.nn.functional.one_hot(one["action"], actions)
    return TensorDict(
        {
            "observation": one["obs"],
            "action": action,
            ("next", "observation"): one["next_obs"],
            ("next", "reward"): one["reward"][:, None],
            ("next", "done"): (one["terminated"] | one["truncated"])[:, None],
            ("next", "terminated"): one["terminated"][:, None],
        },
        [len(action)],
    )


def build_buffer(chosen: step.Settings, actions: int) -> Any:
    """A full buffer with random priorities."""
    sampler_class, storage_class = PrioritizedSampler, LazyTensorStorage
    if chosen.parts != "own":
        from copal.adapters import torchrl as ours

        sampler_class = ours.PrioritizedSampler
        storage_class = ours.Storage if chosen.parts == "storage" else LazyTensorStorage
    buffer = TensorDictReplayBuffer(
        storage=storage_class(chosen.rows),
        sampler=sampler_class(chosen.rows, alpha=step.ALPHA, beta=step.BETA),
        batch_size=chosen.batch_size,
        priority_key="td_error",
    )
    part = rows(step.play(chosen.env, PART), actions)
    for _ in range(-(-chosen.rows // PART)):
        buffer.extend(part.clone())
    buffer.update_priority(torch.arange(chosen.rows), torch.rand(chosen.rows))
    return buffer


class Trainer:
    """DQN of TorchRL's parts, as its examples put them together.

    Args:
        chosen: The settings.
    """

    def __init__(self, chosen: step.Settings) -> None:
        self._env = gymnasium.make(chosen.env)
        self._actions = int(self._env.action_space.n)  # type: ignore[attr-defined]
        self._net = MLP(
            in_features=int(self._env.observation_space.shape[0]),  # type: ignore[index]
            out_features=self._actions,
            num_cells=list(chosen.hidden),
            activation_class=torch.nn.ReLU,
        )
        actor = QValueActor(
            TensorDictModule(self._net, ["observation"], ["action_value"]),
            in_keys=["observation"],
            spec=OneHot(self._actions),
        )
        self._loss = DQNLoss(
            actor, action_space="one_hot", delay_value=True, double_dqn=True, reduction="none"
        )
        self._loss.make_value_estimator(gamma=step.GAMMA)
        self._target = HardUpdate(self._loss, value_network_update_interval=step.TARGET_INTERVAL)
        self._adam = torch.optim.Adam(self._loss.parameters(), step.LEARNING_RATE)
        self._buffer = build_buffer(chosen, self._actions)
        self._obs = self._env.reset(seed=1)[0]

    def update(self) -> None:
        """Draws a batch, learns from it, sets its priorities."""
        batch = self._buffer.sample()
        loss = (self._loss(batch)["loss"] * batch["priority_weight"]).mean()
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
        self._target.step()
        self._buffer.update_tensordict_priority(batch)

    def step(self) -> None:
        """The same after a step of the environment."""
        with torch.no_grad():
            action = int(self._net(torch.from_numpy(self._obs)).argmax())
        after, reward, terminated, truncated, _ = self._env.step(action)
        names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
        values = (self._obs, action, np.float32(reward), after, terminated, truncated)
        played = {n: np.asarray(v)[None] for n, v in zip(names, values, strict=True)}
        self._buffer.extend(rows(played, self._actions))
        self._obs = self._env.reset()[0] if terminated or truncated else after
        self.update()


def main(arguments: list[str], reply: Reply) -> None:
    """Measures TorchRL's training step."""
    chosen, ops = step.settings(arguments, __doc__)
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    torch.set_num_threads(chosen.threads)
    trainer = Trainer(chosen)
    found = versions("torchrl", "tensordict", "torch", "numpy")
    step.answer({"update": trainer.update, "step": trainer.step}, ops, found, reply)
