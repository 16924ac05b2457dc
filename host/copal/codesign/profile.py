# SPDX-License-Identifier: MIT
"""What was measured of a machine: f_a(x), f_l(x), both at once, and the cost of each stage."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from copal.codesign import values
from copal.codesign.document import Document, said
from copal.errors import PlanError

MEASURED = "measured"
"""`Curve.source` of what ran here."""
GIVEN = "given"
"""`Curve.source` of curves that were not measured by copal."""

Stages = Mapping[str, tuple[float, ...]]
"""Microseconds by stage, one a repetition."""


@dataclass(frozen=True)
class Point:
    """A rate with x threads, measured several times."""

    x: int
    """Actors, or learners."""
    rates: tuple[float, ...]
    """Env steps or updates a second, one a repetition."""
    stages: Stages = field(default_factory=dict)
    """Microseconds of each stage, an env step or an update, one a repetition."""

    @property
    def median(self) -> float:
        """The rate that counts."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """From the lowest to the highest rate, as a share of the median."""
        return (max(self.rates) - min(self.rates)) / self.median


@dataclass(frozen=True)
class Curve:
    """Rates over a number of threads."""

    backend: str
    """What ran the updates; empty for the curve of the actors."""
    points: tuple[Point, ...]
    """In the order of x."""
    source: str = MEASURED
    """`measured`, `given`, or `simulated` and what was assumed."""
    largest: int | None = None
    """Most threads that there can be, whatever the cores: 1 for a device that one thread feeds."""
    absent: str = ""
    """Why there are no points."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the backend: `device`, `lanes`, `clock_mhz`."""

    @property
    def simulated(self) -> bool:
        """Whether nothing here runs at these rates."""
        return self.source.startswith("simulated")

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return f"f_l of {self.backend}" if self.backend else "f_a"

    def rates(self, most: int) -> list[float]:
        """Medians for x = 1, 2, ... `most`, or to where there can be no more.

        Args:
            most: Largest x that is wanted.

        Raises:
            PlanError: A point is missing; nothing is interpolated or extrapolated.
        """
        wanted = most if self.largest is None else min(most, self.largest)
        known = {p.x: p.median for p in self.points}
        missing = list(islice((x for x in range(1, wanted + 1) if x not in known), 6))
        if missing:
            shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
            last = max(known, default=0)
            hint = (
                f"the curve ends at x = {last}, and nothing is extrapolated: give fewer --cores"
                if missing[0] > last
                else "run the same `copal profile` again: it measures what is missing"
            )
            expected, got = f"points for x = 1 to {wanted}", f"none for x = {shown}"
            raise PlanError(self.name, expected, got, hint)
        return [known[x] for x in range(1, wanted + 1)]


@dataclass(frozen=True)
class Overlap:
    """Both sides running at once: neither waiting for the other, and held to a ratio."""

    backend: str
    """What ran the updates."""
    actors: int
    """Actor threads."""
    learners: int
    """Learner threads."""
    env_steps_per_s: tuple[float, ...]
    """One a repetition."""
    updates_per_s: tuple[float, ...]
    """One a repetition."""
    stages: Stages = field(default_factory=dict)
    """Microseconds of each stage, an env step or an update, one a repetition."""
    interval: float = 1.0
    """Env steps an update that the gate held in `held_steps_per_s`."""
    held_steps_per_s: tuple[float, ...] = ()
    """Env steps a second with the gate, one a repetition."""
    held_stages: Stages = field(default_factory=dict)
    """As `stages`, with the gate."""


@dataclass(frozen=True)
class Cost:
    """One stage alone."""

    stage: str
    """Name of the stage."""
    backend: str
    """What it belongs to; empty: to all."""
    us: tuple[float, ...]
    """Microseconds, one a repetition."""
    source: str = MEASURED
    """As `Curve.source`."""
    unit: str = "call"
    """What takes so long."""

    @property
    def median_us(self) -> float:
        """The cost that counts."""
        return statistics.median(self.us)


@dataclass(frozen=True)
class Profile(Document):
    """Everything that `copal profile` measured."""

    kind: ClassVar[str] = "profile"

    settings: Mapping[str, Any]
    """Settings of training that it was measured with, by the names of TrainConfig."""
    machine: Mapping[str, Any]
    """`copal.runtime.machine.describe()`; empty for curves that were only given."""
    cores: int
    """Cores that the curves reach to."""
    actors: Curve
    """f_a: env steps a second."""
    learners: tuple[Curve, ...]
    """f_l of each backend: updates a second."""
    overlaps: tuple[Overlap, ...] = ()
    """Both at once."""
    costs: tuple[Cost, ...] = ()
    """Stages alone."""
    wake_us: float = 0.0
    """From the gate's signal to the step of an actor that slept, microseconds."""
    repeats: int = 1
    """Repetitions of each measurement that were asked for."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Profile:
        """Inverse of `to_dict`; also takes the short form of curves that were only given.

        The short form is `{"env_steps_per_s": [...], "updates_per_s": {"cpu": [...]}}`, for
        x = 1, 2, ... each, with `null` where a point is missing.

        Raises:
            PlanError: It is of another version, or something is missing or of another kind.
        """
        return _given(data) if "env_steps_per_s" in data else super().from_dict(data)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Profile:
        """Its long form."""
        return cls(
            settings=values.speed_settings(data),
            machine=values.machine(data),
            cores=values.whole(data, "cores", least=0),
            actors=_curve(data["actors"]),
            learners=_learners(_curve(c) for c in data["learners"]),
            overlaps=tuple(_overlap(o) for o in data["overlaps"]),
            costs=tuple(Cost(**{**c, "us": _rates(c, "us")}) for c in data["costs"]),
            wake_us=values.number(data, "wake_us"),
            repeats=values.whole(data, "repeats"),
        )


def _rates(data: Mapping[str, Any], key: str = "rates") -> tuple[float, ...]:
    return values.numbers(data, key, above_zero=True)


def _stages(data: Mapping[str, Any], key: str = "stages") -> dict[str, tuple[float, ...]]:
    found = values.record(data, key) if key in data else {}
    return {str(name): values.numbers(found, name) for name in found}


def _curve(data: Mapping[str, Any]) -> Curve:
    points = [Point(values.whole(p, "x"), _rates(p), _stages(p)) for p in data["points"]]
    points.sort(key=lambda p: p.x)
    if len({p.x for p in points}) < len(points):
        raise ValueError("points with the same x")
    return Curve(
        values.text(data, "backend"),
        tuple(points),
        str(data.get("source", MEASURED)),
        None if data.get("largest") is None else values.whole(data, "largest"),
        str(data.get("absent", "")),
        dict(data.get("options", {})),
    )


def _learners(curves: Iterable[Curve]) -> tuple[Curve, ...]:
    found = tuple(curves)
    names = [curve.backend for curve in found]
    if "" in names or len(set(names)) < len(names):
        raise ValueError(f"the backends {', '.join(map(repr, names))}, each of which has to be one")
    return found


def _overlap(data: Mapping[str, Any]) -> Overlap:
    return Overlap(
        values.text(data, "backend"),
        values.whole(data, "actors"),
        values.whole(data, "learners"),
        _rates(data, "env_steps_per_s"),
        _rates(data, "updates_per_s"),
        _stages(data),
        values.number({"interval": 1.0, **data}, "interval", above_zero=True),
        _rates(data, "held_steps_per_s") if data.get("held_steps_per_s") else (),
        _stages(data, "held_stages"),
    )


def _given(data: Mapping[str, Any]) -> Profile:
    """A profile from the short form."""
    known = {"env_steps_per_s", "updates_per_s", "settings", "cores", "note"}
    unknown = sorted(set(data) - known)
    if unknown:
        raise PlanError("curves", f"the keys {', '.join(sorted(known))}", f"`{unknown[0]}`")
    try:
        actors = _listed("", data, "env_steps_per_s")
        rates = values.record(data, "updates_per_s")
        learners = _learners(_listed(name, rates, name) for name in rates)
        reach = max([actors.points[-1].x, *(c.points[-1].x for c in learners)])
        settings = values.speed_settings({"settings": {}, **data})
        cores = values.whole({"cores": reach, **data}, "cores", least=0)
        return Profile(settings, {}, cores, actors, learners)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
        hint = '{"env_steps_per_s": [900, 1750], "updates_per_s": {"cpu": [800, 1500]}}'
        raise PlanError("curves", "rates for x = 1, 2, ...", said(e), f"such as {hint}") from e


def _listed(backend: str, data: Mapping[str, Any], key: str) -> Curve:
    listed = data[key]
    if not isinstance(listed, list | tuple):
        raise TypeError(f"a list of rates, got {listed!r}")
    points = [
        Point(x, _rates({key: [rate]}, key)) for x, rate in enumerate(listed, 1) if rate is not None
    ]
    # Whoever gives a single rate for a device means that one thread feeds it.
    return Curve(backend, tuple(points), GIVEN, 1 if backend and len(listed) == 1 else None)
