# SPDX-License-Identifier: MIT
"""Measures how training and the learner alone scale with actors and learners."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from copal.bench import machine
from copal.bench.config import ScalingBench
from copal.bench.process import Driver, own_command
from copal.bench.runner import Cell, Measured, absent_rows, interleave, say
from copal.bench.table import Report, Row
from copal.bench.train_report import EPSILON_STEPS, LEARNING_STARTS

Setup = tuple[str, int, int]
"""Mode, actors (0: the learner alone), learners."""


def measure(config: ScalingBench) -> Report:
    """Measures everything that the configuration asks for."""
    described = machine.describe()
    rows = _learner_rows(config)
    say(f"training on {config.env}")
    cell = Cell("rate", config.seconds, timeout_s=60 + 20 * config.seconds)
    drivers = [Driver(name_of(s), _command(config, s)) for s in setups(config)]
    measured = interleave(drivers, [cell], config.rounds)
    rows += _train_rows(config, measured, cell)
    return Report(described, {"copal": machine.versions()}, rows)


def setups(config: ScalingBench) -> list[Setup]:
    """What is trained; one learner alone is the same in either mode."""
    return [
        (mode, actors, learners)
        for actors in config.actors_or_cores()
        for mode, learners in learner_setups(config)
    ]


def learner_setups(config: ScalingBench) -> Iterator[tuple[str, int]]:
    """Mode and number of learners."""
    for mode in config.modes:
        for learners in config.learners_or_cores():
            if learners > 1 or mode == config.modes[0]:
                yield mode, learners


def name_of(setup: Setup) -> str:
    """The name of a row."""
    mode, actors, learners = setup
    return f"{actors} x {learners} {mode}" if actors else f"learner {learners} {mode}"


def _command(config: ScalingBench, setup: Setup) -> list[str]:
    mode, actors, learners = setup
    flags: dict[str, Any] = {
        "algo": config.algo,
        "env": config.env,
        "batch-size": config.batch_size,
        "update-interval": config.update_interval,
        "learning-starts": LEARNING_STARTS,
        "epsilon-steps": EPSILON_STEPS,
        "actors": actors,
        "num-envs": config.num_envs,
        "learners": learners,
        "learner-mode": mode,
    }
    arguments = ["--hidden", *map(str, config.hidden)]
    for name, value in flags.items():
        arguments += [f"--{name}", str(value)]
    return own_command("copal.bench.own_train", arguments)


def _learner_rows(config: ScalingBench) -> list[Row]:
    from copal.bench import learner_build  # brings PyTorch in, which `--help` can do without
    from copal.bench.scaling_learner import LoopRate

    say("the learner alone")
    built = learner_build.build(config.algo, config.hidden)
    loops = {s: LoopRate(built, config.batch_size, s[1], s[0]) for s in learner_setups(config)}
    rates: dict[tuple[str, int], list[float]] = {s: [] for s in loops}
    for _ in range(config.rounds):
        for setup, loop in loops.items():
            rates[setup].append(loop.per_second(config.seconds / 4))
    base = rates[next(iter(rates))]
    return [
        {
            **_labels((mode, 0, learners)),
            "op": "learner",
            "updates_per_s": statistics.median(values),
            "speedup": speedup(values, base),
        }
        for (mode, learners), values in rates.items()
    ]


def _train_rows(config: ScalingBench, measured: Measured, cell: Cell) -> list[Row]:
    rows: list[Row] = []
    found = {s: measured.values.get((name_of(s), cell), []) for s in setups(config)}
    base = [answer["updates_per_s"] for answer in next(iter(found.values()))]
    for setup, answers in found.items():
        if not answers:
            continue
        row: Row = {**_labels(setup), "op": "train"}
        for key in ("env_steps_per_s", "updates_per_s"):
            row[key] = statistics.median(answer[key] for answer in answers)
        values = [answer["updates_per_s"] for answer in answers]
        rows.append({**row, "speedup": speedup(values, base)})
    return rows + absent_rows(measured, op="train")


def _labels(setup: Setup) -> Row:
    mode, actors, learners = setup
    return {"name": name_of(setup), "mode": mode, "actors": actors, "learners": learners}


def speedup(rates: list[float], base: list[float]) -> float | None:
    """How many times faster, the median of the ratios within each round; None without a base."""
    pairs = list(zip(rates, base, strict=False))
    return statistics.median(a / b for a, b in pairs) if pairs else None
