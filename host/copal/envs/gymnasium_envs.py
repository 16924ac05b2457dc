# SPDX-License-Identifier: MIT
"""Gymnasium environments in a plain loop: for a few of them faster than its vector classes."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from copal.config import LARGEST_FLOAT32
from copal.envs import mujoco_warnings
from copal.envs.base import Environments, Episode, Replacement
from copal.errors import ConfigError, EnvironmentFailedError, UnknownNameError

FAILURES_IN_A_ROW = 3
"""Failures without a successful step in between that stop the run."""
NOT_FINITE = "NaN, or a number that float32 turns into infinity"
RECORDED_ACTIONS = 100_000
"""Longest episode, in steps, whose actions are kept to reproduce it."""

_ALE = (
    "Atari games come with ale-py, which is not installed or not imported (then give "
    "`ale_py:ALE/...`)"
)
_EXTRA = "pip install 'copal-rl[{}]'"
_FLAT = "observations that can be flattened to a vector of fixed size"


def make_one(env_id: str, frame_stack: int = 1) -> Any:
    """One environment whose observations are a Box.

    Args:
        env_id: What `gymnasium.make` takes.
        frame_stack: Newest observations that make one, along a new first axis; 1: no such axis.

    Raises:
        UnknownNameError: No such id; the near matches are listed.
        ConfigError: It needs a package that is not installed, its constructor raises, or its
            observations have no fixed size.
    """
    mujoco_warnings.redirect(env_id)
    try:
        with warnings.catch_warnings():
            # MuJoCo's bindings and Gymnasium disagree about what is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            env = gymnasium.make(env_id, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as e:
        raise _missing(env_id, e) from e
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as e:
        if env_id.startswith("ALE/"):
            raise UnknownNameError("env", "a known name", f"`{env_id}`", _ALE) from e
        raise UnknownNameError.of("env", env_id, gymnasium.registry.keys()) from e
    except Exception as e:
        got = f"`{env_id}` ({type(e).__name__}: {e})"
        raise ConfigError("env", "an id that Gymnasium can make", got) from e
    if not isinstance(env.observation_space, gymnasium.spaces.Box):
        env = _flattened(env)
    return env if frame_stack == 1 else gymnasium.wrappers.FrameStackObservation(env, frame_stack)


def _missing(env_id: str, error: Exception) -> ConfigError:
    """Names the extra of copal that has the missing package; Gymnasium's own words if none has."""
    for package, extra in (("MuJoCo", "mujoco"), ("Box2D", "envs"), ("pygame", "envs")):
        if f"{package} is not installed".lower() in str(error).lower():
            got = f"`{env_id}`, which needs {package}"
            return ConfigError("env", "its packages installed", got, _EXTRA.format(extra))
    return ConfigError("env", "its packages installed", f"`{env_id}`: {error}")


def _flattened(env: Any) -> Any:
    space = env.observation_space
    try:
        env = gymnasium.wrappers.FlattenObservation(env)
    except (NotImplementedError, ValueError, TypeError) as e:
        raise ConfigError("observation_space", _FLAT, f"{space} ({e})") from e
    if not isinstance(env.observation_space, gymnasium.spaces.Box):
        raise ConfigError("observation_space", _FLAT, str(space), "wrap the environment")
    return env


class GymnasiumEnvironments(Environments):
    """N environments made by `gymnasium.make`.

    Each episode has a seed of its own, derived from (seed, stream, episode), so that an episode in
    progress can be reproduced from that number and its actions.

    Args:
        env_id: What `gymnasium.make` takes.
        count: N.
        seed: Seed of the run.
        first_stream: Stream of the first environment; the others follow.
        frame_stack: Newest observations that make one; see `make_one`.
    """

    def __init__(
        self, env_id: str, count: int, *, seed: int, first_stream: int = 0, frame_stack: int = 1
    ) -> None:
        self._id, self._seed, self._first = env_id, seed, first_stream
        self._stack = frame_stack
        self._envs = [make_one(env_id, frame_stack) for _ in range(count)]
        one = self._envs[0]
        super().__init__(count, one.observation_space, one.action_space)
        self._box = self.actions.kind == "box"
        self._floats = self.obs.dtype != np.uint8
        # 0 * x sums to 0 only if every x is finite: the cheapest test of a short vector.
        self._zeros = np.zeros(self.obs[0].size, np.float32)
        self._flat_next = self.next_obs.reshape(count, -1)
        self._episode = [-1] * count
        self._actions: list[list[Any]] = [[] for _ in range(count)]
        self._total = [0.0] * count
        self._length = [0] * count
        self._failures = [0] * count
        self._ended: list[int] = []
        for i in range(count):
            self._begin(i)
        np.copyto(self.obs, self.next_obs)

    def step(self, actions: NDArray[Any]) -> None:
        """Steps every environment; one that fails is replaced and marked in `lost`."""
        if self.any_lost:
            self.lost[:] = False
            self.any_lost = False
        sent = self.scale(actions)
        for i, action in enumerate(sent if self._box else sent.tolist()):
            self._step_or_replace(i, action)

    def _step_or_replace(self, i: int, action: Any) -> None:
        try:
            self._step_one(i, action)
        except Exception as e:  # noqa: BLE001 - whatever user code raises
            self._fail(i, e)
            self.lost[i] = self.any_lost = True
            self.terminated[i] = self.truncated[i] = False
            self._begin(i)

    def _step_one(self, i: int, action: Any) -> None:
        # A copy: what the environment does with its action must not change what is repeated.
        kept = action.copy() if self._box else action
        obs, reward, terminated, truncated, _ = self._envs[i].step(action)
        reward = float(reward)
        self._take(i, obs, reward)
        self.reward[i] = reward
        self.terminated[i] = terminated
        self.truncated[i] = truncated
        self._failures[i] = 0
        self._total[i] += reward
        self._length[i] += 1
        if self._length[i] <= RECORDED_ACTIONS:
            self._actions[i].append(kept)
        if terminated or truncated:
            self._ended.append(i)
            self.finished.append(Episode(self._total[i], self._length[i]))

    def _take(self, i: int, obs: Any, reward: float) -> None:
        self.next_obs[i] = obs
        fine = not self._floats or self._flat_next[i].dot(self._zeros) == 0.0
        if not (fine and abs(reward) <= LARGEST_FLOAT32):
            raise ValueError(f"the environment returned {NOT_FINITE}")

    def advance(self) -> None:
        """Begins new episodes where one ended and makes `next_obs` the current observations."""
        if self._ended:
            for i in self._ended:
                self._begin(i)
            self._ended.clear()
        np.copyto(self.obs, self.next_obs)

    def _begin(self, i: int) -> None:
        while True:
            self._episode[i] += 1
            self._actions[i] = []
            self._total[i], self._length[i] = 0.0, 0
            try:
                obs, _ = self._envs[i].reset(seed=self._episode_seed(i))
                self._take(i, obs, 0.0)
            except Exception as e:  # noqa: BLE001 - whatever user code raises
                self._fail(i, e)
            else:
                return

    def _episode_seed(self, i: int) -> int:
        words = (self._seed, self._first + i, self._episode[i])
        return int(np.random.SeedSequence(words).generate_state(1)[0])

    def _fail(self, i: int, cause: Exception) -> None:
        self._failures[i] += 1
        if self._failures[i] >= FAILURES_IN_A_ROW:
            raise EnvironmentFailedError(
                "env",
                f"a successful step of `{self._id}` within {FAILURES_IN_A_ROW} instances",
                f"{type(cause).__name__}: {cause}",
                "the last checkpoint is intact; fix the environment and use --resume",
            ) from cause
        self.restarts += 1
        self.replaced.append(Replacement(i, f"{type(cause).__name__}: {cause}"))
        with contextlib.suppress(Exception):
            self._envs[i].close()
        self._envs[i] = make_one(self._id, self._stack)

    def state(self) -> list[dict[str, Any]]:
        """Episode number, actions so far as they were sent, and current observation of each."""
        whole = [n <= RECORDED_ACTIONS for n in self._length]
        return [
            {
                "episode": self._episode[i],
                "actions": np.asarray(self._actions[i]).tolist() if whole[i] else None,
                "obs": self.obs[i].tolist(),
            }
            for i in range(self.count)
        ]

    def restore(self, states: list[dict[str, Any]]) -> list[int]:
        """Replays each episode in progress and compares where it leads with what was stored."""
        changed = [i for i, state in enumerate(states) if not self._restore_one(i, state)]
        for i in changed:
            self._episode[i] = int(states[i]["episode"])
            self._begin(i)
        self.finished.clear()
        self._ended.clear()
        np.copyto(self.obs, self.next_obs)
        return changed

    def _restore_one(self, i: int, state: dict[str, Any]) -> bool:
        if state["actions"] is None:
            return False
        self._episode[i] = int(state["episode"]) - 1
        self._begin(i)
        if self._episode[i] != state["episode"]:
            return False
        try:
            for action in state["actions"]:
                self._step_one(i, np.asarray(action, self.actions.dtype) if self._box else action)
        except Exception:  # noqa: BLE001 - whatever user code raises
            return False
        stored = np.asarray(state["obs"], self.obs.dtype)
        ended = bool(state["actions"]) and bool(self.terminated[i] or self.truncated[i])
        return not ended and np.array_equal(stored, self.next_obs[i])

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()
