# SPDX-License-Identifier: MIT
"""A lean single-file DQN in the style of CleanRL: torch eager, fused Adam, a NumPy ring.

Without `--solve` it answers requests for its rate. With it, each request `{"op": "solve",
"n": seed}` is a training run of at most `--steps` steps; it keeps the best policy of periodic
evaluations, and the row tells that policy's score on fresh seeds.
"""

from __future__ import annotations

import copy
import random
import time
from collections import deque
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from .protocol import Reply, requests, versions
from .training import Clock, Settings, parser, settings

EVAL_SEED, CONFIRM_SEED, FINAL_SEED = 1_000_000, 2_000_000, 3_000_000


def network(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Dense layers with ReLU between."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = []
    for i, width in enumerate(hidden):
        layers += [nn.Linear(widths[i], width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


class Ring:
    """Uniform replay; a row's discount is 0 where the episode terminated.

    Args:
        capacity: Rows.
        obs_size: Numbers of an observation.
        action_size: Numbers of a continuous action; None: actions are integers.
    """

    def __init__(self, capacity: int, obs_size: int, action_size: int | None = None) -> None:
        actions: NDArray[Any] = np.zeros(capacity, np.int64)
        if action_size is not None:
            actions = np.zeros((capacity, action_size), np.float32)
        self.columns: tuple[NDArray[Any], ...] = (
            np.zeros((capacity, obs_size), np.float32),
            actions,
            np.zeros(capacity, np.float32),
            np.zeros((capacity, obs_size), np.float32),
            np.zeros(capacity, np.float32),
        )
        self.capacity, self.cursor, self.filled = capacity, 0, 0

    def add(self, *row: Any) -> None:
        """Writes one row over the oldest."""
        for column, value in zip(self.columns, row, strict=True):
            column[self.cursor] = value
        self.cursor = (self.cursor + 1) % self.capacity
        self.filled = min(self.filled + 1, self.capacity)

    def sample(self, n: int) -> list[Tensor]:
        """N rows, drawn uniformly."""
        rows = np.random.randint(0, self.filled, n)
        return [torch.from_numpy(column[rows]) for column in self.columns]


class Learner:
    """Online and target network, and one update of DQN or double DQN."""

    def __init__(self, inputs: int, outputs: int, chosen: Settings) -> None:
        self.settings = chosen
        self.online = network(inputs, chosen.hidden, outputs)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(
            self.online.parameters(), chosen.learning_rate, fused=True
        )
        self.updates = 0

    @torch.no_grad()
    def act(self, obs: NDArray[np.float32]) -> int:
        """Greedy action of one observation [8]."""
        return int(self.online(torch.from_numpy(obs[None])).argmax(1))

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, discount: Tensor
    ) -> None:
        """One gradient step on a batch [B]."""
        chosen = self.settings
        with torch.no_grad():
            value = self.target(next_obs)
            if chosen.double:
                best = self.online(next_obs).argmax(1, keepdim=True)
                bootstrap = value.gather(1, best).squeeze(1)
            else:
                bootstrap = value.max(1).values
            wanted = reward + discount * bootstrap
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, wanted)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if chosen.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.online.parameters(), chosen.max_grad_norm)
        self.optimizer.step()
        self.updates += 1
        if self.updates % chosen.target_update_interval == 0:
            self.average()

    @torch.no_grad()
    def average(self) -> None:
        """Moves the target network towards the online one."""
        pairs = zip(self.target.parameters(), self.online.parameters(), strict=True)
        for slow, fast in pairs:
            slow.lerp_(fast, self.settings.target_tau)


class Run:
    """One environment, one learner; `step` is one environment step and the update that is due."""

    def __init__(self, chosen: Settings) -> None:
        torch.set_num_threads(chosen.threads)
        torch.manual_seed(chosen.seed)
        np.random.seed(chosen.seed)
        random.seed(chosen.seed)
        self.settings = chosen
        self.env = gymnasium.make(chosen.env)
        self.env.action_space.seed(chosen.seed)
        inputs = int(self.env.observation_space.shape[0])  # type: ignore[index]
        self.learner = Learner(inputs, int(self.env.action_space.n), chosen)  # type: ignore[attr-defined]
        self.ring = Ring(chosen.buffer_size, inputs)
        self.window: deque[tuple[Any, int, float]] = deque()
        self.obs, _ = self.env.reset(seed=chosen.seed)
        self.steps = 0

    def step(self) -> None:
        """Acts, stores what came of it, and learns when an update is due."""
        chosen = self.settings
        self.steps += 1
        random_action = self.steps <= chosen.learning_starts or random.random() < chosen.epsilon(
            self.steps
        )
        action = int(
            self.env.action_space.sample() if random_action else self.learner.act(self.obs)
        )
        next_obs, reward, terminated, truncated, _ = self.env.step(action)
        self.window.append((self.obs, action, float(reward)))
        if len(self.window) == chosen.n_step or terminated or truncated:
            self._store(next_obs, terminated, everything=terminated or truncated)
        self.obs = next_obs
        if terminated or truncated:
            self.obs, _ = self.env.reset()
        if self.steps > chosen.learning_starts and self.steps % chosen.update_interval == 0:
            self.learner.update(*self.ring.sample(chosen.batch_size))

    def _store(self, next_obs: Any, terminated: bool, everything: bool) -> None:
        while self.window:
            gamma, total = 1.0, 0.0
            for _, _, reward in self.window:
                total += gamma * reward
                gamma *= self.settings.gamma
            obs, action, _ = self.window.popleft()
            self.ring.add(obs, action, total, next_obs, 0.0 if terminated else gamma)
            if not everything:
                return


def evaluate(online: nn.Module, env_id: str, episodes: int, seed: int) -> float:
    """Mean return of greedy episodes, all played side by side, with seeds from `seed` on."""
    envs = [gymnasium.make(env_id) for _ in range(episodes)]
    obs = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    returns, alive = np.zeros(episodes), list(range(episodes))
    while alive:
        with torch.no_grad():
            actions = online(torch.from_numpy(np.stack([obs[i] for i in alive]))).argmax(1).tolist()
        playing = []
        for i, action in zip(alive, actions, strict=True):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            if not (terminated or truncated):
                playing.append(i)
        alive = playing
    for env in envs:
        env.close()
    return float(returns.mean())


class Best:
    """The best policy of the periodic evaluations."""

    def __init__(self, online: nn.Module) -> None:
        self.network, self.mean_return, self.step = copy.deepcopy(online), -np.inf, 0

    def offer(self, online: nn.Module, mean_return: float, step: int) -> None:
        """Keeps a policy if it is better than the one held."""
        if mean_return > self.mean_return:
            self.network.load_state_dict(online.state_dict())
            self.mean_return, self.step = mean_return, step


def solve(chosen: Settings, options: Any) -> dict[str, Any]:
    """Trains and evaluates; returns the row."""
    start_s, eval_s = time.perf_counter(), 0.0
    run = Run(chosen)
    best = Best(run.learner.online)
    while run.steps < options.steps:
        run.step()
        if run.steps % options.eval_interval:
            continue
        began_s = time.perf_counter()
        online = run.learner.online
        score = evaluate(online, chosen.env, options.eval_episodes, EVAL_SEED + run.steps)
        best.offer(online, score, run.steps)
        passed = options.stop_at_return is not None and score >= options.stop_at_return
        if passed:
            seed = CONFIRM_SEED + run.steps
            confirmed = evaluate(online, chosen.env, options.final_eval_episodes, seed)
            passed = confirmed >= options.stop_at_return
        eval_s += time.perf_counter() - began_s
        if passed:
            best.offer(online, np.inf, run.steps)
            break
    train_s = time.perf_counter() - start_s
    final = evaluate(best.network, chosen.env, options.final_eval_episodes, FINAL_SEED)
    return {
        "op": "solve",
        "n": chosen.seed,
        "mean_return": final,
        "best_step": best.step,
        "env_steps": run.steps,
        "updates": run.learner.updates,
        "wall_s": train_s,
        "eval_s": eval_s,
    }


def main(arguments: list[str], reply: Reply) -> None:
    """Measures the loop's rate, or trains to a score."""
    top = parser(__doc__)
    top.add_argument("--solve", action="store_true")
    top.add_argument("--steps", type=int, default=200_000)
    top.add_argument("--eval-interval", type=int, default=10_000)
    top.add_argument("--eval-episodes", type=int, default=10)
    top.add_argument("--final-eval-episodes", type=int, default=100)
    top.add_argument("--stop-at-return", type=float)
    options = top.parse_args(arguments)
    chosen, found = settings(options), versions("torch", "gymnasium", "numpy")
    if options.solve:
        reply({"ready": True, "versions": found})
        for request in requests(options.ops):
            reply(solve(replace(chosen, seed=int(request["n"])), options))
        return
    run = Run(chosen)
    clock = Clock(chosen.warm_steps, options.ops, found, reply)
    while not clock.step(run.steps, run.learner.updates):
        run.step()
