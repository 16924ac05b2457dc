# SPDX-License-Identifier: MIT
"""Actors: they act with the newest weights, step their environments and fill the replay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.envs import Environments
from copal.runtime.control import Control, StepBudget

BLOCK = 1024
"""Random numbers drawn at a time."""


class Exploration:
    """Epsilon-greedy noise from (seed, actor, number of draws): its whole state is that number.

    Args:
        seed: Seed of the run.
        actor: Number of the actor.
        count: Environments of the actor.
        actions: Number of actions.
    """

    def __init__(self, seed: int, actor: int, count: int, actions: int) -> None:
        self._key = np.array([seed, actor], np.uint64)
        self._count, self._actions = count, actions
        self.draws = 0
        self._fill(0)

    def next(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Uniform numbers in [0, 1) and random actions, one of each an environment."""
        at = self.draws % BLOCK
        if at == 0 and self.draws:
            self._fill(self.draws // BLOCK)
        self.draws += 1
        return self._uniform[at], self._action[at]

    def restore(self, draws: int) -> None:
        """Goes on after `draws` calls of `next`."""
        self.draws = draws
        self._fill(draws // BLOCK)

    def _fill(self, block: int) -> None:
        counter = np.array([0, 0, 0, block], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=self._key, counter=counter))
        shape = (BLOCK, self._count)
        self._uniform = generator.random(shape, np.float32)
        self._action = generator.integers(self._actions, size=shape)


@dataclass(frozen=True)
class Shared:
    """What all actors of a run share."""

    replay: Any
    """Where transitions go."""
    gate: Any
    """Holds the ratio of steps to updates."""
    budget: StepBudget
    """Steps left."""
    store: Any
    """The newest weights."""
    epsilon: Callable[[int], float]
    """Share of random actions by env step."""
    control: Control
    """Flags of the main thread."""


class Actor:
    """One set of environments with its exploration.

    Args:
        index: Number of the actor.
        environments: What it steps.
        policy: `act_into(store, obs, actions)` writes greedy actions, int64 [N].
        exploration: Its noise.
        shared: What it shares with the others.
    """

    def __init__(
        self,
        index: int,
        environments: Environments,
        policy: Any,
        exploration: Exploration,
        shared: Shared,
    ) -> None:
        self.environments = environments
        self.exploration = exploration
        self.error: BaseException | None = None
        self._policy, self._shared = policy, shared
        n = environments.count
        self._streams = np.arange(index * n, (index + 1) * n)
        self._actions = np.zeros(n, np.int64)
        # Views of arrays that the environments allocated once, as the replay wants them.
        self._obs = environments.obs.reshape(n, -1)
        self._row = {
            "obs": self._obs,
            "action": self._actions,
            "reward": environments.reward,
            "next_obs": environments.next_obs.reshape(n, -1),
            "terminated": environments.terminated,
            "truncated": environments.truncated,
        }

    def step(self, before: int) -> None:
        """Takes the N env steps that were claimed and acquired.

        Args:
            before: Env steps of the run before these.

        Raises:
            EnvironmentFailedError: An environment failed three times in a row.
        """
        shared, environments = self._shared, self.environments
        uniform, actions = self.exploration.next()
        explore = uniform < shared.epsilon(before)
        if not explore.all():
            self._policy.act_into(shared.store, self._obs, self._actions)
        np.copyto(self._actions, actions, where=explore)
        environments.step(self._actions)
        if environments.any_lost:
            self._add_what_is_left()
        else:
            shared.replay.add(**self._row, stream=self._streams)
            shared.gate.inserted(environments.count)
        environments.advance()

    def run(self) -> None:
        """The loop of an actor thread; ends when the budget is spent or the gate closes."""
        shared, n = self._shared, self.environments.count
        claim, acquire, control = shared.budget.claim, shared.gate.acquire_steps, shared.control
        try:
            while True:
                if control.hold and not control.park():
                    break
                before = claim(n)
                if before < 0:
                    break
                if not acquire(n):
                    shared.budget.refund(n)
                    break
                self.step(before)
        except BaseException as e:  # noqa: BLE001 - the main thread raises it again
            self.error = e
        finally:
            control.leave()

    def replaced(self) -> Iterator[tuple[int, str]]:
        """Takes out (stream, reason) of each environment that was replaced since the last call."""
        waiting = self.environments.replaced
        while waiting:
            one = waiting.popleft()
            yield int(self._streams[one.number]), one.reason

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON values."""
        return {
            "draws": self.exploration.draws,
            "restarts": self.environments.restarts,
            "environments": self.environments.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> list[int]:
        """Goes on from `state()`.

        Returns:
            Streams whose episode could not be reproduced; they were cut.
        """
        self.exploration.restore(int(state["draws"]))
        changed = self.environments.restore(list(state["environments"]))
        self.environments.restarts = int(state["restarts"])
        streams = [int(self._streams[i]) for i in changed]
        for stream in streams:
            self._shared.replay.end_episode(stream)
        return streams

    def _add_what_is_left(self) -> None:
        shared = self._shared
        kept = ~self.environments.lost
        lost = int(self.environments.lost.sum())
        if kept.any():
            row = {name: np.ascontiguousarray(column[kept]) for name, column in self._row.items()}
            shared.replay.add(**row, stream=np.ascontiguousarray(self._streams[kept]))
            shared.gate.inserted(int(kept.sum()))
        for stream in self._streams[self.environments.lost]:
            shared.replay.end_episode(int(stream))
        shared.gate.cancel_steps(lost)
        shared.budget.refund(lost)


def start(actors: list[Actor]) -> list[threading.Thread]:
    """Starts a daemon thread for each actor."""
    threads = [
        threading.Thread(target=actor.run, name=f"actor-{i}", daemon=True)
        for i, actor in enumerate(actors)
    ]
    for thread in threads:
        thread.start()
    return threads
