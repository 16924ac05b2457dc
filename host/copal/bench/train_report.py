# SPDX-License-Identifier: MIT
"""Measures training of copal and of other frameworks, each in its own process, in rounds."""

from __future__ import annotations

import json
import statistics
from typing import Any

from copal.bench import machine
from copal.bench.config import TrainBench, train_peers
from copal.bench.peers import BY_NAME, absence
from copal.bench.process import Driver, own_command, peer_command
from copal.bench.runner import (
    BASELINE,
    Cell,
    Measured,
    absent_rows,
    cost_slower,
    interleave,
    rate_slower,
    ratio,
    say,
)
from copal.bench.table import Report, Row
from copal.config import TrainConfig
from copal.runtime.settings import settled

LEARNING_STARTS = 1000
EPSILON_STEPS = 1000
"""Exploration ends with the random start, so that every action measured costs an inference."""

SAC_ARGUMENTS = (
    *("--learning-rate", "3e-4"),
    *("--target-tau", "0.005"),
    *("--target-update-interval", "1"),
)
"""What SAC's users choose, where the drivers' own choice is for DQN."""

SOLVER = "cleanrl-style"
"""The loop that runs copal's own settings and seeds to a score."""


def measure(config: TrainBench) -> Report:
    """Measures everything that the configuration asks for."""
    described = machine.describe()
    say(f"training {config.algo} on {config.env}")
    measured, cell = _rates(config)
    rows = _rate_rows(measured, cell)
    versions: dict[str, Any] = dict(measured.versions)
    if config.solve_seeds:
        say(f"training to a return of {config.solve_return:g}")
        solved = _solve(config)
        rows += _solve_rows(solved)
        versions.update(solved.versions)
    return Report(described, versions, rows)


def shared_arguments(config: TrainBench) -> list[str]:
    """Flags that copal's driver and the others have in common."""
    return [
        *("--algo", config.algo),
        *("--env", config.env),
        *("--batch-size", str(config.batch_size)),
        *("--hidden", *map(str, config.hidden)),
        *("--update-interval", str(config.update_interval)),
        *("--learning-starts", str(LEARNING_STARTS)),
        *("--epsilon-steps", str(EPSILON_STEPS)),
        *(SAC_ARGUMENTS if config.algo == "sac" else ()),
    ]


def own_arguments(config: TrainBench) -> list[str]:
    """Flags of copal's driver alone."""
    return [
        *("--actors", str(config.actors)),
        *("--num-envs", str(config.num_envs)),
        *("--learners", str(config.learners)),
    ]


def _rates(config: TrainBench) -> tuple[Measured, Cell]:
    shared = shared_arguments(config)
    own = own_command("copal.bench.own_train", [*shared, *own_arguments(config)])
    drivers, absent = [Driver(BASELINE, own)], {}
    for name in train_peers(config.algo) if config.peers is None else config.peers:
        peer = BY_NAME[name]
        reason = absence(config.peer_root, peer.environment)
        if reason is not None:
            absent[name] = reason
        else:
            arguments = [*shared, "--threads", str(config.peer_threads)]
            command = peer_command(peer, peer.train[config.algo], config.peer_root, arguments)
            drivers.append(Driver(name, command))
    cell = Cell("rate", config.seconds, timeout_s=60 + 10 * config.seconds)
    measured = interleave(drivers, [cell], config.rounds)
    measured.absent.update(absent)
    return measured, cell


def _rate_rows(measured: Measured, cell: Cell) -> list[Row]:
    rows: list[Row] = []
    for (name, _), answers in measured.values.items():
        row: Row = {"name": name, "op": "rate"}
        for key in ("env_steps_per_s", "updates_per_s"):
            row[key] = statistics.median(answer[key] for answer in answers)
        row["ratio"] = ratio(measured, name, cell, "env_steps_per_s", rate_slower)
        rows.append(row)
    rows.sort(key=lambda row: -row["env_steps_per_s"])
    return rows + absent_rows(measured, op="rate")


def solve_config(config: TrainBench) -> TrainConfig:
    """The settings of copal's run to a score, which the torch loop repeats."""
    return TrainConfig(
        env=config.env,
        steps=config.solve_steps,
        actors=config.actors,
        num_envs=config.num_envs,
        learners=config.learners,
        update_interval=config.update_interval,
        batch_size=config.batch_size,
        hidden=config.hidden,
        stop_at_return=config.solve_return,
        tensorboard=False,
        quiet=True,
    )


def solver_arguments(chosen: TrainConfig) -> list[str]:
    """The same settings as flags of the torch loop; its replay stays uniform."""
    chosen = settled(chosen)
    flags: list[str] = ["--solve", *(("--double",) if "double" in chosen.algo else ())]
    if chosen.max_grad_norm:
        flags += ["--max-grad-norm", str(chosen.max_grad_norm)]
    if chosen.stop_at_return is not None:
        flags += ["--stop-at-return", str(chosen.stop_at_return)]
    epsilon_steps = max(1, round(chosen.epsilon_fraction * chosen.steps))
    values: dict[str, Any] = {
        "env": chosen.env,
        "steps": chosen.steps,
        "batch-size": chosen.batch_size,
        "learning-rate": chosen.learning_rate,
        "gamma": chosen.gamma,
        "n-step": chosen.n_step,
        "target-tau": chosen.target_tau,
        "target-update-interval": chosen.target_update_interval,
        "buffer-size": chosen.buffer_size,
        "learning-starts": chosen.learning_starts,
        "update-interval": round(chosen.update_interval),
        "epsilon-end": chosen.epsilon_end,
        "epsilon-steps": epsilon_steps,
        "eval-interval": chosen.eval_interval,
        "eval-episodes": chosen.eval_episodes,
        "final-eval-episodes": chosen.final_eval_episodes,
    }
    for name, value in values.items():
        flags += [f"--{name}", str(value)]
    return [*flags, "--hidden", *map(str, chosen.hidden or ())]


def _solve(config: TrainBench) -> Measured:
    chosen = solve_config(config)
    loop = BY_NAME[SOLVER]
    own = own_command("copal.bench.own_train", ["--solve", json.dumps(chosen.to_dict())])
    other = peer_command(loop, loop.train["dqn"], config.peer_root, solver_arguments(chosen))
    # A hundred steps a second at the least.
    cells = [Cell("solve", s, timeout_s=60 + chosen.steps / 100) for s in config.solve_seeds]
    return interleave([Driver(BASELINE, own), Driver(SOLVER, other)], cells, rounds=1)


def _solve_rows(measured: Measured) -> list[Row]:
    rows: list[Row] = []
    for (name, cell), answers in measured.values.items():
        answer = {key: value for key, value in answers[0].items() if key not in ("op", "n")}
        wall = ratio(measured, name, cell, "wall_s", cost_slower)
        rows.append({"name": name, "op": "solve", "seed": int(cell.n), **answer, "ratio": wall})
    rows.sort(key=lambda row: (row["seed"], row["name"]))
    return rows + absent_rows(measured, op="solve")
