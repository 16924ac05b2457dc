# SPDX-License-Identifier: MIT
"""`copal profile` and `copal allocate`: what they print."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from copal.bench.plot import require_matplotlib
from copal.bench.table import heading, markdown, number
from copal.codesign.config import AllocateConfig, ProfileConfig
from copal.codesign.document import refuse_another
from copal.codesign.measure import DEFAULT_OUT, measure
from copal.codesign.plan import Choice, Plan, allocate
from copal.codesign.plot import draw
from copal.codesign.profile import Curve, Profile
from copal.runtime import machine

DEFAULT_PLAN = Path("plan.json")


def run_profile(config: ProfileConfig) -> int:
    """Measures, keeps the profile, prints it; returns the exit status."""
    out = config.out or DEFAULT_OUT
    try:
        profile = measure(config)
    except KeyboardInterrupt:
        if out.exists():
            print(f"{out} keeps what was measured; the same command goes on", file=sys.stderr)
        raise
    print(profile_text(profile))
    print(f"\nprofile: {out}; next: copal allocate {out}")
    return 0


def run_allocate(config: AllocateConfig) -> int:
    """Decides, keeps the plan, prints it; returns the exit status."""
    if config.plot is not None:
        require_matplotlib()
    profile = Profile.load(config.profile)
    if not config.force:
        refuse_another("profile", profile.machine, machine.describe())
    plan = allocate(
        profile,
        update_interval=config.update_interval,
        objective=config.objective,
        cores=config.cores,
        simulated=config.simulated,
    )
    out = config.out or DEFAULT_PLAN
    plan.save(out)
    if config.plot is not None:
        draw(profile, plan, config.plot)
    if config.json:
        print(json.dumps(plan.to_dict(), indent=2))
        return 0
    print(plan_text(plan))
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    what = f"; next: copal train --plan {out}" if "env" in plan.settings else ""
    print(f"plan: {out}{what}")
    return 0


def profile_text(profile: Profile) -> str:
    """The machine, the curves, both at once, the stages."""
    parts = [_title(profile), _curves_table(profile)]
    if profile.overlaps:
        parts.append(_overlap_table(profile))
    if profile.costs:
        parts.append(_costs_table(profile))
    parts += [f"{c.backend}: {c.source}" for c in profile.learners if c.simulated and not c.absent]
    parts += [f"{c.backend}: absent: {c.absent}" for c in profile.learners if c.absent]
    return "\n\n".join(parts)


def _title(profile: Profile) -> str:
    s = profile.settings
    layers = "-".join(map(str, s["hidden"])) if s.get("hidden") else "own layers"
    return (
        f"{heading(dict(profile.machine))}\n{s['algo']} on {s['env']}, {layers}, batch "
        f"{s['batch_size']}, {s['num_envs']} environments an actor; medians of {profile.repeats}, "
        "and their spread"
    )


def _curves_table(profile: Profile) -> str:
    shown = [c for c in profile.learners if c.points]
    header = ["x", "f_a, env steps/s", *(f"f_l of {c.backend}, updates/s" for c in shown)]
    rows = [
        [str(x), *(_point(curve, x) for curve in (profile.actors, *shown))]
        for x in range(1, profile.cores + 1)
    ]
    return markdown(header, rows)


def _point(curve: Curve, x: int) -> str:
    point = next((p for p in curve.points if p.x == x), None)
    if point is None:
        return "-"
    spread = "simulated" if curve.simulated else f"{point.spread:.0%}"
    return f"{number(point.median)} ({spread})"


def _overlap_table(profile: Profile) -> str:
    header = ("both at once, no gate", "actors", "learners", "env steps/s", "updates/s")
    rows = []
    for o in profile.overlaps:
        rates = (o.env_steps_per_s, o.updates_per_s)
        steps, updates = (number(statistics.median(r)) for r in rates)
        rows.append([o.backend, str(o.actors), str(o.learners), steps, updates])
    return markdown(header, rows)


def _costs_table(profile: Profile) -> str:
    rows = [[c.stage, c.backend or "-", number(c.median_us), c.unit] for c in profile.costs]
    return markdown(("stage alone", "backend", "us", "for a"), rows)


def plan_text(plan: Plan) -> str:
    """The choice, what it will do, and why not another."""
    a, told = plan.chosen.allocation, plan.chosen.predicted
    work = plan.settings
    what = f"{work['algo']} on {work['env']}, " if "env" in work else ""
    text = [
        f"{what}{plan.cores} cores, update_interval {plan.update_interval:g}, by {plan.objective}",
        f"chosen: {_threads(plan.chosen)}",
        f"  the curves: f_a({a.actors}) = {number(a.actor_rate)} env steps/s, "
        f"f_l({a.learners}) = {number(a.learner_rate)} updates/s",
        f"  predicted: {number(told.env_steps_per_s)} env steps/s, "
        f"{number(told.updates_per_s)} updates/s; the {told.bottleneck} limit it: actors work "
        f"{told.actor_busy:.0%} of the time, learners {told.learner_busy:.0%}",
    ]
    if plan.runner_up is not None:
        text.append(f"runner-up: {plan.why}")
    second = None if plan.runner_up is None else plan.runner_up.backend
    text += [f"also: {_other(other)}" for other in plan.others if other.backend != second]
    text += [f"not compared: {name}: {reason}" for name, reason in plan.absent.items()]
    if plan.devices:
        best = plan.devices[0]
        simulated = ", simulated" if best.simulated else ""
        text.append(
            f"devices: replay on {best.replay}, learner on {best.learner}{simulated}: "
            f"{number(best.iteration_us)} us an iteration, {number(best.samples_per_s)} rows/s at "
            "best"
        )
    return "\n".join(text)


def _threads(choice: Choice) -> str:
    a = choice.allocation
    actors = f"{a.actors} actor{'s' if a.actors > 1 else ''}"
    learners = f"{a.learners} learner{'s' if a.learners > 1 else ''}"
    return f"{actors} and {learners} on {choice.backend}"


def _other(choice: Choice) -> str:
    rate = number(choice.predicted.env_steps_per_s)
    label = f" ({choice.source})" if choice.simulated else ""
    return f"{_threads(choice)}: {rate} env steps/s predicted{label}"
