# SPDX-License-Identifier: MIT
"""Predicted against achieved, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from copal.bench.table import markdown, number
from copal.codesign.drift import Achieved
from copal.codesign.plan import Plan
from copal.codesign.stages import ACTING, LEARNING

FILE = "achieved.json"
"""Its name in a run folder."""


@dataclass(frozen=True)
class Line:
    """One figure of a run beside its prediction."""

    name: str
    """Of a rate, the ratio or a stage."""
    predicted: float
    """By the plan."""
    achieved: float
    """By the run."""

    @property
    def off(self) -> float:
        """How far the achieved one is from the predicted one, as a share of that."""
        return self.achieved / self.predicted - 1


def lines(plan: Plan, achieved: Achieved) -> list[Line]:
    """Rates, ratio, and microseconds of each stage that both know."""
    told = plan.chosen.predicted
    found = [
        Line("env steps/s", told.env_steps_per_s, achieved.env_steps_per_s),
        Line("updates/s", told.updates_per_s, achieved.updates_per_s),
        Line(
            "ratio",
            plan.update_interval,
            achieved.env_steps_per_s / max(achieved.updates_per_s, 1e-9),
        ),
    ]
    for names, unit in ((ACTING, "us an env step"), (LEARNING, "us an update")):
        for name in names:
            then, now = told.stages.get(name), achieved.stages.get(name)
            if then and now is not None:
                found.append(Line(f"{name}, {unit}", then, now))
    return found


def table(found: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    cells = [[x.name, number(x.predicted), number(x.achieved), f"{x.off:+.0%}"] for x in found]
    return markdown(("predicted against achieved", "predicted", "achieved", "off"), cells)


def to_dict(plan: Plan, achieved: Achieved | None, drift: Sequence[str]) -> dict[str, Any]:
    """What `FILE` holds; `achieved` is None if the run never learnt."""
    found = [] if achieved is None else lines(plan, achieved)
    return {
        "predicted": asdict(plan.chosen.predicted),
        "achieved": None if achieved is None else asdict(achieved),
        "lines": [{**asdict(line), "off": line.off} for line in found],
        "drift": list(drift),
    }
