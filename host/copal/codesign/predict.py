# SPDX-License-Identifier: MIT
"""What a run will do with an allocation: the curves, corrected for both sides working at once."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from copal.codesign.pipeline import Outcome, Pipeline, simulate
from copal.codesign.profile import Curve, Overlap, Profile, Stages
from copal.codesign.solve import Allocation
from copal.codesign.stages import ACTING, LEARNING, STAGES

FIT_UPDATES = 1_000
"""Length of a simulation while the cost of waking is searched for."""
FIT_ROUNDS = 12
"""Halvings of that search."""


@dataclass(frozen=True)
class Predicted:
    """Rates and stages of a run."""

    env_steps_per_s: float
    """Over all actors."""
    updates_per_s: float
    """Over all learners."""
    actor_busy: float
    """Share of the time that an actor works; otherwise it waits at the gate."""
    learner_busy: float
    """Share of the time that a learner works."""
    bottleneck: str
    """The side that waits less: `actors` or `learners`."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of each stage, an env step or an update."""
    assumed: str = ""
    """What was not measured; empty: nothing."""


def predict(profile: Profile, curve: Curve, allocation: Allocation) -> Predicted:
    """Runs the pipeline with the rates of the profile.

    How much one side slows the other down is taken from the measurements of both at once, between
    two of them in proportion to the number of actors; what waking costs from those with a gate.

    Args:
        profile: What was measured.
        curve: f_l of the backend.
        allocation: Actors and learners.
    """
    near = _near(profile, curve.backend, allocation.actors)
    paper = _pipeline(profile, allocation, _slowdowns(profile, curve, near, allocation.actors))
    if near:
        paper = replace(
            paper, notify_s=_notify_s(profile, curve, _nearest(near, allocation.actors))
        )
    found = simulate(paper)
    stages = _expected(profile, curve, allocation, found, near)
    assumed = "" if near else "that neither side slows the other down"
    return Predicted(
        found.env_steps_per_s,
        found.updates_per_s,
        found.actor_busy,
        found.learner_busy,
        found.bottleneck,
        stages,
        assumed,
    )


def _pipeline(profile: Profile, allocation: Allocation, slowdowns: tuple[float, float]) -> Pipeline:
    """The machine on paper, waking for nothing."""
    settings = profile.settings
    num_envs = int(settings.get("num_envs", 1))
    at_once = allocation.learners if settings.get("learner_mode") == "async" else 1
    return Pipeline(
        actors=allocation.actors,
        step_s=allocation.actors * num_envs / allocation.actor_rate,
        update_s=at_once / allocation.learner_rate,
        learners=at_once,
        num_envs=num_envs,
        update_interval=allocation.update_interval,
        actor_slowdown=slowdowns[0],
        learner_slowdown=slowdowns[1],
        wake_s=profile.wake_us * 1e-6,
    )


def _notify_s(profile: Profile, curve: Curve, overlap: Overlap) -> float:
    """What waking somebody costs, so that the simulation does what was measured with the gate."""
    acting = {p.x: p.median for p in profile.actors.points}.get(overlap.actors)
    learning = {p.x: p.median for p in curve.points}.get(overlap.learners)
    if not overlap.held_steps_per_s or acting is None or learning is None:
        return 0.0
    wanted = statistics.median(overlap.held_steps_per_s)
    held = Allocation(overlap.actors, overlap.learners, acting, learning, overlap.interval)
    paper = _pipeline(profile, held, _slowdowns(profile, curve, [overlap], overlap.actors))
    if simulate(paper, FIT_UPDATES).env_steps_per_s <= wanted:
        return 0.0
    low, high = 0.0, 4 * (paper.step_s + paper.update_s)
    for _ in range(FIT_ROUNDS):
        middle = (low + high) / 2
        rate = simulate(replace(paper, notify_s=middle), FIT_UPDATES).env_steps_per_s
        low, high = (middle, high) if rate > wanted else (low, middle)
    return (low + high) / 2


def _near(profile: Profile, backend: str, actors: int) -> list[Overlap]:
    """The measurements of both at once with the next lower and the next higher number of actors."""
    known = sorted((o for o in profile.overlaps if o.backend == backend), key=lambda o: o.actors)
    below = [o for o in known if o.actors <= actors][-1:]
    above = [o for o in known if o.actors >= actors][:1]
    return below + (above if above != below else [])


def _nearest(near: list[Overlap], actors: int) -> Overlap:
    return min(near, key=lambda o: abs(o.actors - actors))


def _slowdowns(
    profile: Profile, curve: Curve, near: list[Overlap], actors: int
) -> tuple[float, float]:
    """How many times longer a step takes beside all learners, and an update beside all actors."""
    found = []
    acting = {p.x: p.median for p in profile.actors.points}
    learning = {p.x: p.median for p in curve.points}
    for overlap in near:
        if overlap.actors not in acting or overlap.learners not in learning:
            continue
        steps = statistics.median(overlap.env_steps_per_s)
        updates = statistics.median(overlap.updates_per_s)
        found.append(
            (
                overlap.actors,
                max(1.0, acting[overlap.actors] / steps),
                max(1.0, learning[overlap.learners] / updates),
            )
        )
    if not found:
        return 1.0, 1.0
    if len(found) == 1:
        return found[0][1:]
    (low, *below), (high, *above) = found
    part = (actors - low) / (high - low)
    one, two = (b + part * (a - b) for b, a in zip(below, above, strict=True))
    return one, two


def _expected(
    profile: Profile, curve: Curve, allocation: Allocation, found: Outcome, near: list[Overlap]
) -> dict[str, float]:
    """Microseconds of each stage: as measured with the gate, or mixed from alone and both."""
    overlap = _nearest(near, allocation.actors) if near else None
    if overlap is not None and overlap.held_stages:
        key = (overlap.actors, overlap.learners, overlap.interval)
        if key == (allocation.actors, allocation.learners, allocation.update_interval):
            held = overlap.held_stages
            return {n: statistics.median(held[n]) for n in STAGES if held.get(n)}
    both = {} if overlap is None else overlap.stages
    return {
        **_mixed(ACTING, _stages(profile.actors, allocation.actors), both, found.learner_busy),
        **_mixed(LEARNING, _stages(curve, allocation.learners), both, found.actor_busy),
    }


def _stages(curve: Curve, x: int) -> Stages:
    return next((p.stages for p in curve.points if p.x == x), {})


def _mixed(names: tuple[str, ...], alone: Stages, both: Stages, share: float) -> dict[str, float]:
    """Microseconds of stages, of which the share `share` runs while the other side works."""
    found = {}
    for name in names:
        if alone.get(name):
            own = statistics.median(alone[name])
            beside = statistics.median(both[name]) if both.get(name) else own
            found[name] = own + share * (beside - own)
    return found
