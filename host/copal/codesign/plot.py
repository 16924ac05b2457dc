# SPDX-License-Identifier: MIT
"""Draws f_a, f_l, the solution and the frontier.

The kind of picture of Figure 12 in C. Zhang, S. R. Kuppannagari, V. K. Prasanna, *Parallel
Actors and Learners*, HiPC 2021.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from copal.bench.plot import require_matplotlib, save
from copal.codesign.plan import Choice, Plan
from copal.codesign.profile import Curve, Profile

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Told apart by everybody; the first one is f_a."""


def draw(profile: Profile, plan: Plan, path: Path) -> None:
    """Writes the picture.

    Args:
        profile: The curves.
        plan: The solution.
        path: Image file; its suffix chooses the format.

    Raises:
        ConfigError: matplotlib is not installed, or does not know the format.
    """
    figure = require_matplotlib()(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curves(left, profile, plan)
    _frontier(right, profile, plan)
    settings = plan.settings
    if "env" in settings:
        figure.suptitle(f"{settings['algo']} on {settings['env']}, {plan.cores} cores")
    save(figure, path)


def _curves(axes: Any, profile: Profile, plan: Plan) -> None:
    u = plan.update_interval
    label = "f_l" if u == 1 else f"{u:g} f_l"
    _line(axes, profile.actors, 1.0, COLOURS[0], "f_a: actors")
    shown = [c for c in profile.learners if c.points]
    for curve, colour in zip(shown, COLOURS[1:] * len(shown), strict=False):
        simulated = ", simulated" if curve.simulated else ""
        _line(axes, curve, u, colour, f"{label}: learners on {curve.backend}{simulated}")
    a = plan.chosen.allocation
    axes.plot([a.actors], [a.actor_rate], "k*", markersize=13, label="chosen")
    axes.plot([a.learners], [u * a.learner_rate], "k*", markersize=13)
    axes.axhline(a.env_steps_per_s, color="k", linewidth=0.8, linestyle=":")
    axes.set(xlabel="threads x", ylabel="env steps/s", title="each side alone", ylim=(0, None))
    _finish(axes, plan.cores)


def _line(axes: Any, curve: Curve, scale: float, colour: str, label: str) -> None:
    x = [p.x for p in curve.points]
    middle = [scale * p.median for p in curve.points]
    errors = [
        [scale * (p.median - min(p.rates)) for p in curve.points],
        [scale * (max(p.rates) - p.median) for p in curve.points],
    ]
    style = "--" if curve.simulated else "-"
    axes.errorbar(x, middle, errors, fmt="o", linestyle=style, color=colour, capsize=3, label=label)


def frontier(profile: Profile, curve: Curve, plan: Plan) -> list[tuple[int, float]]:
    """For each number of actors, the throughput with the learners that are left, by the curves.

    Args:
        profile: With f_a.
        curve: f_l of a backend.
        plan: With the cores and the interval.

    Returns:
        (x_a, env steps/s), for x_a = 1 to cores - 1.
    """
    acting, learning = profile.actors.rates(plan.cores - 1), curve.rates(plan.cores - 1)
    return [
        (x, min(rate, plan.update_interval * max(learning[: plan.cores - x])))
        for x, rate in enumerate(acting, 1)
    ]


def _frontier(axes: Any, profile: Profile, plan: Plan) -> None:
    shown = [c for c in profile.learners if c.points]
    for curve, colour in zip(shown, COLOURS[1:] * len(shown), strict=False):
        x, y = zip(*frontier(profile, curve, plan), strict=True)
        style = "--" if curve.simulated else "-"
        axes.plot(x, y, marker="o", linestyle=style, color=colour, label=curve.backend)
    _mark(axes, plan.chosen, "k*", "chosen, predicted")
    if plan.runner_up is not None:
        _mark(axes, plan.runner_up, "kx", "runner-up, predicted")
    axes.set(
        xlabel="actors x_a, the other cores learn",
        ylabel="env steps/s",
        title="frontier",
        ylim=(0, None),
    )
    _finish(axes, plan.cores - 1)


def _mark(axes: Any, choice: Choice, style: str, label: str) -> None:
    x, y = [choice.allocation.actors], [choice.predicted.env_steps_per_s]
    axes.plot(x, y, style, markersize=11, label=label, linestyle="none")


def _finish(axes: Any, most: int) -> None:
    axes.set_xlim(0.5, most + 0.5)
    axes.set_xticks(range(1, most + 1, 1 + most // 12))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
