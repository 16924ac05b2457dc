# SPDX-License-Identifier: MIT
"""Actors: they act with the newest weights, step their environments and fill the replay."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from copal.algorithms import Columns
from copal.envs import Environments
from copal.runtime.control import Control, StepBudget
from copal.runtime.exploration import Exploration


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
    control: Control
    """Flags of the main thread."""


class Actor:
    """One set of environments with its exploration.

    Args:
        index: Number of the actor.
        environments: What it steps.
        exploration: Chooses its actions.
        columns: Column name to (shape, dtype), as the replay has them.
        shared: What it shares with the others.
    """

    def __init__(
        self,
        index: int,
        environments: Environments,
        exploration: Exploration,
        columns: Columns,
        shared: Shared,
    ) -> None:
        self.environments = environments
        self.exploration = exploration
        self.error: BaseException | None = None
        self._shared = shared
        n = environments.count
        self._streams = np.arange(index * n, (index + 1) * n)
        self._actions = environments.actions.buffer(n)
        # Views of arrays that the environments allocated once, as policy and replay want them.
        self._obs = environments.obs.reshape(n, -1)
        shape, _ = columns["obs"]
        self._row = {
            "obs": environments.obs.reshape(n, *shape),
            "action": self._actions,
            "reward": environments.reward,
            "next_obs": environments.next_obs.reshape(n, *shape),
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
        self.exploration.act(shared.store, self._obs, before, self._actions)
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
