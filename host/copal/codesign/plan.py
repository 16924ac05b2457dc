# SPDX-License-Identifier: MIT
"""The plan: how many actors and learners on which backend, what it will do, and why not another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from copal.codesign import mapping, values
from copal.codesign.document import Document
from copal.codesign.predict import Predicted, predict
from copal.codesign.profile import Profile
from copal.codesign.solve import Allocation, check, closest, solve
from copal.codesign.values import DERIVED
from copal.errors import PlanError

FILE = "plan.json"
"""Its name in a run folder."""
BALANCED = 1.25
"""f_a / (u f_l) up to which, and down to whose inverse, an allocation counts as balanced."""


@dataclass(frozen=True)
class Choice:
    """An allocation on a backend."""

    backend: str
    """What runs the learners."""
    allocation: Allocation
    """Cores of each side, and what the curves promise."""
    predicted: Predicted
    """What a run will do."""
    source: str = "measured"
    """Where the learners' rates come from."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the backend."""

    @property
    def simulated(self) -> bool:
        """Whether nothing here runs at these rates."""
        return self.source.startswith("simulated")

    @property
    def name(self) -> str:
        """For messages."""
        a = self.allocation
        return f"{a.actors} + {a.learners} on {self.backend}"

    def score(self, objective: str) -> float:
        """What is maximised over backends."""
        if objective == "latency":
            return 1 / self.allocation.latency_s
        if objective == "energy-proxy":
            return 1 / self.allocation.core_s_per_step
        return self.predicted.env_steps_per_s


@dataclass(frozen=True)
class Plan(Document):
    """What `copal train --plan` follows."""

    kind: ClassVar[str] = "plan"

    settings: Mapping[str, Any]
    """Settings that it was measured with, by the names of TrainConfig."""
    machine: Mapping[str, Any]
    """Where it was measured; empty for curves that were only given."""
    cores: int
    """Cores that were shared out."""
    update_interval: float
    """Env steps an update."""
    objective: str
    """What was maximised."""
    chosen: Choice
    """The allocation."""
    runner_up: Choice | None = None
    """The best of the others."""
    why: str = ""
    """Why the runner-up lost."""
    others: tuple[Choice, ...] = ()
    """The best allocation of each further backend."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Backends that could not be compared, with the reason."""
    notes: tuple[str, ...] = ()
    """What whoever follows the plan should know."""
    devices: tuple[mapping.Mapping, ...] = ()
    """Where replay and learner go best, by the time of an iteration; the best one first."""

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Plan:
        """From the JSON values of its version."""
        runner_up = data["runner_up"]
        return cls(
            settings=values.speed_settings(data),
            machine=values.machine(data),
            cores=values.whole(data, "cores", least=2),
            update_interval=values.number(data, "update_interval", above_zero=True),
            objective=str(data["objective"]),
            chosen=_fitting(_choice(data["chosen"]), data["cores"]),
            runner_up=None if runner_up is None else _choice(runner_up),
            why=str(data["why"]),
            others=tuple(_choice(c) for c in data["others"]),
            absent=dict(data["absent"]),
            notes=tuple(map(str, data["notes"])),
            devices=tuple(mapping.Mapping(**m) for m in data["devices"]),
        )


def allocate(
    profile: Profile,
    *,
    update_interval: float = 1.0,
    objective: str = "throughput",
    cores: int | None = None,
    simulated: bool = False,
    actors: int | None = None,
    learners: int | None = None,
) -> Plan:
    """Solves the allocation equation on every backend of the profile and compares them.

    Args:
        profile: What was measured, or given.
        update_interval: Env steps an update.
        objective: One of `solve.OBJECTIVES`.
        cores: Cores to share out; None: those of the profile.
        simulated: Also choose backends whose rates are simulated.
        actors: Actor threads, where they are decided already.
        learners: Learners, where they are decided already.

    Raises:
        ConfigError: A setting is out of range.
        PlanError: There is a single core, a curve has a gap or ends too early, or no backend is
            left.
    """
    most = profile.cores if cores is None else cores
    check(most, update_interval, objective)
    acting = profile.actors.rates(most - 1)
    found: list[Choice] = []
    for curve in profile.learners:
        if curve.absent:
            continue
        best = solve(
            acting,
            curve.rates(most - 1),
            cores=most,
            update_interval=update_interval,
            objective=objective,
            best=2,
            actors=actors,
            learners=learners,
        )
        found += [
            Choice(curve.backend, a, predict(profile, curve, a), curve.source, curve.options)
            for a in best
        ]
    ranked = _ranked(found, objective)
    runnable = [c for c in ranked if simulated or not c.simulated]
    absent = {c.backend: c.absent for c in profile.learners if c.absent}
    if not runnable:
        got = "; ".join(f"{name}: {why}" for name, why in absent.items()) or "simulated ones only"
        hint = "profile with --backends cpu, or take simulated ones with --simulated"
        raise PlanError("backends", "one that was measured", got, hint)
    chosen = runnable[0]
    rest = [c for c in runnable if c is not chosen]
    runner_up = rest[0] if rest else None
    others = [c for i, c in enumerate(ranked) if c.backend not in {d.backend for d in ranked[:i]}]
    return Plan(
        settings=profile.settings,
        machine=profile.machine,
        cores=most,
        update_interval=update_interval,
        objective=objective,
        chosen=chosen,
        runner_up=runner_up,
        why="" if runner_up is None else _why(chosen, runner_up, objective),
        others=tuple(c for c in others if c.backend != chosen.backend),
        absent=absent,
        notes=tuple(_notes(profile, chosen, most)),
        devices=tuple(mapping.mappings(profile)),
    )


def _ranked(found: Sequence[Choice], objective: str) -> list[Choice]:
    """The best one first; within a backend in the order of the solver."""
    place = {id(c): i for i, c in enumerate(found)}
    best: dict[str, float] = {}
    for choice in found:
        best.setdefault(choice.backend, choice.score(objective))
    first = {c.backend: c for c in reversed(found)}

    def key(choice: Choice) -> tuple[float, int, int]:
        # The second of a backend never passes its first one, whatever the simulation's noise.
        own = min(choice.score(objective), best[choice.backend])
        return -own, int(choice is not first[choice.backend]), place[id(choice)]

    return sorted(found, key=key)


def _why(chosen: Choice, other: Choice, objective: str) -> str:
    """What the winner has over another choice, in one sentence."""
    mine, its = chosen.score(objective), other.score(objective)
    if objective == "throughput" and chosen.backend == other.backend:  # decided by the curves
        mine, its = (c.allocation.env_steps_per_s for c in (chosen, other))
    less = 1 - its / mine
    if less > 5e-4:
        more = mine / its - 1
        what = {
            "throughput": f"{less:.1%} fewer env steps/s, limited by its "
            f"{other.allocation.bottleneck}",
            "latency": f"{more:.1%} more time from a step to what is learnt from it",
            "energy-proxy": f"{more:.1%} more core-seconds an env step",
        }[objective]
        return f"{other.name}: {what}"
    a, b = chosen.allocation, other.allocation
    off_a, off_b = max(a.balance, 1 / a.balance), max(b.balance, 1 / b.balance)
    if off_b > off_a * (1 + 1e-3):
        return f"{other.name}: as fast, but further off balance ({off_b:.2f} against {off_a:.2f})"
    if b.cores > a.cores:
        return f"{other.name}: as fast, with {b.cores} cores instead of {a.cores}"
    return f"{other.name}: as good, and later in order"


def _notes(profile: Profile, chosen: Choice, cores: int) -> list[str]:
    found = []
    a = chosen.allocation
    own = next(c for c in profile.learners if c.backend == chosen.backend)
    near = closest(
        profile.actors.rates(cores - 1),
        own.rates(cores - 1),
        cores=cores,
        update_interval=a.update_interval,
    )
    if not 1 / BALANCED <= near.balance <= BALANCED:
        found.append(_imbalance(near))
    if cores > profile.cores:
        found.append(f"shared out {cores} cores, though the profile was made for {profile.cores}")
    if chosen.predicted.assumed and not chosen.simulated:
        found.append(
            f"the prediction assumes {chosen.predicted.assumed}: both at once not measured"
        )
    held = {o.interval for o in profile.overlaps if o.backend == chosen.backend}
    if held and a.update_interval not in held:
        found.append(
            f"what waiting at the gate costs was measured at update_interval "
            f"{' and '.join(f'{u:g}' for u in sorted(held))}: a profile at {a.update_interval:g} "
            "predicts better"
        )
    if chosen.simulated:
        found.append(f"{chosen.backend}: {chosen.source}")
    wide = [p for p in profile.actors.points if p.x == a.actors and p.spread > 0.3]
    wide += [
        p
        for c in profile.learners
        if c.backend == chosen.backend
        for p in c.points
        if p.x == a.learners and p.spread > 0.3
    ]
    if wide:
        spread = max(p.spread for p in wide)
        found.append(f"measurements spread by {spread:.0%} of their median: the machine was busy")
    return found


def _imbalance(a: Allocation) -> str:
    """How far the nearest allocation is from the wanted interval, and what would have to change."""
    meant = a.actor_rate / a.learner_rate
    text = (
        f"no allocation balances update_interval {a.update_interval:g}: the nearest, {a.actors} + "
        f"{a.learners}, has f_a / f_l = {meant:.3g}, so the "
    )
    if a.bottleneck == "learners":
        return text + (
            f"actors wait {1 - 1 / a.balance:.0%} of the time; update_interval {meant:.3g}, or "
            f"updates {_times(a.balance)} as fast (smaller batch or layers, another backend), "
            "would balance it"
        )
    return text + (
        f"learners wait {1 - a.balance:.0%} of the time; update_interval {meant:.3g}, or env "
        f"steps {_times(1 / a.balance)} as fast (more --num-envs, a faster environment), would "
        "balance it"
    )


def _times(factor: float) -> str:
    return f"{factor:,.1f} times" if factor < 1e6 else f"{factor:.2g} times"


def _fitting(choice: Choice, cores: int) -> Choice:
    if choice.allocation.cores > cores:
        got = f"{choice.allocation.actors} actors and {choice.allocation.learners} learners"
        raise ValueError(f"{got} on {cores} cores")
    return choice


def _choice(data: Mapping[str, Any]) -> Choice:
    return Choice(
        values.text(data, "backend"),
        _allocation(values.record(data, "allocation")),
        _predicted(values.record(data, "predicted")),
        values.text(data, "source"),
        values.record(data, "options"),
    )


def _allocation(data: Mapping[str, Any]) -> Allocation:
    sides = {name: values.whole(data, name) for name in ("actors", "learners")}
    rates = ("actor_rate", "learner_rate", "update_interval")
    return Allocation(
        **{**data, **sides, **{n: values.number(data, n, above_zero=True) for n in rates}}
    )


def _predicted(data: Mapping[str, Any]) -> Predicted:
    stages = values.record(data, "stages")
    rates = ("env_steps_per_s", "updates_per_s")
    shares = ("actor_busy", "learner_busy")
    return Predicted(
        **{
            **data,
            **{n: values.number(data, n, above_zero=True, largest=DERIVED) for n in rates},
            **{n: values.number(data, n, largest=1.0 + 1e-6) for n in shares},
            "stages": {n: values.number(stages, n, largest=DERIVED) for n in stages},
        }
    )
