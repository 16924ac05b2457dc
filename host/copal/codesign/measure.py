# SPDX-License-Identifier: MIT
"""Measures a profile: every point once a round, kept after each one, so that it can be resumed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copal.backends import registry
from copal.backends.base import Learner
from copal.codesign import costs, simulated
from copal.codesign.config import SPEED_SETTINGS, ProfileConfig
from copal.codesign.document import differences, refuse_another
from copal.codesign.profile import Curve, Overlap, Point, Profile, Stages
from copal.codesign.progress import Progress
from copal.codesign.rig import WARM_S, Rig, Sample, wake_us
from copal.config import TrainConfig
from copal.errors import BackendUnavailableError, ConfigError, CopalError, PlanError
from copal.runtime import machine, slow
from copal.runtime.settings import known

DEFAULT_OUT = Path("profile.json")
LONGEST_S = 1.0
"""Longest window of one measurement."""
HELD_WINDOWS = 2.0
"""Windows that a run with the gate takes: where threads that wake often land is up to chance."""
SHORTEST_S = 0.1
"""Shortest one, whatever the time for all of them."""


@dataclass(frozen=True)
class Task:
    """One thing to measure."""

    backend: str
    """What updates; empty: nobody does."""
    actors: int
    """Actor threads; 0: none."""
    learners: int
    """Parallel learners; 0: none."""

    @property
    def name(self) -> str:
        """For the progress bar."""
        if not self.learners:
            return f"f_a({self.actors})"
        if not self.actors:
            return f"f_l({self.learners}) of {self.backend}"
        return f"{self.actors} + {self.learners} on {self.backend}"


def measure(config: ProfileConfig) -> Profile:
    """Measures what is missing in `config.out`, or everything; keeps the file up to date.

    Raises:
        ConfigError: A setting does not fit, or the file is of other settings.
        PlanError: The file is damaged, or of another machine.
        UnknownNameError: The environment, the algorithm or a backend is not known.
    """
    cores, path = config.most, config.out or DEFAULT_OUT
    reasons = {name: _reason(config, name) for name in config.backends}
    here = machine.describe()
    before = _before(path, config, here)
    with contextlib.ExitStack() as stack:
        with slow.told(
            "preparing: environments, networks, a learner of each backend", _say(config)
        ):
            rig = stack.enter_context(_rig(replace(config.training(), actors=cores), reasons))
            learners = [_empty(config, name, reasons[name], rig) for name in config.backends]
        profile = Profile(
            settings=speed_settings(rig.config),
            machine=here,
            cores=cores,
            actors=Curve("", ()),
            learners=tuple(learners),
            repeats=config.repeats,
        )
        profile = _continued(profile, before, path, config)
        profile.save(path)
        with contextlib.closing(_Work(config, rig, profile, path)) as work:
            return work.run()


def _say(config: ProfileConfig) -> Callable[[str], None]:
    """Prints a line on stderr, or nothing where that is wanted."""

    def say(text: str) -> None:
        if not config.quiet:
            print(text, file=sys.stderr, flush=True)

    return say


class _Work:
    def __init__(self, config: ProfileConfig, rig: Rig, profile: Profile, path: Path) -> None:
        self._config, self._rig, self._path = config, rig, path
        self.profile = profile
        self._learners: dict[tuple[str, int], Learner] = {}

    def run(self) -> Profile:
        missing = list(self._missing())
        if not missing and self.profile.costs:
            return self.profile
        windows = len(missing) + HELD_WINDOWS * sum(t.actors > 0 < t.learners for t in missing)
        window_s = self._config.seconds / max(1.0, windows) - WARM_S
        window_s = min(LONGEST_S, max(SHORTEST_S, window_s))
        with Progress(len(missing) + 2, quiet=self._config.quiet) as show:
            show.next("filling the replay")
            self._rig.fill()
            for task in missing:
                show.next(task.name)
                self._measure(task, window_s)
                self.profile.save(self._path)
            show.next("stages")
            self._finish()
            self.profile.save(self._path)
        return self.profile

    def _missing(self) -> Iterator[Task]:
        """What is to be measured, in rounds, so that noise is shared by all points."""
        everything = list(tasks(self.profile))
        done = {task: _done(self.profile, task) for task in everything}
        for turn in range(self._config.repeats):
            yield from (task for task in everything if done[task] <= turn)

    def _measure(self, task: Task, window_s: float) -> None:
        learner = self._learner(task.backend, task.learners) if task.learners else None
        found = self._rig.measure(task.actors, learner, task.learners, window_s)
        held = None
        if task.actors and task.learners:
            gate = self._rig.gate(task.actors, self._config.update_interval)
            long_s = HELD_WINDOWS * window_s
            held = self._rig.measure(task.actors, learner, task.learners, long_s, gate=gate)
        self.profile = added(self.profile, task, found, held, self._config.update_interval)

    def _learner(self, backend: str, learners: int) -> Learner:
        key = (backend, learners)
        if key not in self._learners:
            curve = next(c for c in self.profile.learners if c.backend == backend)
            self._learners[key] = self._rig.learner(backend, learners, **curve.options)
        return self._learners[key]

    def _finish(self) -> None:
        stages = costs.from_points(self.profile)
        for curve in self.profile.learners:
            if not curve.absent and not curve.simulated:
                stages += costs.measure(self._rig, curve, self._config.repeats)
        self.profile = replace(
            self.profile,
            costs=tuple(stages),
            wake_us=wake_us(),
            learners=tuple(
                simulated.with_host(c, stages) if c.simulated else c for c in self.profile.learners
            ),
        )

    def close(self) -> None:
        """Frees the learners."""
        for learner in self._learners.values():
            learner.close()


def _kind(curve: Curve) -> tuple[str, str, str]:
    return curve.backend, curve.absent, repr(sorted(curve.options.items()))


def speed_settings(config: Any) -> dict[str, Any]:
    """What a speed depends on, as plain values."""
    plain: dict[str, Any] = config.to_dict()
    return {name: plain[name] for name in SPEED_SETTINGS}


def tasks(profile: Profile) -> Iterator[Task]:
    """Everything that is measured for a profile."""
    for x in range(1, profile.cores + 1):
        yield Task("", x, 0)
    for curve in profile.learners:
        if curve.absent or curve.simulated:
            continue
        most = min(profile.cores, curve.largest or profile.cores)
        for x in range(1, most + 1):
            yield Task(curve.backend, 0, x)
        for actors in splits(profile.cores):
            yield Task(curve.backend, actors, min(most, profile.cores - actors))


def splits(cores: int) -> list[int]:
    """Numbers of actors with which both sides are measured at once."""
    return sorted({min(max(1, round(cores * part / 4)), cores - 1) for part in range(5)})


def added(
    profile: Profile, task: Task, found: Sample, held: Sample | None, interval: float
) -> Profile:
    """The profile with one more repetition of a measurement.

    Args:
        profile: As it was.
        task: What was measured.
        found: With nobody waiting.
        held: Both at once, held to a ratio.
        interval: Env steps an update of that ratio.
    """
    if held is not None:
        overlaps = _with_overlap(profile.overlaps, task, found, held, interval)
        return replace(profile, overlaps=overlaps)
    if task.actors:
        curve = _with_point(profile.actors, task.actors, found.env_steps_per_s, found.stages)
        return replace(profile, actors=curve)
    learners = [
        _with_point(c, task.learners, found.updates_per_s, found.stages)
        if c.backend == task.backend
        else c
        for c in profile.learners
    ]
    return replace(profile, learners=tuple(learners))


def _with_point(curve: Curve, x: int, rate: float, stages: Mapping[str, float]) -> Curve:
    known_points = {p.x: p for p in curve.points}
    old = known_points.get(x, Point(x, ()))
    known_points[x] = Point(x, (*old.rates, rate), _joined(old.stages, stages))
    return replace(curve, points=tuple(known_points[k] for k in sorted(known_points)))


def _with_overlap(
    overlaps: tuple[Overlap, ...], task: Task, found: Sample, held: Sample, interval: float
) -> tuple[Overlap, ...]:
    key = (task.backend, task.actors, task.learners)
    kept = {(o.backend, o.actors, o.learners): o for o in overlaps}
    old = kept.get(key, Overlap(*key, (), ()))
    kept[key] = Overlap(
        *key,
        (*old.env_steps_per_s, found.env_steps_per_s),
        (*old.updates_per_s, found.updates_per_s),
        _joined(old.stages, found.stages),
        interval,
        (*old.held_steps_per_s, held.env_steps_per_s),
        _joined(old.held_stages, held.stages),
    )
    return tuple(kept.values())


def _joined(old: Stages, new: Mapping[str, float]) -> Stages:
    return {name: (*old.get(name, ()), value) for name, value in new.items()}


def _done(profile: Profile, task: Task) -> int:
    """Repetitions of a measurement that a profile holds."""
    if task.actors and task.learners:
        key = (task.backend, task.actors, task.learners)
        found = [o for o in profile.overlaps if (o.backend, o.actors, o.learners) == key]
        return len(found[0].updates_per_s) if found else 0
    curves = [c for c in (profile.actors, *profile.learners) if c.backend == task.backend]
    wanted = task.actors or task.learners
    return next((len(p.rates) for c in curves for p in c.points if p.x == wanted), 0)


def _reason(config: ProfileConfig, name: str) -> str:
    """Why nothing of this backend is measured; empty: it is.

    Raises:
        UnknownNameError: There is no such backend.
    """
    return registry.get(name, **config.options(name)).unavailable() or ""


def _rig(config: TrainConfig, reasons: Mapping[str, str]) -> Rig:
    """The parts of a run, built with a wanted backend that is no device.

    Raises:
        BackendUnavailableError: None of them has the operations of the algorithm.
    """
    plain = [name for name in ("cpu", "torch") if reasons.get(name) == ""] or ["cpu"]
    for name in plain[:-1]:
        with contextlib.suppress(BackendUnavailableError):  # images need `torch`, for instance
            return Rig(config, name)
    return Rig(config, plain[-1])


def _empty(config: ProfileConfig, name: str, reason: str, rig: Rig) -> Curve:
    """The curve of a backend before anything was measured."""
    options = config.options(name)
    if simulated.stands_in(name, options):
        return simulated.curve(rig, options)
    if config.learner_mode == "async" and name != "cpu":
        reason = reason or "asynchronous learners are a feature of `cpu`"
    if reason:
        return Curve(name, (), absent=reason, options=options)
    try:
        learner = rig.learner(name, 1, **options)
    except CopalError as e:  # it lacks an operation, for instance
        return Curve(name, (), absent=str(e).replace("\n", "; "), options=options)
    learner.close()
    largest = known(rig.config.batch_size) if name == "cpu" else 1
    return Curve(name, (), largest=largest, options=options)


def _before(path: Path, config: ProfileConfig, here: Mapping[str, Any]) -> Profile | None:
    """What the file holds, if it is to be completed.

    Raises:
        PlanError: It is damaged, or of another machine.
    """
    if not path.exists() or config.force:
        return None
    found = Profile.load(path)
    if not found.machine:
        raise PlanError("out", "a file that is new", f"given curves in `{path}`", "choose another")
    if differences(found.machine, here):
        refuse_another("out", found.machine, here)
    return found


def _continued(new: Profile, before: Profile | None, path: Path, config: ProfileConfig) -> Profile:
    """`new` with the measurements of `before`.

    Raises:
        ConfigError: That one is of other settings.
    """
    if before is None:
        return new
    wanted, found = new.settings, before.settings
    for name, old, now in [
        *((n, found.get(n), wanted.get(n)) for n in wanted),
        ("cores", before.cores, new.cores),
    ]:
        if old != now:
            raise ConfigError(
                name,
                f"`{old}`, as in `{path}`, which would be completed",
                f"`{now}`",
                "choose another --out, or replace it: --force",
            )
    kept = {c.backend: c for c in before.learners if not c.absent and not c.simulated}

    def same(curve: Curve) -> Curve:
        old = kept.get(curve.backend)
        fits = old is not None and not curve.absent and old.options == curve.options
        return replace(curve, points=old.points) if old and fits else curve

    learners = tuple(c if c.simulated else same(c) for c in new.learners)
    names = {c.backend for c in learners if not c.absent and not c.simulated}
    overlaps = tuple(
        o for o in before.overlaps if o.backend in names and o.interval == config.update_interval
    )
    complete = set(map(_kind, learners)) == set(map(_kind, before.learners))
    return replace(
        new,
        actors=before.actors,
        learners=before.learners if complete else learners,
        overlaps=overlaps,
        costs=before.costs if complete else (),
        wake_us=before.wake_us,
    )
