# SPDX-License-Identifier: MIT
"""Actors: they act with the newest weights, step their environments and fill the replay."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from copal.algorithms import Columns
from copal.envs import Environments
from copal.errors import ConfigError
from copal.runtime.control import Control, StepBudget
from copal.runtime.exploration import Exploration

TIMED_EVERY = 17
"""One step in so many is timed: a prime, so that no rhythm of the gate always falls on it."""


@dataclass
class StageTimes:
    """Seconds by stage over the steps of an actor that were timed, its environments together."""

    steps: int = 0
    """Steps of the actor that were timed."""
    gate_s: float = 0.0
    """Waiting for the gate."""
    inference_s: float = 0.0
    """Choosing actions."""
    env_s: float = 0.0
    """Environments, resets included."""
    insert_s: float = 0.0
    """Writing into the replay, and telling the gate."""

    def as_metrics(self) -> dict[str, float]:
        """For the record of metrics."""
        return {
            "timed_steps": self.steps,
            "gate_s": self.gate_s,
            "inference_s": self.inference_s,
            "env_s": self.env_s,
            "insert_s": self.insert_s,
        }


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
        self.times = StageTimes()
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

    def attach(self, shared: Shared) -> None:
        """Works for other parts from its next step on; its thread must not run."""
        self._shared = shared

    def step(self, before: int, *, timed: bool = False) -> None:
        """Takes the N env steps that were claimed and acquired.

        Args:
            before: Env steps of the run before these.
            timed: Add what each stage takes to `times`.

        Raises:
            EnvironmentFailedError: An environment failed three times in a row.
        """
        shared, environments = self._shared, self.environments
        began = perf_counter() if timed else 0.0
        self.exploration.act(shared.store, self._obs, before, self._actions)
        acted = perf_counter() if timed else 0.0
        environments.step(self._actions)
        stepped = perf_counter() if timed else 0.0
        if environments.any_lost:
            self._add_what_is_left()
        else:
            shared.replay.add(**self._row, stream=self._streams)
            shared.gate.inserted(environments.count)
        added = perf_counter() if timed else 0.0
        environments.advance()
        if timed:
            times = self.times
            times.steps += 1
            times.inference_s += acted - began
            times.env_s += stepped - acted + perf_counter() - added
            times.insert_s += added - stepped

    def run(self) -> None:
        """The loop of an actor thread; ends when the budget is spent or the gate closes."""
        shared, n = self._shared, self.environments.count
        claim, acquire, control = shared.budget.claim, shared.gate.acquire_steps, shared.control
        turn = 0
        try:
            while True:
                if control.hold and not control.park():
                    break
                before = claim(n)
                if before < 0:
                    break
                turn += 1
                timed = turn % TIMED_EVERY == 0
                asked = perf_counter() if timed else 0.0
                if not acquire(n):
                    shared.budget.refund(n)
                    break
                if timed:
                    self.times.gate_s += perf_counter() - asked
                self.step(before, timed=timed)
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


def total(actors: Iterable[Actor]) -> StageTimes:
    """The sums over several actors."""
    summed = StageTimes()
    for times in (actor.times for actor in actors):
        summed.steps += times.steps
        summed.gate_s += times.gate_s
        summed.inference_s += times.inference_s
        summed.env_s += times.env_s
        summed.insert_s += times.insert_s
    return summed


def threads(actors: list[Actor]) -> list[threading.Thread]:
    """A daemon thread for each actor, to be started."""
    return [
        threading.Thread(target=actor.run, name=f"actor-{i}", daemon=True)
        for i, actor in enumerate(actors)
    ]


def start(threads: list[threading.Thread]) -> None:
    """Starts the threads of actors.

    Raises:
        ConfigError: The system has not so many left; those before have started.
    """
    for i, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError as e:
            expected = f"at most {i}, the threads that the system has left"
            hint = "fewer actors, or a higher limit: `ulimit -u`"
            raise ConfigError("actors", expected, f"{len(threads)}: {e}", hint) from e


def join(threads: list[threading.Thread], timeout_s: float) -> None:
    """Waits for those that were started; for each so many seconds at most."""
    for thread in threads:
        if thread.is_alive():
            thread.join(timeout_s)
