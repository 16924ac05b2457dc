# SPDX-License-Identifier: MIT
"""What was measured of a machine: f_a(x), f_l(x), both at once, and the cost of each stage."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from copal.codesign import values
from copal.errors import PlanError
from copal.runtime import files

SCHEMA = 1
"""Version of the file."""
MEASURED = "measured"
"""`Curve.source` of what ran here."""
LARGEST_FILE = 2**26
"""Characters of a profile or plan that are read."""
GIVEN = "given"
"""`Curve.source` of curves that were not measured by copal."""
COMPARED = ("cpu", "cores", "isa", "copal")
"""What makes two machines the same for a profile."""
_WRITERS = {"profile": "`copal profile` writes one", "plan": "`copal allocate` writes one"}

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
class Profile:
    """Everything that `copal profile` measured."""

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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"copal_profile": SCHEMA, **dataclasses.asdict(self)}

    def save(self, path: Path) -> None:
        """Replaces the file at `path` in one step.

        Raises:
            PlanError: It cannot be written.
        """
        write(path, self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Profile:
        """Inverse of `to_dict`; also takes the short form of curves that were only given.

        The short form is `{"env_steps_per_s": [...], "updates_per_s": {"cpu": [...]}}`, for
        x = 1, 2, ... each, with `null` where a point is missing.

        Raises:
            PlanError: It is of another version, or something is missing or of another kind.
        """
        if "env_steps_per_s" in data:
            return _given(data)
        with parsing(data, "profile"):
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

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Reads a file.

        Raises:
            PlanError: There is none, it is damaged, or of another version.
        """
        return cls.from_dict(read(path, "profile"))


def read(path: Path, what: str) -> Mapping[str, Any]:
    """The JSON object in the file at `path`.

    Args:
        path: The file.
        what: `profile` or `plan`, for messages.

    Raises:
        PlanError: There is none, or it is damaged.
    """
    hint = _WRITERS[what]
    try:
        data = json.loads(_text(path))
    except (OSError, ValueError, RecursionError) as e:
        raise PlanError(what, f"a readable {what} in `{path}`", str(e), hint) from e
    if not isinstance(data, dict):
        raise PlanError(what, f"a {what} in `{path}`", f"JSON of a {type(data).__name__}", hint)
    return data


def _text(path: Path) -> str:
    """Content of a file; of a device without an end no more than `LARGEST_FILE`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large, or no text.
    """
    with path.open(encoding="utf-8") as file:
        text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise ValueError(f"more than {LARGEST_FILE:,} characters")
    return text


@contextmanager
def parsing(data: Mapping[str, Any], what: str) -> Iterator[None]:
    """Checks the version of `data`; what its body lacks or cannot read is a typed error.

    Args:
        data: Content of a file.
        what: `profile` or `plan`.

    Raises:
        PlanError: It is of another version, or something is missing or of another kind.
    """
    version = data.get(f"copal_{what}")
    if version != SCHEMA:
        got = "none" if version is None else repr(version)
        raise PlanError(f"copal_{what}", f"version {SCHEMA}", got, _WRITERS[what])
    try:
        yield
    except PlanError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise PlanError(what, f"a whole {what}", _said(e), _WRITERS[what]) from e


def _said(error: Exception) -> str:
    """What is wrong with a file, of an error of whoever read it."""
    if isinstance(error, KeyError):
        return f"no `{error.args[0]}`"
    return str(error) if isinstance(error, ValueError) else repr(error)


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON object, making the folder if needed.

    Raises:
        PlanError: It cannot be written.
    """
    if path.exists() and not path.is_file():  # a device would be replaced
        raise PlanError("out", "a file, or a name that is free", f"`{path}`", "choose another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, dict(data))
    except OSError as e:
        raise PlanError(
            "out", "a file that can be written", str(e), "make room, or choose another"
        ) from e


def differences(machine: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What sets the machine of a profile apart from another one, a short text each.

    Args:
        machine: As the profile has it.
        here: As `copal.runtime.machine.describe` tells.
    """
    mine, other = _identity(here), _identity(machine)
    return [
        f"{name}: `{other[name]}` there, `{mine[name]}` here"
        for name in COMPARED
        if other[name] != mine[name]
    ]


def refuse_another(what: str, machine: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuses a profile or plan of another machine or version; one of no machine at all is taken.

    Args:
        what: `profile` or `plan`.
        machine: As the file has it.
        here: As `copal.runtime.machine.describe` tells.

    Raises:
        PlanError: They differ.
    """
    found = differences(machine, here) if machine else []
    if found:
        raise PlanError(
            what,
            "one of this machine and this version of copal",
            "; ".join(found),
            "measure here with `copal profile`, or take it as it is: --force",
        )


def _identity(machine: Mapping[str, Any]) -> dict[str, Any]:
    versions = machine.get("versions", {})
    return {**{n: machine.get(n) for n in COMPARED}, "copal": versions.get("copal")}


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
        raise PlanError("curves", "rates for x = 1, 2, ...", _said(e), f"such as {hint}") from e


def _listed(backend: str, data: Mapping[str, Any], key: str) -> Curve:
    listed = data[key]
    if not isinstance(listed, list | tuple):
        raise TypeError(f"a list of rates, got {listed!r}")
    points = [
        Point(x, _rates({key: [rate]}, key)) for x, rate in enumerate(listed, 1) if rate is not None
    ]
    # Whoever gives a single rate for a device means that one thread feeds it.
    return Curve(backend, tuple(points), GIVEN, 1 if backend and len(listed) == 1 else None)
