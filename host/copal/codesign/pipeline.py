# SPDX-License-Identifier: MIT
"""The pipeline on paper: actors, the ratio gate and learners as queues, event by event.

    actors (x_a threads)  --rows-->  gate (slack, half-slack wakes)  --due updates-->  learners

An actor takes so long a step and a learner so long an update when the other side sleeps, and longer
by a factor when it works, since both share caches, memory, the interpreter's lock or the cores. Who
is ahead of the ratio sleeps at the gate, by the rules of `host/native/ratio_gate.hpp`, and is woken
some microseconds later. So a side that waits gives the other one the machine, which the two curves
alone do not tell.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from copal.errors import ConfigError

PATIENCE_S = 1e-3
"""After so long a learner that sleeps looks by itself."""
SLACK_STEPS = 8
"""Env steps that an environment may be ahead of the ratio, as in a run."""
FINEST_INTERVAL = 1 / 32
"""Env steps an update below which updates are run in groups."""
VARIATION = 0.1
"""Standard deviation of a step's and an update's length, as a share of its mean."""


@dataclass(frozen=True)
class Pipeline:
    """A machine on paper.

    Raises:
        ConfigError: A value is out of range.
    """

    actors: int
    """Actor threads."""
    step_s: float
    """Seconds of an actor for one step of its environments, no learner at work."""
    update_s: float
    """Seconds of a learner for one update, no actor at work."""
    learners: int = 1
    """Updates that run at once: 1 for learners that share a batch."""
    num_envs: int = 1
    """Environments of an actor."""
    update_interval: float = 1.0
    """Env steps an update."""
    actor_slowdown: float = 1.0
    """How many times longer a step takes while all learners work."""
    learner_slowdown: float = 1.0
    """How many times longer an update takes while all actors work."""
    wake_s: float = 20e-6
    """Seconds from the gate's signal until a sleeper goes on."""
    notify_s: float = 0.0
    """Seconds that waking somebody costs whoever wakes: the call, and, where the system lets the
    woken thread run first on the same core, that."""

    def __post_init__(self) -> None:
        for name in ("actors", "learners", "num_envs"):
            if getattr(self, name) < 1:
                raise ConfigError(name, "an integer of at least 1", str(getattr(self, name)))
        for name in ("step_s", "update_s", "update_interval"):
            if not (0 < getattr(self, name) < math.inf):
                raise ConfigError(name, "a finite number above 0", str(getattr(self, name)))
        for name in ("actor_slowdown", "learner_slowdown"):
            if not (1 <= getattr(self, name) < math.inf):
                raise ConfigError(name, "a finite number of at least 1", str(getattr(self, name)))
        for name in ("wake_s", "notify_s"):
            if not (0 <= getattr(self, name) < math.inf):
                raise ConfigError(name, "a finite number of at least 0", str(getattr(self, name)))


@dataclass(frozen=True)
class Outcome:
    """What the pipeline does in the long run."""

    env_steps_per_s: float
    """Over all actors."""
    updates_per_s: float
    """Over all learners."""
    actor_busy: float
    """Share of the time that an actor works."""
    learner_busy: float
    """Share of the time that a learner works."""
    update_s: float
    """Mean seconds of an update, slowed down as it was."""
    step_s: float
    """Mean seconds of an actor's step, slowed down as it was."""

    @property
    def bottleneck(self) -> str:
        """The side that waits less: `actors` or `learners`."""
        return "actors" if self.actor_busy >= self.learner_busy else "learners"


def simulate(pipeline: Pipeline, updates: int = 3_000, seed: int = 0) -> Outcome:
    """Runs the pipeline for so many updates, the first fifth uncounted. Takes about 0.1 s.

    Args:
        pipeline: What to run.
        updates: Length; at least 200 steps of every actor are run.
        seed: Of the lengths of steps and updates.
    """
    longest = 2.0 * SLACK_STEPS * pipeline.actors * pipeline.num_envs
    if pipeline.update_interval > longest:
        return _prolonged(pipeline, longest, updates, seed)
    if pipeline.update_interval < FINEST_INTERVAL:
        return _grouped(pipeline, updates, seed)
    return _Run(pipeline, seed).run(updates)


def _prolonged(p: Pipeline, interval: float, updates: int, seed: int) -> Outcome:
    """An outcome from that with a shorter interval, itself longer than actors may be ahead.

    Longer ones add nothing but steps that no learner slows down and for which no actor waits.
    """
    short = simulate(replace(p, update_interval=interval), max(updates // 8, 100), seed)
    more = p.update_interval - interval
    short_s, more_s = 1 / short.updates_per_s, more * p.step_s / (p.actors * p.num_envs)
    cycle_s = short_s + more_s
    return Outcome(
        p.update_interval / cycle_s,
        1 / cycle_s,
        (short.actor_busy * short_s + more_s) / cycle_s,
        short.learner_busy * short_s / cycle_s,
        short.update_s,
        (short.step_s * interval + p.step_s * more) / p.update_interval,
    )


def _grouped(p: Pipeline, updates: int, seed: int) -> Outcome:
    """An outcome from that with several updates as one: all of them are far shorter than a step."""
    group = FINEST_INTERVAL / p.update_interval
    coarse = replace(p, update_interval=FINEST_INTERVAL, update_s=p.update_s * group)
    found = simulate(coarse, updates, seed)
    return replace(
        found, updates_per_s=found.updates_per_s * group, update_s=found.update_s / group
    )


class _Side:
    """The workers of one kind: a clock of their own that slows down, and who ends when on it."""

    def __init__(
        self, count: int, mean_s: float, slowdown: float, rng: np.random.Generator
    ) -> None:
        self.count, self._mean_s, self._extra = count, mean_s, slowdown - 1.0
        self._clock, self.speed = 0.0, 1.0
        self._ends: list[tuple[float, int]] = []
        self.busy_s = 0.0
        self._rng = rng
        self._lengths: list[float] = []

    @property
    def busy(self) -> int:
        return len(self._ends)

    def _length(self) -> float:
        if not self._lengths:
            k = 1 / VARIATION**2
            self._lengths = (self._rng.gamma(k, 1 / k, 1024) * self._mean_s).tolist()
        return self._lengths.pop()

    def begin(self, worker: int, extra_s: float) -> None:
        heapq.heappush(self._ends, (self._clock + self._length() + extra_s, worker))

    def slow_down(self, others_busy: float) -> None:
        self.speed = 1.0 / (1.0 + self._extra * others_busy)

    def left_s(self) -> float:
        """Seconds until the first one ends."""
        return (self._ends[0][0] - self._clock) / self.speed if self._ends else math.inf

    def advance(self, seconds: float) -> None:
        self._clock += seconds * self.speed
        self.busy_s += seconds * self.busy

    def end(self) -> int:
        self._clock, worker = heapq.heappop(self._ends)
        return worker


class _Run:
    def __init__(self, p: Pipeline, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._p = p
        self._acting = _Side(p.actors, p.step_s, p.actor_slowdown, rng)
        self._learning = _Side(p.learners, p.update_s, p.learner_slowdown, rng)
        self._slack = SLACK_STEPS * p.actors * p.num_envs
        self._steps = self._rows = self._begun = self._updates = 0
        self._now = self._owed_s = 0.0
        self._asleep: deque[int] = deque()
        self._resting: deque[int] = deque()
        self._look_at = math.inf  # when a learner that rests looks by itself and finds an update
        self._wakes: list[tuple[float, int, int]] = []  # when, which side, which worker

    def run(self, updates: int) -> Outcome:
        p = self._p
        for actor in range(p.actors):
            self._ask(actor)
        for learner in range(p.learners):
            self._look(learner)
        turns = max(updates, int(200 * p.actors * p.num_envs / p.update_interval) + 1)
        turns = min(turns, 10 * updates)
        self._until(turns // 5 + 1)
        first = (self._now, self._rows, self._updates, self._acting.busy_s, self._learning.busy_s)
        self._until(self._updates + turns)
        seconds, rows, done = self._now - first[0], self._rows - first[1], self._updates - first[2]
        acting, learning = self._acting.busy_s - first[3], self._learning.busy_s - first[4]
        return Outcome(
            rows / seconds,
            done / seconds,
            acting / seconds / p.actors,
            learning / seconds / p.learners,
            learning / done,
            acting / max(1, rows) * p.num_envs,
        )

    def _until(self, updates: int) -> None:
        while self._updates < updates:
            self._event()

    def _event(self) -> None:
        acting, learning = self._acting, self._learning
        acting.slow_down(learning.busy / learning.count)
        learning.slow_down(acting.busy / acting.count)
        wake = self._wakes[0][0] - self._now if self._wakes else math.inf
        look = self._look_at - self._now
        step, update = acting.left_s(), learning.left_s()
        first = min(wake, look, step, update)
        seconds = max(0.0, first)
        self._now += seconds
        acting.advance(seconds)
        learning.advance(seconds)
        if first == step:
            self._stepped(acting.end())
        elif first == update:
            self._updated(learning.end())
        elif first == wake:
            _, side, worker = heapq.heappop(self._wakes)
            self._ask(worker) if side == 0 else self._look(worker)
        else:
            self._look_at = math.inf
            self._look(self._resting.popleft())

    def _spent(self) -> float:
        """What the worker that goes on has just spent on waking others."""
        spent, self._owed_s = self._owed_s, 0.0
        return spent

    def _next_update(self) -> float:
        return (self._updates + 1) * self._p.update_interval

    def _ask(self, actor: int) -> None:
        """An actor asks the gate for its next steps."""
        n = self._p.num_envs
        if self._steps + n <= self._next_update() + self._slack:
            self._steps += n
            self._acting.begin(actor, self._spent())
        else:
            self._wake_learner()
            self._asleep.append(actor)
            self._owed_s = 0.0  # who goes to sleep loses nothing by having woken somebody

    def _look(self, learner: int) -> None:
        """A learner asks the gate for an update."""
        if self._due():
            self._begun += 1
            self._learning.begin(learner, self._spent())
            if self._due():
                self._wake_learner()
        else:
            self._resting.append(learner)

    def _due(self) -> bool:
        return self._rows >= (self._begun + 1) * self._p.update_interval

    def _stepped(self, actor: int) -> None:
        self._rows += self._p.num_envs
        if self._rows >= self._next_update() + self._slack // 2:
            self._wake_learner()
        elif self._resting and self._due() and self._look_at == math.inf:
            self._look_at = self._now + PATIENCE_S / 2  # on average
        self._ask(actor)

    def _updated(self, learner: int) -> None:
        self._updates += 1
        self._begun = max(self._begun, self._updates)
        if self._steps <= self._next_update() + self._slack // 2:
            while self._asleep:
                self._wake(0, self._asleep.popleft())
        self._look(learner)

    def _wake_learner(self) -> None:
        if self._resting:
            self._wake(1, self._resting.popleft())
            self._look_at = math.inf

    def _wake(self, side: int, worker: int) -> None:
        heapq.heappush(self._wakes, (self._now + self._p.wake_s, side, worker))
        self._owed_s += self._p.notify_s
