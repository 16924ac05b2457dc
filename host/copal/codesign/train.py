# SPDX-License-Identifier: MIT
"""Training by a plan, or after measuring briefly what the plan should be."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from copal import runtime
from copal.backends import registry
from copal.codesign import compare, simulated
from copal.codesign.config import ProfileConfig
from copal.codesign.document import refuse_another, write
from copal.codesign.drift import Achieved, Watch
from copal.codesign.measure import measure
from copal.codesign.plan import FILE, Plan, allocate
from copal.config import BACKEND_SETTINGS, TrainConfig
from copal.errors import BackendUnavailableError, ConfigError, PlanError
from copal.runtime import TrainResult, machine, run_folder
from copal.runtime.settings import known

AUTO_S = 8.0
"""Seconds of measurements before a run that is to find its own plan."""
AUTO_REPEATS = 3
"""Rounds of them."""


@dataclass(frozen=True)
class PlannedResult:
    """A run by a plan."""

    result: TrainResult
    """The run."""
    plan: Plan
    """What it followed."""
    achieved: Achieved | None
    """What it did; None if it never learnt for long enough to tell."""
    drift: tuple[str, ...] = ()
    """What was said about drifting stages meanwhile."""

    def summary(self) -> str:
        """The result, and predicted against achieved."""
        if self.achieved is None:
            told = "predicted against achieved: the run was too short to tell"
        else:
            told = compare.table(compare.lines(self.plan, self.achieved))
            if self.achieved.disturbed:
                told += (
                    f"\n{self.achieved.disturbed:,} of "
                    f"{self.achieved.disturbed + self.achieved.windows:,} records left out: an "
                    "evaluation or a checkpoint ran meanwhile"
                )
        return f"{self.result.summary()}\n\n{told}"


def train(
    config: TrainConfig, plan: Plan, *, named: Collection[str] = (), force: bool = False
) -> PlannedResult:
    """Trains as the plan says.

    Args:
        config: Everything that the plan does not decide.
        plan: Actors, learners, backend, and the settings that it was measured with.
        named: Settings of `config` that were named on purpose; the plan has to agree with them.
        force: Take a plan of another machine or version, or of simulated rates.

    Raises:
        PlanError: The plan is of another machine or version, or says not enough for a run.
        ConfigError: A named setting contradicts the plan.
        BackendUnavailableError: The plan's backend cannot be used here.
    """
    if not force:
        refuse_another("plan", plan.machine, machine.describe())
    chosen = run_folder.settle(follow(config, plan, named))
    out = known(chosen.out)
    _require(plan, chosen, force=force)
    watch = Watch(
        plan.chosen.predicted,
        update_interval=plan.update_interval,
        num_envs=chosen.num_envs,
        learning_starts=known(chosen.learning_starts),
        actors=chosen.actors,
    )

    def see(env_steps: int, figures: Mapping[str, Any]) -> Iterable[str]:
        # The folder exists by now: whoever looks at a run under way finds its plan.
        if not (out / FILE).exists():
            plan.save(out / FILE)
        return watch(env_steps, figures)

    result = runtime.train(chosen, watch=see)
    achieved = watch.achieved()
    write(result.out / compare.FILE, compare.to_dict(plan, achieved, watch.messages))
    return PlannedResult(result, plan, achieved, tuple(watch.messages))


def follow(config: TrainConfig, plan: Plan, named: Collection[str]) -> TrainConfig:
    """The settings of a run by the plan.

    Raises:
        PlanError: The plan was made from curves that do not say for which algorithm.
        ConfigError: A named setting contradicts the plan, or the run is not of its kind.
    """
    _refuse_set(config, "a plan says")
    if "algo" not in plan.settings or "env" not in plan.settings:
        raise PlanError(
            "plan",
            "one that was made from a profile",
            "one of curves that were only given",
            "`copal profile` measures what `copal allocate` needs for a run",
        )
    a = plan.chosen.allocation
    decided: dict[str, Any] = {
        **dict.fromkeys(BACKEND_SETTINGS),
        **plan.settings,
        **plan.chosen.options,
        "update_interval": plan.update_interval,
        "backend": plan.chosen.backend,
        "actors": a.actors,
        "learners": a.learners,
    }
    mine = config.to_dict()
    for name in named:
        if name in decided and mine[name] != decided[name]:
            raise ConfigError(
                name,
                f"`{decided[name]}`, as in the plan",
                f"`{mine[name]}`",
                "leave it out, or measure and allocate for it",
            )
    return TrainConfig.from_dict({**mine, **decided})


def _refuse_set(config: TrainConfig, who: str) -> None:
    """Refuses settings that leave nothing to decide.

    Raises:
        ConfigError: One is set.
    """
    for name in ("resume", "deterministic"):
        value = getattr(config, name)
        if value:
            expected = f"nothing where {who} how many threads there are"
            got = str(value) if isinstance(value, Path) else repr(value)
            raise ConfigError(name, expected, got, "leave out one of them")


def _require(plan: Plan, config: TrainConfig, *, force: bool) -> None:
    """Refuses a plan whose backend is not here.

    Raises:
        BackendUnavailableError: It has gone, or only its simulation is here.
    """
    if plan.chosen.simulated and not force:
        raise BackendUnavailableError(
            "backend",
            f"`{plan.chosen.backend}` as fast as the plan says",
            plan.chosen.source,
            "--force runs it simulated, far slower; `copal allocate` without --simulated chooses "
            "what runs here",
        )
    registry.require(plan.chosen.backend, **_options(config))


def _options(config: TrainConfig) -> dict[str, Any]:
    """The settings of the backend among those of a run."""
    options = {name: getattr(config, name) for name in BACKEND_SETTINGS}
    return {name: value for name, value in options.items() if value is not None}


def _check_auto(config: TrainConfig, actors: bool) -> None:
    """Refuses what measuring would not help to decide, before it takes its seconds.

    Raises:
        ConfigError: A setting leaves nothing to decide, or the learner's speed is simulated.
        BackendUnavailableError: The backend cannot be used here.
    """
    _refuse_set(config, "`auto` finds")
    registry.require(config.backend, **_options(config))
    if simulated.stands_in(config.backend, _options(config)):
        raise ConfigError(
            "actors" if actors else "learners", f"a number with backend `{config.backend}`",
            "`auto`", "no board, no speed to measure: its simulation takes one learner's thread",
        )  # fmt: skip


def _check_room(config: TrainConfig, cores: int, actors: bool, learners: bool) -> None:
    """Refuses a side that is given and leaves no core to the other one.

    Raises:
        PlanError: It does.
    """
    for name, found in (("actors", actors), ("learners", learners)):
        given = getattr(config, name)
        if not found and given >= cores:
            expected = f"at most {cores - 1} of {cores} cores, one is for the other side"
            raise PlanError(name, expected, str(given), "or give both numbers")


def train_auto(
    config: TrainConfig,
    *,
    actors: bool = True,
    learners: bool = True,
    named: Collection[str] = (),
) -> PlannedResult:
    """Measures for some seconds how many actors and learners are best, and trains with them.

    Args:
        config: The run.
        actors: Find the number of actors; otherwise it is the config's.
        learners: Find the number of learners; likewise.
        named: Settings that were named on purpose.

    Raises:
        PlanError: There is a single core, or what is given takes all of them.
        ConfigError: A setting does not fit.
        BackendUnavailableError: The backend cannot be used here.
    """
    _check_auto(config, actors)
    plain = {f.name: getattr(config, f.name) for f in fields(TrainConfig)}
    for name in ("actors", "learners", "backend", "out", "resume", "deterministic"):
        del plain[name]
    with tempfile.TemporaryDirectory() as folder:
        brief = ProfileConfig(
            **plain,
            backends=(config.backend,),
            out=Path(folder) / "profile.json",
            repeats=AUTO_REPEATS,
            seconds=AUTO_S,
        )
        _check_room(config, brief.most, actors, learners)
        profile = measure(brief)
    plan = allocate(
        profile,
        update_interval=config.update_interval,
        actors=None if actors else config.actors,
        learners=None if learners else config.learners,
    )
    if not config.quiet:
        print(f"plan: {plan.chosen.name}", file=sys.stderr, flush=True)
    a = plan.chosen.allocation
    config = replace(config, actors=a.actors, learners=a.learners)
    return train(config, plan, named=named)
