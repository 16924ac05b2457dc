# SPDX-License-Identifier: MIT
"""Prioritized replay for Stable-Baselines3, and a DQN that uses its weights.

    model = copal.adapters.sb3.DQN("MlpPolicy", "CartPole-v1", n_steps=3)

The buffer also serves SB3's own algorithms (`replay_buffer_class=PrioritizedReplayBuffer`). These
give no TD errors back, so every row keeps the priority it came with and draws are uniform.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from copal.adapters._peer import require
from copal.errors import ConfigError, EmptyReplayError

require("stable_baselines3", "stable-baselines3", "2.9")

import torch
from gymnasium import spaces
from stable_baselines3 import DQN as PeerDQN
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.buffers import ReplayBuffer as PeerBuffer
from torch.nn import functional as F

from copal.adapters._state import pack, unpack
from copal.replay import Batch, PrioritizedReplay

__all__ = ["DQN", "PrioritizedReplayBuffer", "Samples"]


class Samples(NamedTuple):
    """SB3's `ReplayBufferSamples` with importance weights."""

    observations: torch.Tensor
    """[rows, *obs]."""
    actions: torch.Tensor
    """[rows, actions]."""
    next_observations: torch.Tensor
    """[rows, *obs], n steps later."""
    dones: torch.Tensor
    """float32 [rows, 1]; 1 where the episode terminated, 0 at a time limit."""
    rewards: torch.Tensor
    """float32 [rows, 1], summed over n steps."""
    discounts: torch.Tensor | None
    """float32 [rows, 1], gamma^k for k rewards summed; None for single steps."""
    weights: torch.Tensor
    """float32 [rows, 1]."""


class PrioritizedReplayBuffer(PeerBuffer):
    """Rows drawn by priority (Schaul et al. 2016), in the place of SB3's `ReplayBuffer`.

    Args:
        buffer_size: Rows of all environments together.
        observation_space: Anything but a dictionary.
        action_space: As the policy acts.
        device: Where samples go.
        n_envs: Environments.
        optimize_memory_usage: Store an observation once and not also as its predecessor's next.
        handle_timeout_termination: Bootstrap at time limits.
        n_steps: Rewards summed into a row.
        gamma: Discount a step, for `n_steps` above 1.
        alpha: Exponent of priorities, 0 (uniform) to 1.
        beta: Exponent of importance weights at first, 0 to 1.
        eps: Added to |TD error|.
        seed: Seed of the draws.

    Raises:
        ConfigError: A value is out of range, or observations are a dictionary.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-6,
        seed: int = 0,
    ) -> None:
        if isinstance(observation_space, spaces.Dict):
            hint = "flatten them with gymnasium.wrappers.FlattenObservation"
            raise ConfigError("observation_space", "one array", "a dictionary", hint)
        if not 0 <= beta <= 1:
            raise ConfigError("beta", "a number in [0, 1]", f"{beta:g}")
        BaseBuffer.__init__(
            self, buffer_size, observation_space, action_space, device, n_envs=n_envs
        )
        self.beta, self.n_steps = beta, n_steps
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._streams = np.arange(n_envs)
        obs = (tuple(self.obs_shape), observation_space.dtype)
        action = ((self.action_dim,), self._maybe_cast_dtype(action_space.dtype))
        self._settings: dict[str, Any] = {
            "capacity": buffer_size,
            "columns": {
                "obs": obs,
                "action": action,
                "reward": ((), "float32"),
                "next_obs": obs,
                "terminated": ((), "bool"),
                "truncated": ((), "bool"),
            },
            "alpha": alpha,
            "eps": eps,
            "n_step": n_steps,
            "gamma": gamma,
            "share_next_obs": optimize_memory_usage,
            "seed": seed,
        }
        self._replay = PrioritizedReplay(**self._settings)
        self._drawn: Batch | None = None

    @property
    def replay(self) -> PrioritizedReplay:
        """The buffer behind it."""
        return self._replay

    def size(self) -> int:
        """Rows held, of all environments together."""
        return len(self._replay)

    def reset(self) -> None:
        """Drops all rows."""
        super().reset()
        if hasattr(self, "_settings"):
            self._replay, self._drawn = PrioritizedReplay(**self._settings), None

    def add(
        self,
        obs: NDArray[Any],
        next_obs: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Adds a step of every environment.

        Args:
            obs: [n_envs, *obs].
            next_obs: [n_envs, *obs], the last one of the episode where it ended.
            action: [n_envs, *action].
            reward: [n_envs].
            done: [n_envs].
            infos: `TimeLimit.truncated` of each tells a time limit from a termination.
        """
        rows, columns = self.n_envs, self._settings["columns"]
        obs_type = columns["obs"][1]
        cut = np.zeros(rows, bool)
        if self.handle_timeout_termination:
            cut[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        ended = np.asarray(done, bool).reshape(rows)
        self._replay.add(
            obs=np.asarray(obs, obs_type).reshape(rows, *self.obs_shape),
            action=np.asarray(action, columns["action"][1]).reshape(rows, self.action_dim),
            reward=np.asarray(reward, np.float32).reshape(rows),
            next_obs=np.asarray(next_obs, obs_type).reshape(rows, *self.obs_shape),
            terminated=ended & ~cut,
            truncated=ended & cut,
            stream=self._streams,
        )
        self.pos = self._replay.next_id % self.buffer_size
        self.full = self._replay.next_id >= self.buffer_size

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """Draws rows by priority.

        Args:
            batch_size: Rows.
            env: A `VecNormalize` whose statistics normalise observations and rewards.

        Returns:
            The rows; `update_priorities` refers to them until the next call.

        Raises:
            EmptyReplayError: There are none.
        """
        batch = self._drawn = self._replay.sample(batch_size, self.beta)
        return Samples(
            observations=self._tensor(self._normalize_obs(batch["obs"], env)),
            actions=self._tensor(batch["action"]),
            next_observations=self._tensor(self._normalize_obs(batch["next_obs"], env)),
            dones=self._tensor(batch["terminated"].astype(np.float32)[:, None]),
            rewards=self._tensor(self._normalize_reward(batch["reward"][:, None], env)),
            discounts=self._tensor(batch["discount"][:, None]) if self.n_steps > 1 else None,
            weights=self._tensor(batch.weights[:, None]),
        )

    def update_priorities(self, td_error: torch.Tensor | NDArray[Any]) -> int:
        """Sets the priorities of the rows that were sampled last.

        Args:
            td_error: Of any sign, [rows] or [rows, 1].

        Returns:
            Rows that were overwritten meanwhile.

        Raises:
            EmptyReplayError: Nothing was sampled yet.
            PriorityError: A value is NaN or infinite.
        """
        if self._drawn is None:
            raise EmptyReplayError("td_error", "a sample before it", "none", "call sample first")
        if isinstance(td_error, torch.Tensor):
            td_error = td_error.detach().cpu().numpy()
        return self._replay.update_priorities(self._drawn.ids, td_error.reshape(-1))

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_replay": pack(self._replay), "_drawn": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._replay = unpack(state["_replay"])


class DQN(PeerDQN):
    """SB3's DQN with prioritized replay: weighted loss, and TD errors as new priorities.

    Arguments are SB3's, with these on top. `n_steps` and `gamma` reach the buffer by themselves.

    Args:
        *args: As SB3's DQN.
        beta_final: Exponent of the importance weights at the end of training, to which it rises
            in a straight line from the buffer's `beta`.
        **kwargs: As SB3's DQN. `replay_buffer_kwargs` takes `alpha`, `beta` and `eps`.

    Raises:
        ConfigError: `replay_buffer_class` is another buffer, or a value is out of range.
    """

    def __init__(self, *args: Any, beta_final: float = 1.0, **kwargs: Any) -> None:
        buffer = kwargs.setdefault("replay_buffer_class", PrioritizedReplayBuffer)
        if not issubclass(buffer or PrioritizedReplayBuffer, PrioritizedReplayBuffer):
            raise ConfigError("replay_buffer_class", "PrioritizedReplayBuffer", buffer.__name__)
        if not 0 <= beta_final <= 1:
            raise ConfigError("beta_final", "a number in [0, 1]", f"{beta_final:g}")
        kwargs["replay_buffer_class"] = buffer or PrioritizedReplayBuffer
        self.beta_final = beta_final
        self.beta_start: float | None = None
        kwargs["replay_buffer_kwargs"] = dict(kwargs.get("replay_buffer_kwargs") or {})
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        steps = getattr(self, "n_steps", 1)
        for name, value in (("n_steps", steps), ("gamma", self.gamma)):
            self.replay_buffer_kwargs.setdefault(name, value)
        self.n_steps = 1  # a class of our own would be warned that it gets no n_steps
        super()._setup_model()
        self.n_steps = steps

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Takes `gradient_steps` steps of Adam on the weighted Huber loss."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        self._anneal_beta()
        losses = []
        for _ in range(gradient_steps):
            data = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            target = self._target(data)
            chosen = self.q_net(data.observations).gather(1, data.actions.long())
            loss = (data.weights * F.smooth_l1_loss(chosen, target, reduction="none")).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            self.replay_buffer.update_priorities(target - chosen)
            losses.append(loss.item())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        self.logger.record("train/beta", self.replay_buffer.beta)

    @torch.no_grad()
    def _target(self, data: Samples) -> torch.Tensor:
        discount = self.gamma if data.discounts is None else data.discounts
        value = self.q_net_target(data.next_observations).amax(dim=1, keepdim=True)
        target: torch.Tensor = data.rewards + (1 - data.dones) * discount * value
        return target

    def _anneal_beta(self) -> None:
        buffer = self.replay_buffer
        if self.beta_start is None:
            self.beta_start = buffer.beta
        done = 1.0 - self._current_progress_remaining
        beta = self.beta_start + (self.beta_final - self.beta_start) * done
        buffer.beta = float(np.clip(beta, 0.0, 1.0))
