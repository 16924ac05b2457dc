# SPDX-License-Identifier: MIT
"""`copal bench codesign`: predicted throughput beside what runs by the plan achieve."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal.bench import machine
from copal.bench.runner import say
from copal.bench.table import Report, Row, absences, heading, markdown, number
from copal.codesign.config import ProfileConfig
from copal.codesign.measure import measure
from copal.codesign.plan import Plan, allocate
from copal.codesign.train import PlannedResult, train
from copal.config import TrainConfig
from copal.errors import ConfigError, CopalError
from copal.runtime.settings import known, settled

CASES = (
    "dqn:CartPole-v1",
    "dqn:LunarLander-v3",
    "sac:Pendulum-v1",
    "sac:HalfCheetah-v5",
)


@dataclass(frozen=True)
class CodesignBench:
    """Profile, allocate and train by the plan; predicted throughput beside the achieved one.

    Raises:
        ConfigError: A value is out of range.
    """

    cases: tuple[str, ...] = CASES
    """`algorithm:environment` each; one whose environment is not installed is a row saying so."""
    backend: str = "cpu"
    """What runs the learners."""
    update_interval: float = 1.0
    """Environment steps an update."""
    num_envs: int = 1
    """Environments of each actor."""
    hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers; None: the algorithm's own."""
    batch_size: int | None = None
    """Rows of a batch; None: the algorithm's own."""
    profile_seconds: float = 10.0
    """Time for the measurements of one profile."""
    seconds: float = 8.0
    """Predicted length of a run, after its start."""
    rounds: int = 2
    """Each case is profiled and run once a round; figures are medians over rounds."""
    json: bool = False
    """Print JSON on stdout instead of a table."""

    def __post_init__(self) -> None:
        if not self.cases or not all(":" in case for case in self.cases):
            expected = "`algorithm:environment` each"
            raise ConfigError("cases", expected, " ".join(self.cases) or "none", CASES[0])
        for name in ("profile_seconds", "seconds"):
            if not (0 < getattr(self, name) < float("inf")):
                raise ConfigError(name, "a finite number above 0", str(getattr(self, name)))
        if self.rounds < 1:
            raise ConfigError("rounds", "an integer of at least 1", str(self.rounds))


def run(config: CodesignBench) -> int:
    """Measures and prints; returns the exit status."""
    report = run_codesign(config)
    if config.json:
        print(report.to_json())
        return 0
    print(heading(report.machine))
    print(f"\n{_table(report.rows)}")
    return 0


def run_codesign(config: CodesignBench) -> Report:
    """Measures everything that the configuration asks for.

    Returns:
        Rows `{"name", "actors", "learners", "curves_alone", "predicted", "achieved", "off",
        "off_alone", "rounds"}`: env steps a second, `off` as a share of the achieved ones.
    """
    described = machine.describe()
    rounds: dict[str, list[Row]] = {}
    absent: dict[str, str] = {}
    for turn in range(config.rounds):
        for case in config.cases:
            if case in absent:
                continue
            say(f"round {turn + 1} of {config.rounds}: {case}")
            try:
                rounds.setdefault(case, []).append(_round(config, case))
            except CopalError as error:
                absent[case] = str(error).splitlines()[0]
    rows = [_row(case, found) for case, found in rounds.items() if found]
    rows += [{"name": case, "absent": reason} for case, reason in absent.items()]
    return Report(described, {"copal": machine.versions()}, rows)


def _round(config: CodesignBench, case: str) -> Row:
    algo, _, env = case.partition(":")
    shared: dict[str, Any] = {
        "algo": algo,
        "env": env,
        "num_envs": config.num_envs,
        "hidden": config.hidden,
        "batch_size": config.batch_size,
    }
    with tempfile.TemporaryDirectory() as folder:
        profile = measure(
            ProfileConfig(
                **shared,
                backends=(config.backend,),
                update_interval=config.update_interval,
                seconds=config.profile_seconds,
                repeats=3,
                out=Path(folder) / "profile.json",
                quiet=True,
            )
        )
        plan = allocate(profile, update_interval=config.update_interval)
        done = _train(config, shared, plan, Path(folder) / "run")
    achieved = done.achieved
    if achieved is None:
        raise ConfigError("seconds", "a run that learns for 3 s", f"{config.seconds:g}")
    a = plan.chosen.allocation
    return {
        "actors": a.actors,
        "learners": a.learners,
        "curves_alone": a.env_steps_per_s,
        "predicted": plan.chosen.predicted.env_steps_per_s,
        "achieved": achieved.env_steps_per_s,
    }


def _train(config: CodesignBench, shared: dict[str, Any], plan: Plan, out: Path) -> PlannedResult:
    """A run that only trains: no periodic evaluation, no checkpoint but the last one."""
    starts = known(settled(TrainConfig(**shared)).learning_starts)
    steps = starts + max(1_000, round(plan.chosen.predicted.env_steps_per_s * config.seconds))
    chosen = TrainConfig(
        **shared,
        steps=steps,
        eval_interval=0,
        final_eval_episodes=1,
        checkpoint_interval=0,
        tensorboard=False,
        quiet=True,
        out=out,
    )
    return train(chosen, plan)


def _row(case: str, found: list[Row]) -> Row:
    def middle(key: str) -> float:
        return float(statistics.median(row[key] for row in found))

    # Within a round prediction and run are neighbours, so their ratio is what can be compared.
    off = statistics.median(row["predicted"] / row["achieved"] - 1 for row in found)
    alone = statistics.median(row["curves_alone"] / row["achieved"] - 1 for row in found)
    return {
        "name": case,
        "actors": found[-1]["actors"],
        "learners": found[-1]["learners"],
        **{key: middle(key) for key in ("curves_alone", "predicted", "achieved")},
        "off": off,
        "off_alone": alone,
        "rounds": [row["predicted"] / row["achieved"] - 1 for row in found],
    }


def _table(rows: list[Row]) -> str:
    header = ("case", "x_a + x_l", "curves alone", "off", "predicted", "off", "achieved")
    lines = list(_cells(row for row in rows if "absent" not in row))
    return markdown(header, lines) + absences(rows) if lines else absences(rows).strip()


def _cells(rows: Iterator[Row]) -> Iterator[list[str]]:
    for row in rows:
        yield [
            row["name"],
            f"{row['actors']} + {row['learners']}",
            number(row["curves_alone"]),
            f"{row['off_alone']:+.0%}",
            number(row["predicted"]),
            f"{row['off']:+.0%}",
            number(row["achieved"]),
        ]
