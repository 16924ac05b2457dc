# SPDX-License-Identifier: MIT
"""How actors explore. Every number is a function of (seed, actor, number of draws).

So the whole state of an exploration is the number of its draws, and a resumed run goes on with the
same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.replay import LinearSchedule

BLOCK = 1024
"""Draws made at a time."""
_UNIFORM, _NORMAL = 0, 1


class Exploration(ABC):
    """Chooses the actions of one actor.

    Attributes:
        draws: Calls of `act` so far.
    """

    draws = 0

    @abstractmethod
    def act(self, store: Any, obs: NDArray[Any], before: int, out: NDArray[Any]) -> None:
        """Writes one action an environment into `out`.

        Args:
            store: The newest weights.
            obs: Observations [N, width].
            before: Env steps of the run before this one.
            out: int64 [N], or float32 [N, width] in [-1, 1].
        """

    def restore(self, draws: int) -> None:
        """Goes on after `draws` calls of `act`."""
        self.draws = draws


class Draws:
    """Random numbers by position, made a block at a time.

    Args:
        seed: Seed of the run.
        actor: Number of the actor.
        stream: Sets numbers for one purpose apart from those for another.
        make: Draws the numbers of `BLOCK` positions.
    """

    def __init__(
        self, seed: int, actor: int, stream: int, make: Callable[[np.random.Generator], Any]
    ) -> None:
        self._key = np.array([seed, actor], np.uint64)
        self._stream, self._make = stream, make
        self._block = -1
        self._values: Any = None

    def block(self, draw: int) -> Any:
        """What `make` returned for the block that holds position `draw`."""
        if draw // BLOCK != self._block:
            self._block = draw // BLOCK
            counter = np.array([0, 0, self._stream, self._block], np.uint64)
            self._values = self._make(
                np.random.Generator(np.random.Philox(key=self._key, counter=counter))
            )
        return self._values


class EpsilonGreedy(Exploration):
    """Uniformly random discrete actions now and then.

    Args:
        policy: `act_into(store, obs, out)` writes greedy actions.
        seed: Seed of the run.
        actor: Number of the actor.
        count: N, environments of the actor.
        actions: Number of actions.
        epsilon: Share of random actions by env step.
    """

    def __init__(
        self,
        policy: Any,
        seed: int,
        actor: int,
        count: int,
        actions: int,
        epsilon: Callable[[int], float],
    ) -> None:
        shape = (BLOCK, count)
        self._policy, self._epsilon = policy, epsilon
        self._draws = Draws(
            seed,
            actor,
            _UNIFORM,
            lambda g: (g.random(shape, np.float32), g.integers(actions, size=shape)),
        )

    def act(self, store: Any, obs: NDArray[Any], before: int, out: NDArray[Any]) -> None:
        """Writes one action an environment into `out`, int64 [N]; see `Exploration`."""
        uniform, actions = self._draws.block(self.draws)
        at = self.draws % BLOCK
        self.draws += 1
        explore = uniform[at] < self._epsilon(before)
        if not explore.all():
            self._policy.act_into(store, obs, out)
        np.copyto(out, actions[at], where=explore)


class _Continuous(Exploration):
    """Uniformly random actions up to a certain env step, then those of a subclass.

    Args:
        policy: See the subclasses.
        seed: Seed of the run.
        actor: Number of the actor.
        count: N, environments of the actor.
        width: Numbers of an action.
        starts: Env steps of the run that are taken at random.
    """

    def __init__(
        self, policy: Any, seed: int, actor: int, count: int, width: int, starts: int
    ) -> None:
        shape = (BLOCK, count, width)
        self._policy, self._starts = policy, starts
        self._uniform = Draws(
            seed, actor, _UNIFORM, lambda g: g.uniform(-1.0, 1.0, shape).astype(np.float32)
        )
        self._normal = Draws(
            seed, actor, _NORMAL, lambda g: g.standard_normal(shape, dtype=np.float32)
        )

    def act(self, store: Any, obs: NDArray[Any], before: int, out: NDArray[Any]) -> None:
        """Writes one action an environment into `out`, float32 [N, width]; see `Exploration`."""
        at = self.draws
        self.draws += 1
        if before < self._starts:
            out[...] = self._uniform.block(at)[at % BLOCK]
        else:
            self._explore(store, obs, self._normal.block(at)[at % BLOCK], out)

    @abstractmethod
    def _explore(
        self, store: Any, obs: NDArray[Any], noise: NDArray[np.float32], out: NDArray[Any]
    ) -> None: ...


class GaussianNoise(_Continuous):
    """The policy's action plus normal noise, clipped to [-1, 1].

    Args:
        policy: `act_into(store, obs, out)` writes actions.
        seed: Seed of the run.
        actor: Number of the actor.
        count: N, environments of the actor.
        width: Numbers of an action.
        starts: Env steps of the run that are taken at random.
        sigma: Standard deviation of the noise.
    """

    def __init__(
        self,
        policy: Any,
        seed: int,
        actor: int,
        count: int,
        width: int,
        starts: int,
        sigma: float,
    ) -> None:
        super().__init__(policy, seed, actor, count, width, starts)
        self._sigma = np.float32(sigma)

    def _explore(
        self, store: Any, obs: NDArray[Any], noise: NDArray[np.float32], out: NDArray[Any]
    ) -> None:
        self._policy.act_into(store, obs, out)
        out += self._sigma * noise
        np.maximum(out, -1.0, out=out)
        np.minimum(out, 1.0, out=out)


class PolicyNoise(_Continuous):
    """The actions that the policy itself draws.

    Args:
        policy: `act_into(store, obs, out, role="sample", noise=noise)` writes actions made from
            standard normal numbers, float32 [N, width].
        seed: Seed of the run.
        actor: Number of the actor.
        count: N, environments of the actor.
        width: Numbers of an action.
        starts: Env steps of the run that are taken at random.
    """

    def _explore(
        self, store: Any, obs: NDArray[Any], noise: NDArray[np.float32], out: NDArray[Any]
    ) -> None:
        self._policy.act_into(store, obs, out, role="sample", noise=noise)


def make(
    kind: str,
    policy: Any,
    *,
    seed: int,
    actor: int,
    count: int,
    actions: int,
    epsilon: LinearSchedule,
    starts: int,
    sigma: float,
) -> Exploration:
    """The exploration of one actor.

    Args:
        kind: `Built.exploration`.
        policy: What acts.
        seed: Seed of the run.
        actor: Number of the actor.
        count: N, environments of the actor.
        actions: Number of discrete actions, or numbers of a continuous one.
        epsilon: Share of random discrete actions by env step.
        starts: Env steps of the run whose continuous actions are random.
        sigma: Standard deviation of the noise on continuous actions.
    """
    if kind == "epsilon":
        return EpsilonGreedy(policy, seed, actor, count, actions, epsilon)
    if kind == "gaussian":
        return GaussianNoise(policy, seed, actor, count, actions, starts, sigma)
    return PolicyNoise(policy, seed, actor, count, actions, starts)
