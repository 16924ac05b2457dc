# SPDX-License-Identifier: MIT
"""Runs a training: threads or one deterministic order, evaluations, checkpoints, the result."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from copal.config import TrainConfig
from copal.errors import (
    CheckpointError,
    ConfigError,
    CopalError,
    FpgaError,
    LearnerFailedError,
    reason,
)
from copal.runtime import actors, run_folder, session, slow
from copal.runtime.checkpoint import Checkpoint, CheckpointStore
from copal.runtime.control import Control, next_multiple, signals
from copal.runtime.judge import Judge
from copal.runtime.metrics import MetricsLog, Progress, progress
from copal.runtime.result import TrainResult

TICK_S = 0.05
"""How often the main thread looks after the others."""
RECORD_INTERVAL_S = 1.0
"""Seconds between two records of metrics.jsonl."""
LAST_EPISODES = 100
"""Episodes that the training return is the mean of."""
STALL_S = 120.0
"""Longest wait for a thread to end, and for an update unless its learner may take longer."""

Watch = Callable[[int, Mapping[str, Any]], Iterable[str]]
"""Takes env steps and the figures of each record; returns what is to be said about them."""


def train(
    config: TrainConfig, *, given: Collection[str] | None = None, watch: Watch | None = None
) -> TrainResult:
    """Trains an agent and scores its best policy.

    Args:
        config: The settings; with `resume` a run goes on where its newest checkpoint was written.
        given: Names of the settings that a resumed run has to follow or refuse; every other one is
            taken from the run. None: those that differ from their defaults.
        watch: Sees the figures of the run as they come.

    Returns:
        The best policy and the figures of the run.

    Raises:
        ConfigError: A setting does not fit, or the run to resume is finished.
        UnknownNameError: The environment, algorithm or backend is not known.
        BackendUnavailableError: The backend cannot be used here.
        CheckpointError: The run to resume is damaged, or of another version; or the disk is full.
        EnvironmentFailedError: An environment failed three times in a row.
        LearnerFailedError: A value became NaN or infinite.
    """
    if not isinstance(config, TrainConfig):
        raise ConfigError(
            "config",
            "a copal.TrainConfig",
            repr(config),
            'such as copal.train(copal.TrainConfig(env="CartPole-v1"))',
        )
    named = run_folder.named_settings(config, given)
    config = run_folder.settle(config, named)
    show = progress(config.steps, quiet=config.quiet)
    try:
        return _train(config, show, named, watch)
    except CopalError:  # a device's timeout is an OSError, too
        raise
    except OSError as e:
        raise CheckpointError(
            "out",
            f"`{config.out}` on a disk that can be written",
            reason(e),
            f"the last checkpoint is intact: make room, then --resume {config.out}",
        ) from e
    finally:
        show.close()


def _train(
    config: TrainConfig, show: Progress, named: Collection[str], watch: Watch | None
) -> TrainResult:
    control = Control(config.actors)
    root = config.out if config.out is not None else Path()
    store = CheckpointStore(root / run_folder.CHECKPOINTS, config.keep_checkpoints)
    found = store.newest(show.say) if config.resume is not None else None
    if found is not None:
        run_folder.refuse_finished(config, int(found.counters["env_steps"]), named)
    with slow.told(f"preparing {config.algo} for {config.env}: environments, networks", show.say):
        parts = session.build(config, control, found)
    with (
        contextlib.closing(parts),
        MetricsLog(run_folder.prepare(config), tensorboard=config.tensorboard) as log,
        signals(control),
    ):
        try:
            trainer = Trainer(parts, control, store, log, show, watch)
            if found is not None:
                trainer.restore(found)
            return trainer.run()
        except (LearnerFailedError, FpgaError) as e:
            raise type(e)(e.field, e.expected, e.got, _way_on(e.hint, store)) from e


def _way_on(hint: str, store: CheckpointStore) -> str:
    """`hint`, and where the newest checkpoint is, which a failed update leaves as it was."""
    newest = next(iter(store.folders()), None)
    place = (
        "there is no checkpoint yet: a smaller --checkpoint-interval would have kept one"
        if newest is None
        else f"the last good checkpoint is `{newest}`"
    )
    return f"{hint}; {place}" if hint else place


class Trainer:
    """The main thread of a run.

    Args:
        parts: What the run consists of.
        control: Its flags.
        store: Its checkpoints.
        log: Where figures go.
        show: Where messages go.
        watch: Sees the figures of each record.
    """

    def __init__(
        self,
        parts: session.Session,
        control: Control,
        store: CheckpointStore,
        log: MetricsLog,
        show: Progress,
        watch: Watch | None = None,
    ) -> None:
        self._parts, self._control, self._store = parts, control, store
        self._log, self._show, self._watch = log, show, watch
        self._config = parts.config
        self._judge = Judge(parts, control, log, show)
        self._saved_at = 0
        self._returns: collections.deque[float] = collections.deque(maxlen=LAST_EPISODES)
        self._lengths: collections.deque[int] = collections.deque(maxlen=LAST_EPISODES)
        self._episodes = 0
        self._replaced = 0
        self._beside_s = 0.0
        self._recorded_s = time.perf_counter()
        self._recorded = (parts.env_steps, parts.loop.updates)

    def restore(self, found: Checkpoint) -> None:
        """Goes on from a checkpoint; the parts were built from it."""
        cut = self._parts.restore_actors(found)
        self._saved_at = self._parts.env_steps
        self._judge.restore(found)
        self._episodes = int(found.counters["episodes"])
        if cut:
            self._show.say(f"streams {cut}: their episodes cannot be reproduced, new ones begin")
        self._show.say(f"going on from {found.path} at {self._parts.env_steps:,} env steps")
        self._log.write("event", self._parts.env_steps, {"event": "resume", "cut": len(cut)})

    def run(self) -> TrainResult:
        """Trains until the steps are taken, the wanted return is reached or a signal comes."""
        parts = self._parts
        began = (time.perf_counter(), parts.env_steps, parts.loop.updates)
        self._warn_without_updates()
        # A signal may have ended the run in the middle of an evaluation.
        self._judge.look(parts.env_steps)
        if self._config.deterministic:
            self._run_in_order()
        else:
            self._run_threads()
        wall_s = max(time.perf_counter() - began[0], 1e-9)
        self._record(time.perf_counter())
        parts.loop.publish()
        reason = self._control.stop_reason or "steps"
        finished = reason in ("steps", "return")
        try:
            if reason == "steps":
                self._judge.look(parts.env_steps, last=True)
        finally:  # an environment that fails here must not cost what was learnt
            self._checkpoint()
            self._judge.keep_newest()
        score = self._judge.final() if finished else None
        figures = parts.loop.metrics()
        return TrainResult(
            best=self._judge.best_policy(),
            best_at=self._judge.best_at,
            mean_return=score.mean if score else float("nan"),
            returns=score.returns if score else (),
            env_steps=parts.env_steps,
            updates=parts.loop.updates,
            env_steps_per_s=(parts.env_steps - began[1]) / wall_s,
            updates_per_s=(parts.loop.updates - began[2]) / wall_s,
            wall_s=wall_s,
            env_restarts=parts.env_restarts,
            out=self._config.out or Path(),
            # A signal after the last evaluation cost nothing.
            evaluated=self._judge.evaluated,
            stop_reason=reason if score else self._control.stop_reason or "steps",
            staleness_mean=figures.get("staleness_mean"),
            staleness_max=figures.get("staleness_max"),
            report=parts.loop.report(),
        )

    def _warn_without_updates(self) -> None:
        starts, steps = self._parts.shared.gate.learning_starts, self._config.steps
        if steps - starts < self._config.update_interval:
            self._show.say(
                f"warning: no update will run: the run ends after {steps:,} env steps, the first "
                f"update is due {self._config.update_interval:g} after learning_starts = {starts:,}"
            )

    def _run_in_order(self) -> None:
        parts, shared, gate = self._parts, self._parts.shared, self._parts.shared.gate
        n = self._config.num_envs
        while True:
            for actor in parts.actors:
                before = shared.budget.claim(n)
                if before < 0:
                    return
                gate.acquire_steps(n)
                actor.step(before)
                while gate.updates_due():
                    parts.loop.run_once()
                    gate.complete_update()
            self._look_after(parts.env_steps)
            if self._control.stop_reason:
                return

    def _run_threads(self) -> None:
        parts, control = self._parts, self._control
        self._set_alarm()
        threads = actors.threads(parts.actors)
        try:
            actors.start(threads)
            parts.loop.start()
            while not control.stop_reason and control.running:
                control.wake.wait(TICK_S)
                control.wake.clear()
                self._check()
                self._look_after(parts.env_steps)
            self._check()
            if control.stop_reason:
                with control.parked(self._check):
                    control.dismiss()
            self._drain()
        finally:
            control.dismiss()
            parts.shared.gate.close()
            parts.loop.stop()
            actors.join(threads, STALL_S)

    def _look_after(self, env_steps: int) -> None:
        """Evaluates, writes a checkpoint and reports, whatever is due."""
        now = time.perf_counter()
        if now - self._recorded_s >= RECORD_INTERVAL_S:
            self._record(now)
            now = time.perf_counter()
        self._judge.look(env_steps)
        if env_steps >= self._next_save and not self._control.stop_reason:
            if self._config.deterministic:
                self._checkpoint()
            else:
                self._checkpoint_while_running()
        self._beside_s += time.perf_counter() - now
        self._set_alarm()

    def _set_alarm(self) -> None:
        self._parts.shared.budget.alarm = min(self._next_save, self._judge.next_look)

    @property
    def _next_save(self) -> int:
        """Env steps at which the next checkpoint is due."""
        return next_multiple(self._saved_at, self._config.checkpoint_interval)

    def _check(self) -> None:
        self._parts.loop.raise_if_failed()
        for actor in self._parts.actors:
            if actor.error is not None:
                raise actor.error

    def _drain(self) -> None:
        """Lets the learner finish the updates that the steps taken ask for."""
        loop = self._parts.loop
        self._parts.shared.gate.drain()
        stall_s = max(STALL_S, self._parts.learner.update_limit_s)
        updates, limit = loop.updates, time.monotonic() + stall_s
        while loop.running:
            loop.raise_if_failed()
            if loop.updates > updates:
                updates, limit = loop.updates, time.monotonic() + stall_s
            elif time.monotonic() > limit:
                raise LearnerFailedError("learner", f"an update within {stall_s:g} s", "none")
            time.sleep(0.001)
        loop.raise_if_failed()

    def _checkpoint_while_running(self) -> None:
        with self._control.parked(self._check):
            self._parts.loop.pause()
            try:
                self._checkpoint()
            finally:
                self._parts.loop.resume()

    def _checkpoint(self) -> None:
        env_steps = self._parts.env_steps
        self._collect()
        with self._store.writing(env_steps) as folder:
            counters = self._parts.write(folder)
            counters |= self._judge.write(folder)
        counters["episodes"] = self._episodes
        self._store.seal(folder, env_steps, counters)
        self._saved_at = env_steps

    def _collect(self) -> None:
        for actor in self._parts.actors:
            finished = actor.environments.finished
            while finished:
                episode = finished.popleft()
                self._returns.append(episode.total)
                self._lengths.append(episode.length)
                self._episodes += 1
            for stream, cause in actor.replaced():
                self._warn_replaced(stream, cause)
        for text in self._parts.loop.messages():
            self._show.say(f"warning: {text}")
            self._log.write("event", self._parts.env_steps, {"event": "warning", "text": text})

    def _warn_replaced(self, stream: int, reason: str) -> None:
        """Warns at the first one and whenever their number has doubled, so that it stays short."""
        self._replaced += 1
        if self._replaced & (self._replaced - 1) == 0:
            self._show.say(
                f"warning: environment `{self._config.env}`, stream {stream}, was replaced: "
                f"{reason} ({self._replaced:,} so far)"
            )

    def _record(self, now: float) -> None:
        self._collect()
        parts, config = self._parts, self._config
        env_steps, updates = parts.env_steps, parts.loop.updates
        seconds = max(now - self._recorded_s, 1e-9)
        steps_before, updates_before = self._recorded
        self._recorded_s, self._recorded = now, (env_steps, updates)
        nan = float("nan")
        after = env_steps - parts.shared.gate.learning_starts
        figures: dict[str, Any] = {
            "return": float(np.mean(self._returns)) if self._returns else float("nan"),
            "episode_length": float(np.mean(self._lengths)) if self._lengths else float("nan"),
            "episodes": self._episodes,
            "updates": updates,
            "env_steps_per_s": (env_steps - steps_before) / seconds,
            "updates_per_s": (updates - updates_before) / seconds,
            "ratio": after / updates if updates else float("nan"),
            "epsilon": parts.epsilon(env_steps) if parts.built.exploration == "epsilon" else nan,
            "beta": parts.beta(updates) if config.prioritized else float("nan"),
            "env_restarts": parts.env_restarts,
            "replay_rows": len(parts.replay),
            "stale_updates": parts.replay.stats()["stale_updates"],
            "beside_s": self._beside_s,
            **actors.total(parts.actors).as_metrics(),
            **parts.loop.metrics(),
        }
        self._log.write("train", env_steps, figures)
        self._show.update(env_steps, figures)
        for text in () if self._watch is None else self._watch(env_steps, figures):
            self._show.say(text)
            self._log.write("event", env_steps, {"event": "drift", "text": text})
