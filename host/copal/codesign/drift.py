# SPDX-License-Identifier: MIT
"""A run beside its plan: what it achieves, and which stage leaves the prediction."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copal.codesign.predict import Predicted
from copal.codesign.stages import ACTING, LEARNING, stages_between

TOLERANCE = 0.2
"""Share by which rates may leave the prediction."""
WINDOW = 5
"""Records that a judgement takes."""
BESIDE = 0.05
"""Share of a record's time from which evaluations and checkpoints count as disturbing it."""
EXPLAINS = 0.25
"""Share of the time that an env step takes longer which a stage must account for to be named."""
FEWEST_CLEAN = 3
"""Undisturbed records from which the disturbed ones are left out."""


@dataclass(frozen=True)
class Window:
    """What happened between two records of metrics."""

    env_steps_per_s: float
    """Over all actors."""
    updates_per_s: float
    """Over all learners."""
    stages: Mapping[str, float]
    """Microseconds of each stage, an env step or an update."""
    beside: float
    """Share of the time in which an evaluation or a checkpoint ran."""


@dataclass(frozen=True)
class Achieved:
    """Medians over the records of a run, once it learnt."""

    env_steps_per_s: float
    """Over all actors."""
    updates_per_s: float
    """Over all learners."""
    stages: Mapping[str, float]
    """Microseconds of each stage, an env step or an update."""
    windows: int
    """Records."""
    disturbed: int
    """Further ones, left out because an evaluation or a checkpoint ran meanwhile."""


class Watch:
    """Sees each record of a run's metrics; says so when a stage drifts, once a stage.

    Args:
        predicted: What the plan promises.
        update_interval: Env steps an update.
        num_envs: Environments of an actor.
        learning_starts: Env steps before the first update.
        actors: Actor threads.
    """

    def __init__(
        self,
        predicted: Predicted,
        *,
        update_interval: float,
        num_envs: int,
        learning_starts: int,
        actors: int = 1,
    ) -> None:
        self._predicted, self._interval, self._actors = predicted, update_interval, actors
        self._num_envs, self._starts = num_envs, learning_starts
        self._before: Mapping[str, Any] | None = None
        self._recent: deque[Window] = deque(maxlen=WINDOW)
        self._drifting = ""
        self.windows: list[Window] = []
        self.messages: list[str] = []

    def __call__(self, env_steps: int, figures: Mapping[str, Any]) -> Sequence[str]:
        """Takes a record; returns what is to be said, mostly nothing."""
        before, self._before = self._before, figures
        rate = figures.get("env_steps_per_s") or 0.0
        # A record counts when learning had begun before it did.
        if before is None or not before.get("updates") or env_steps <= self._starts or rate <= 0:
            return ()
        updates = figures["updates"] - before["updates"]
        if updates <= 0:
            return ()
        seconds = updates / figures["updates_per_s"]
        beside = (figures.get("beside_s", 0.0) - before.get("beside_s", 0.0)) / seconds
        window = Window(
            rate,
            figures["updates_per_s"],
            stages_between(before, figures, self._num_envs, updates),
            beside,
        )
        self.windows.append(window)
        if window.beside <= BESIDE:
            self._recent.append(window)
        said = self._judge()
        self.messages += said
        return said

    def achieved(self) -> Achieved | None:
        """Medians over the run; None if it never learnt for long enough to tell."""
        clean = [w for w in self.windows if w.beside <= BESIDE]
        chosen = clean if len(clean) >= FEWEST_CLEAN else self.windows
        if not chosen:
            return None
        return Achieved(
            statistics.median(w.env_steps_per_s for w in chosen),
            statistics.median(w.updates_per_s for w in chosen),
            medians(chosen),
            len(chosen),
            len(self.windows) - len(chosen),
        )

    def _judge(self) -> list[str]:
        if len(self._recent) < WINDOW:
            return []
        rate = statistics.median(w.env_steps_per_s for w in self._recent)
        wanted = self._predicted.env_steps_per_s
        off = rate / wanted - 1
        ratio = statistics.median(w.env_steps_per_s / w.updates_per_s for w in self._recent)
        ratio_off = ratio / self._interval - 1
        if max(abs(off), abs(ratio_off)) <= TOLERANCE:
            was, self._drifting = self._drifting, ""
            return [f"back within {TOLERANCE:.0%} of the plan: {rate:,.0f} env steps/s"] * bool(was)
        stage = drifted(
            self._predicted,
            medians(self._recent),
            rate,
            update_interval=self._interval,
            actors=self._actors,
        )
        if stage == self._drifting:
            return []
        self._drifting = stage
        text = f"drift: {rate:,.0f} env steps/s where the plan says {wanted:,.0f} ({off:+.0%})"
        if abs(ratio_off) > TOLERANCE:
            text += f", ratio {ratio:.3g} instead of {self._interval:g}"
        return [f"{text}; {self._explain(stage)}"]

    def _explain(self, stage: str) -> str:
        now, then = medians(self._recent).get(stage), self._predicted.stages.get(stage)
        if now is None or then is None:
            return "no stage alone: other work takes the cores, or both sides wait at the gate"
        unit = "an env step" if stage in ACTING else "an update"
        return f"most of it in stage `{stage}`: {now:,.1f} us {unit}, predicted {then:,.1f}"


def medians(windows: Sequence[Window] | deque[Window]) -> dict[str, float]:
    """Median of each stage."""
    names = dict.fromkeys(name for w in windows for name in w.stages)
    return {
        name: statistics.median(w.stages[name] for w in windows if name in w.stages)
        for name in names
    }


def drifted(
    predicted: Predicted,
    stages: Mapping[str, float],
    rate: float,
    *,
    update_interval: float,
    actors: int = 1,
) -> str:
    """The stage that explains most of a rate that left the prediction; `gate` if none explains it.

    Args:
        predicted: With the stages' microseconds.
        stages: What they take now.
        rate: Env steps a second now.
        update_interval: Env steps an update: stages of the learner count so much less.
        actors: Threads that act at the same time: their stages count so much less.
    """
    missing = 1e6 / rate - 1e6 / predicted.env_steps_per_s
    worst, most = "gate", EXPLAINS * abs(missing)
    for name in (*ACTING, *LEARNING):
        then, now = predicted.stages.get(name), stages.get(name)
        if not then or now is None or abs(now / then - 1) <= TOLERANCE:
            continue
        moved = (now - then) / (actors if name in ACTING else update_interval)
        moved = math.copysign(1.0, missing) * moved
        if moved > most:
            worst, most = name, moved
    return worst
