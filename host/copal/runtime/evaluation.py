# SPDX-License-Identifier: MIT
"""Greedy episodes on seeds of their own, several at a time so that inference is batched."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from copal import envs
from copal.bounds import MOST_EPISODES, at_most, check_count
from copal.envs.gymnasium_envs import FAILURES_IN_A_ROW, NOT_FINITE, make_one
from copal.errors import ConfigError, EnvironmentFailedError
from copal.runtime.policy import Policy, PolicyFacts, check_kind

PARALLEL = 16
"""Environments stepped together; the executor works on blocks of 16 rows."""
LONGEST_EPISODE = 100_000
"""Steps after which an episode counts as it stands: without a time limit it might never end."""


@dataclass(frozen=True)
class Score:
    """Returns of an evaluation."""

    returns: tuple[float, ...]
    """Undiscounted return of each episode."""
    mean: float
    """Their mean."""
    std: float
    """Their standard deviation."""
    mean_length: float
    """Mean steps of an episode."""

    @classmethod
    def of(cls, returns: list[float], lengths: list[int]) -> Score:
        """The score of episodes with these returns and lengths."""
        values = np.asarray(returns, np.float64)
        mean_length = float(np.mean(lengths))
        return cls(tuple(values.tolist()), float(values.mean()), float(values.std()), mean_length)


class Interrupted(Exception):  # noqa: N818 - not an error, a request
    """The evaluation was asked to stop."""


def evaluate(
    directory: Path | str | Policy,
    episodes: int = 20,
    seed: int = 10_000,
    *,
    algo: str | None = None,
    env: str | None = None,
) -> Score:
    """Scores a policy.

    Args:
        directory: Run folder, policy folder, or the policy itself.
        episodes: Episodes to play greedily.
        seed: Seed of the first episode; the others follow.
        algo: Algorithm that the policy has to be of; None: any.
        env: Environment that the policy has to be for; None: any.

    Raises:
        CheckpointError: There is no policy, or one of another algorithm or environment.
        ConfigError: `episodes` is below 1 or `seed` below 0; the environment's spaces are not those
            that the policy was trained on; `directory` is something else.
        EnvironmentFailedError: An episode fails three times.
    """
    if isinstance(directory, Policy):
        check_kind(directory.facts.to_dict(), algo=algo, env=env)
        return play(directory, episodes, seed)
    if not isinstance(directory, str | os.PathLike):
        raise ConfigError(
            "directory",
            "the folder of a run or a copal.Policy",
            repr(directory),
            "of what `copal.train` returned, `result.best` is the policy and `result.out` the "
            "folder",
        )
    return play(Policy.load(directory, algo=algo, env=env), episodes, seed)


def play(
    policy: Policy, episodes: int, seed: int, *, stop: Callable[[], bool] = lambda: False
) -> Score:
    """Plays whole episodes, each begun one counted, so that short ones are not preferred.

    Args:
        policy: What acts; its facts name the environment.
        episodes: How many.
        seed: Seed of the first episode; the others follow.
        stop: Asked between steps.

    Raises:
        ConfigError: `episodes` is below 1 or `seed` below 0; the environment's spaces are not those
            that the policy was trained on.
        EnvironmentFailedError: An episode fails three times.
        Interrupted: `stop` said so.
    """
    check_count("episodes", episodes, at_most(MOST_EPISODES))
    if seed < 0:
        raise ConfigError("seed", "at least 0", str(seed))
    with contextlib.ExitStack() as closing:
        if policy.facts.vectorization == "envpool":
            count = min(PARALLEL, episodes)
            pool = envs.make(policy.facts.env, count, seed=seed, vectorization="envpool")
            closing.callback(pool.close)
            _check_spaces(policy.facts, pool.observation_space, pool.actions)
            return _play_pool(policy, pool, episodes, stop)
        slots = [_Slot(policy) for _ in range(min(PARALLEL, episodes))]
        for slot in slots:
            closing.callback(slot.close)
        return _play_slots(policy, slots, range(seed, seed + episodes), stop)


def _check_spaces(facts: PolicyFacts, observations: Any, actions: envs.Actions) -> None:
    """Refuses an environment with other spaces than the one that the policy was trained in.

    Raises:
        ConfigError: The shape of its observations or the kind or shape of its actions is another.
    """
    if observations.shape != facts.obs_shape:
        raise ConfigError(
            "env",
            f"observations of shape {facts.obs_shape}, which the policy was trained on",
            f"shape {observations.shape} from `{facts.env}`",
            "the environment has changed, or the policy is of another one",
        )
    wanted, found = ((a.kind, a.count, a.shape) for a in (facts.actions, actions))
    if found != wanted:
        raise ConfigError(
            "env",
            f"actions as the policy was trained on: {facts.actions}",
            f"{actions} from `{facts.env}`",
            "the environment has changed, or the policy is of another one",
        )


def _play_slots(
    policy: Policy, slots: list[_Slot], seeds: range, stop: Callable[[], bool]
) -> Score:
    """Each slot takes the next seed as soon as its episode has ended."""
    left = iter(seeds)
    for slot in slots:
        slot.begin(left)
    obs = np.zeros((len(slots), int(np.prod(policy.facts.obs_shape))), np.float32)
    returns, lengths = [0.0] * len(seeds), [0] * len(seeds)
    while slots:
        if stop():
            raise Interrupted
        for row, slot in zip(obs, slots, strict=False):
            row[:] = slot.obs
        actions = policy.scale(policy.actions(obs[: len(slots)]))
        if actions.ndim == 1:
            actions = actions.tolist()
        ended = [slot for slot, a in zip(slots, actions, strict=True) if slot.step(a)]
        for slot in ended:
            at = slot.seed - seeds.start
            returns[at], lengths[at] = slot.total, slot.length
            if not slot.begin(left):
                slots.remove(slot)
    return Score.of(returns, lengths)


class _Slot:
    """One environment that plays episode after episode; a failure begins the episode again."""

    def __init__(self, policy: Policy) -> None:
        self._id, self._stack = policy.facts.env, policy.facts.frame_stack
        self._env = make_one(self._id, self._stack)
        try:
            actions = envs.Actions.of(self._env.action_space)
            _check_spaces(policy.facts, self._env.observation_space, actions)
        except ConfigError:
            self.close()
            raise
        self._width = int(np.prod(policy.facts.obs_shape))
        self.seed = 0
        self._failures = 0
        self.obs: Any = None
        self.total, self.length = 0.0, 0

    def begin(self, seeds: Iterator[int]) -> bool:
        """Begins the next episode; False if there is none left."""
        seed = next(seeds, None)
        if seed is None:
            return False
        # Counted by episode: one that fails at the same step each time would never end.
        self.seed, self._failures = seed, 0
        self._reset()
        return True

    def step(self, action: Any) -> bool:
        """Takes one step; True if the episode ended with it."""
        try:
            obs, reward, terminated, truncated, _ = self._env.step(action)
            reward = float(reward)
            self._take(obs, reward)
        except Exception as e:  # noqa: BLE001 - whatever user code raises
            self._replace(e)
            self._reset()
            return False
        self.total += reward
        self.length += 1
        return bool(terminated or truncated) or self.length >= LONGEST_EPISODE

    def close(self) -> None:
        """Frees the environment."""
        with contextlib.suppress(Exception):
            self._env.close()

    def _reset(self) -> None:
        while True:
            try:
                obs, _ = self._env.reset(seed=self.seed)
                self._take(obs, 0.0)
            except Exception as e:  # noqa: BLE001 - whatever user code raises
                self._replace(e)
            else:
                self.total, self.length = 0.0, 0
                return

    def _take(self, obs: Any, reward: float) -> None:
        flat = np.ravel(obs)
        if flat.size != self._width:
            raise ValueError(f"the environment returned {flat.size} numbers, not {self._width}")
        if not (np.isfinite(flat).all() and math.isfinite(reward)):
            raise ValueError(f"the environment returned {NOT_FINITE}")
        self.obs = flat

    def _replace(self, cause: Exception) -> None:
        self._failures += 1
        if self._failures >= FAILURES_IN_A_ROW:
            raise EnvironmentFailedError(
                "env",
                f"an episode of `{self._id}` that plays to its end",
                f"{type(cause).__name__}: {cause}",
            ) from cause
        self.close()
        self._env = make_one(self._id, self._stack)


def _play_pool(
    policy: Policy, pool: envs.Environments, episodes: int, stop: Callable[[], bool]
) -> Score:
    """Each environment of a pool plays its share; what it plays beyond that is not counted."""
    count = pool.count
    share = [episodes // count + (i < episodes % count) for i in range(count)]
    total, length = np.zeros(count), np.zeros(count, np.int64)
    returns: list[float] = []
    lengths: list[int] = []
    flat = pool.obs.reshape(count, -1)
    while any(share):
        if stop():
            raise Interrupted
        pool.step(policy.actions(flat))
        total += pool.reward
        length += 1
        for i in np.flatnonzero(pool.terminated | pool.truncated | (length >= LONGEST_EPISODE)):
            if share[i]:
                share[i] -= 1
                returns.append(float(total[i]))
                lengths.append(int(length[i]))
            total[i], length[i] = 0.0, 0
        pool.advance()
    return Score.of(returns, lengths)
