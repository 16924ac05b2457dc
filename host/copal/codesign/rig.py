# SPDX-License-Identifier: MIT
"""The parts of a run, made to run for a while: some actors, some learners, or both at once.

These are the parts that train, `copal.runtime`'s actors, gate, replay and learner loops; only the
gate is opened on both sides, so that nobody waits, or set to a ratio.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from copal.backends import registry
from copal.backends.base import Learner, LearnerState
from copal.codesign.stages import stages_between
from copal.config import BACKEND_SETTINGS, TrainConfig
from copal.errors import LearnerFailedError
from copal.native import native
from copal.replay import LinearSchedule
from copal.runtime import actors, loops, session
from copal.runtime.control import NEVER, Control, StepBudget
from copal.runtime.settings import known, settled

WARM_S = 0.2
"""Seconds that pass, and are not counted, before a measurement."""
PATIENCE_S = 60.0
"""Longest wait for the first step or update, and for a thread to end."""
FEWEST = 3
"""Updates that a measurement waits for, however slow they are."""
FILL_ROWS = 100_000
"""Rows of the replay while it is measured, or all of a smaller one."""
FILL_S = 4.0
"""Longest time that actors fill the replay; what is missing then are copies of their rows."""
_FREE = 2**40
_BLOCK = 4096


@dataclass(frozen=True)
class Sample:
    """What ran in a window of time."""

    env_steps_per_s: float
    """0 without actors."""
    updates_per_s: float
    """0 without learners."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of each stage, an env step or an update; see `stages_between`."""


class Rig:
    """Actors, a filled replay, and learners of any backend.

    Args:
        config: Settings of the run; `actors` is the most that can be run.
        backend: What is captured and checked for; the learners may be of others.

    Raises:
        ConfigError: A setting does not fit the environment or the algorithm.
        BackendUnavailableError: The backend cannot be used here.
    """

    def __init__(self, config: TrainConfig, backend: str) -> None:
        plain = {**config.to_dict(), **dict.fromkeys(BACKEND_SETTINGS)}
        self.config = settled(
            TrainConfig.from_dict({**plain, "backend": backend, "learners": 1, "out": None})
        )
        self._parts = session.build(self.config, Control(config.actors), None)
        self.built = self._parts.built
        self.replay = self._parts.replay
        self._initial = LearnerState.initial(self.built.update, self.built.parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the environments."""
        self._parts.close()

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return known(self.config.batch_size)

    def learner(
        self, backend: str, learners: int = 1, *, batch_size: int = 0, **options: Any
    ) -> Learner:
        """A learner of `backend` at its initial state.

        Args:
            backend: Its name.
            learners: Parallel learners.
            batch_size: Rows of a batch; 0: those of the run.
            **options: Of the backend: `device`, `lanes`, `clock_mhz`.

        Raises:
            BackendUnavailableError: The backend cannot be used here, or lacks an operation.
        """
        shared = learners if self.config.learner_mode == "sync" else 1
        return registry.learner(
            registry.require(backend, **options),
            self.built,
            self._initial,
            batch_size=batch_size or self.batch_size,
            learners=shared,
        )

    def fill(self, rows: int = FILL_ROWS, seconds: float = FILL_S) -> None:
        """Fills the replay by acting; copies rows where that takes longer than `seconds`."""
        wanted = min(rows, self.replay.capacity)
        limit = time.perf_counter() + seconds

        def filled() -> bool:
            return len(self.replay) >= wanted or time.perf_counter() >= limit

        self._run(self.config.actors, None, free_gate(), lambda _: _wait(filled, seconds + 1))
        if self.config.n_step > 1 or self.config.share_next_obs:
            return
        while 0 < len(self.replay) < wanted:
            n = min(_BLOCK, wanted - len(self.replay))
            batch = self.replay.sample(n, beta=0.0)
            self.replay.add(**{name: batch[name] for name in self.built.columns})

    def measure(
        self,
        actors: int,
        learner: Learner | None,
        learners: int,
        seconds: float,
        *,
        gate: Any = None,
    ) -> Sample:
        """Lets them run, warms up, and counts for so many seconds.

        Args:
            actors: Actor threads; 0: none.
            learner: What updates; None: nothing.
            learners: Its parallel learners.
            seconds: Length of the window; longer where there are fewer than `FEWEST` updates.
            gate: Holds the ratio; None: nobody waits.

        Raises:
            EnvironmentFailedError: An environment failed three times in a row.
            LearnerFailedError: A value became NaN or infinite, or nothing happens.
        """
        found: list[Sample] = []

        def watch(count: Callable[[], _Counts]) -> None:
            first = count()
            _wait(lambda: _moved(first, count(), actors, learner, 1), PATIENCE_S)
            time.sleep(min(WARM_S, seconds))
            before = count()
            time.sleep(seconds)
            _wait(lambda: _moved(before, count(), actors, learner, FEWEST), PATIENCE_S)
            found.append(between(before, count(), self.config.num_envs))

        if learner is not None:
            learner.load_state(self._initial)
        loop_gate = free_gate() if gate is None else gate
        loop = None if learner is None else self._loop(learner, learners, loop_gate)
        self._run(actors, loop, loop_gate, watch)
        return found[0]

    def gate(self, actors: int, update_interval: float) -> Any:
        """A gate that holds the ratio, with a run's slack."""
        slack = session.SLACK_STEPS * actors * self.config.num_envs
        return native.RatioGate(update_interval, 0, slack)

    def _loop(self, learner: Learner, learners: int, gate: Any) -> loops.Loop:
        asynchronous = self.config.learner_mode == "async" and self.config.backend == "cpu"
        return loops.make(
            learner,
            self.replay,
            gate,
            self._parts.store,
            acting=[network.name for network in self.built.update.policy.networks],
            batch_size=self.batch_size,
            beta=LinearSchedule(self.config.beta_start, self.config.beta_end, _FREE),
            async_learners=learners if asynchronous else 0,
        )

    def _run(
        self,
        count: int,
        loop: loops.Loop | None,
        gate: Any,
        watch: Callable[[Callable[[], _Counts]], None],
    ) -> None:
        """Starts threads, calls `watch` with what counts, and ends the threads."""
        control = Control(count)
        # So late in a run exploration is over, and no action is random for want of learning.
        budget = StepBudget(NEVER, _FREE, control.wake)
        shared = actors.Shared(self.replay, gate, budget, self._parts.store, control)
        chosen = self._parts.actors[:count]
        for actor in chosen:
            actor.attach(shared)
        threads = actors.threads(chosen)
        try:
            actors.start(threads)
            if loop is not None:
                loop.start()
            watch(lambda: _count(gate, loop, chosen))
        finally:
            control.dismiss()
            gate.close()
            if loop is not None:
                loop.stop()
            actors.join(threads, PATIENCE_S)
        for actor in chosen:
            actor.environments.finished.clear()
            if actor.error is not None:
                raise actor.error
        if loop is not None:
            loop.raise_if_failed()


@dataclass(frozen=True)
class _Counts:
    at: float
    env_steps: int
    updates: int
    figures: Mapping[str, Any]


def free_gate() -> Any:
    """A gate at which neither actors nor learners ever wait."""
    gate = native.RatioGate(1.0, 0, 2 * _FREE)
    gate.set_counters(_FREE, 0)
    return gate


def _count(gate: Any, loop: loops.Loop | None, chosen: list[actors.Actor]) -> _Counts:
    for actor in chosen:
        if actor.error is not None:
            raise actor.error
    learning: dict[str, Any] = {}
    if loop is not None:
        loop.raise_if_failed()
        learning = loop.metrics()
    figures = {**actors.total(chosen).as_metrics(), **learning}
    updates = 0 if loop is None else loop.updates
    return _Counts(time.perf_counter(), int(gate.counters()["inserted"]), updates, figures)


def _moved(before: _Counts, now: _Counts, count: int, learner: Learner | None, fewest: int) -> bool:
    acted = not count or now.env_steps > before.env_steps
    return acted and (learner is None or now.updates >= before.updates + fewest)


def _wait(reached: Callable[[], bool], timeout_s: float) -> None:
    limit = time.perf_counter() + timeout_s
    while not reached():
        if time.perf_counter() > limit:
            expected = f"a step and an update within {timeout_s:g} s"
            raise LearnerFailedError("profile", expected, "none", "is the machine very busy?")
        time.sleep(0.005)


def between(before: _Counts, after: _Counts, num_envs: int) -> Sample:
    """Rates and stages of a window."""
    seconds = after.at - before.at
    updates = after.updates - before.updates
    return Sample(
        (after.env_steps - before.env_steps) / seconds,
        updates / seconds,
        stages_between(before.figures, after.figures, num_envs, updates),
    )


def wake_us(times: int = 31) -> float:
    """Microseconds from the gate's signal until an actor that slept goes on; the median."""
    gate = native.RatioGate(1.0, 0, 1)
    woken, spent = threading.Event(), []
    signalled = 0.0

    def sleeper() -> None:
        while gate.acquire_steps(1):
            spent.append((time.perf_counter() - signalled) * 1e6)
            woken.set()

    thread = threading.Thread(target=sleeper, daemon=True)
    thread.start()
    try:
        for _ in range(times):
            time.sleep(0.001)  # until it sleeps
            woken.clear()
            signalled = time.perf_counter()
            gate.complete_update()
            woken.wait(1.0)
    finally:
        gate.close()
        thread.join(PATIENCE_S)
    # The gate lets two steps pass before anybody sleeps.
    return statistics.median(spent[2:]) if len(spent) > 2 else 0.0
