# SPDX-License-Identifier: MIT
"""The function behind each verb of `copal bench`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from copal.bench import (
    adapters_report,
    curve_report,
    fpga_report,
    learner_report,
    replay_report,
    scaling_report,
    train_report,
)
from copal.bench.config import (
    AdaptersBench,
    CurveBench,
    FpgaBench,
    LearnerBench,
    ReplayBench,
    ScalingBench,
    TrainBench,
)
from copal.bench.plot import curves, growth, require_matplotlib
from copal.bench.table import Report, absences, cell, flat_table, heading, markdown, replay_table


@dataclass(frozen=True)
class Bench:
    """One verb of `copal bench`."""

    run: Callable[[Any], int]
    """Takes the configuration, prints the report, returns the exit status."""
    help: str
    """One line for `copal bench --help`."""
    config: type
    """The configuration's dataclass."""


def run_replay(config: ReplayBench) -> Report:
    """Measures prioritized replay buffers side by side; draws `config.plot` if asked.

    Returns:
        Rows `{"name", "rows", "op", "n", "us", "us_min", "ratio"}`; the ratio says how many times
        slower than copal a row is.

    Raises:
        ConfigError: A plot is wanted and matplotlib is not installed.
    """
    if config.plot is not None:
        require_matplotlib()
    report = replay_report.measure(config)
    if config.plot is not None:
        growth(report.rows, "cycle", config.plot)
    return report


def run_learner(config: LearnerBench) -> Report:
    """Measures one learner update.

    Returns:
        Rows `{"name", "us", "us_min", "gflops", "ratio"}`; those with an `n` time the policy on so
        many observations.
    """
    return learner_report.measure(config)


def run_train(config: TrainBench) -> Report:
    """Measures training.

    Returns:
        Rows `{"name", "op": "rate", "env_steps_per_s", "updates_per_s", "ratio"}` and, for each of
        `config.solve_seeds`, `{"name", "op": "solve", "seed", "mean_return", "wall_s", ...}`.
    """
    return train_report.measure(config)


def run_curve(config: CurveBench) -> Report:
    """Runs or reads learning curves; draws `config.plot` if asked.

    Returns:
        Rows `{"name", "seed", "env_steps", "mean_return", "std", "wall_s"}`, one an evaluation.

    Raises:
        ConfigError: A plot is wanted and matplotlib is not installed.
    """
    if config.plot is not None:
        require_matplotlib()
    report = curve_report.measure(config)
    if config.plot is not None:
        curves(report.rows, f"{config.algo} on {config.env}", config.plot)
    return report


def run_scaling(config: ScalingBench) -> Report:
    """Measures how training scales with actors and learners.

    Returns:
        Rows `{"name", "op", "mode", "actors", "learners", "updates_per_s", "speedup"}`; `op` is
        `learner` for the learner alone and `train`, with `env_steps_per_s`, for whole trainings.
        `speedup` is over the first row of its `op`.
    """
    return scaling_report.measure(config)


def run_adapters(config: AdaptersBench) -> Report:
    """Measures other frameworks' training steps with copal's replay in them.

    Returns:
        Rows `{"name", "op", "batch_size", "rows", "us", "us_min", "ratio"}`; the ratio says how
        many times faster than with the framework's own buffer.
    """
    return adapters_report.measure(config)


def run_fpga(config: FpgaBench) -> Report:
    """Measures the FPGA engine; nothing here ran on a board.

    Returns:
        Rows by `op`: `cycles` `{"name", "lanes", "cycles", "lane_use", "source", ...}`, `board`
        with `cpu_updates_per_s`, `speed` of the simulated devices, and `gradient` `{"error",
        "error_worst"}`, relative to float64.
    """
    return fpga_report.measure(config)


def _print(report: Report, json: bool, *tables: str) -> int:
    if json:
        print(report.to_json())
    else:
        print(heading(report.machine))
        for table in tables:
            print(f"\n{table}")
    return 0


def _replay(config: ReplayBench) -> int:
    report = run_replay(config)
    return _print(report, config.json, replay_table(report.rows))


def _learner(config: LearnerBench) -> int:
    report = run_learner(config)
    acting = [row for row in report.rows if "n" in row]
    updates = [row for row in report.rows if "n" not in row]
    columns = ("us", "us_min", "gflops")
    tables = flat_table(updates, columns), flat_table(acting, ("n", *columns))
    return _print(report, config.json, *tables)


def _train(config: TrainBench) -> int:
    report = run_train(config)
    solved = [row for row in report.rows if row.get("op") == "solve" and "wall_s" in row]
    tables = [
        flat_table(
            [row for row in report.rows if row not in solved],
            ("env_steps_per_s", "updates_per_s"),
        )
    ]
    if solved:
        tables.append(flat_table(solved, ("seed", "mean_return", "env_steps", "wall_s")))
    return _print(report, config.json, *tables)


def _curve(config: CurveBench) -> int:
    report = run_curve(config)
    table = curve_report.table(report.rows, config.steps, config.eval_interval)
    return _print(report, config.json, table)


def _scaling(config: ScalingBench) -> int:
    report = run_scaling(config)
    header = ("actors", "learners", "mode", "env steps/s", "updates/s", "speed-up")
    keys = ("actors", "learners", "mode", "env_steps_per_s", "updates_per_s", "speedup")
    found = [row for row in report.rows if "absent" not in row]
    lines = [[cell(row.get(key)) for key in keys] for row in found]
    return _print(report, config.json, markdown(header, lines) + absences(report.rows))


def _adapters(config: AdaptersBench) -> int:
    report = run_adapters(config)
    columns = ("op", "batch_size", "rows", "us", "us_min")
    table = flat_table(report.rows, columns, "times faster than its own")
    return _print(report, config.json, table)


_FPGA_TABLES = {
    "cycles": (
        "lanes", "source", "cycles", "lane_use", "clock_mhz", "updates_per_s", "kilobytes",
    ),
    "board": (
        "lanes", "source", "cycles", "lane_use", "clock_mhz", "updates_per_s",
        "cpu_updates_per_s", "times the cpu",
    ),
    "speed": ("lanes", "updates_per_s", "times sim"),
    "gradient": ("updates", "batches", "error", "error_worst"),
}  # fmt: skip
"""Columns of each kind of row, besides the name."""


def _fpga(config: FpgaBench) -> int:
    report = run_fpga(config)
    tables = []
    for op, columns in _FPGA_TABLES.items():
        rows = [row for row in report.rows if row["op"] == op]
        if not rows:
            continue
        ratio = next((c for c in columns if c.startswith("times")), None)
        keys = ["ratio" if c == ratio else c for c in columns]
        lines = [
            [row["name"], *(cell(row.get(k)) for k in keys)] for row in rows if "absent" not in row
        ]
        tables.append(markdown((op, *columns), lines) + absences(rows))
    return _print(report, config.json, *tables)


BENCHES = {
    "replay": Bench(_replay, "insert, sample and update of prioritized replay", ReplayBench),
    "learner": Bench(_learner, "one learner update beside torch, NumPy and GEMM", LearnerBench),
    "train": Bench(_train, "steps a second of training beside other frameworks", TrainBench),
    "scaling": Bench(_scaling, "training over numbers of actors and learners", ScalingBench),
    "curve": Bench(_curve, "learning curves beside other frameworks", CurveBench),
    "fpga": Bench(_fpga, "the FPGA engine: cycles, predicted rates, gradients", FpgaBench),
    "adapters": Bench(_adapters, "frameworks' training steps, with copal's replay", AdaptersBench),
}
