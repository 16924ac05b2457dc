# SPDX-License-Identifier: MIT
"""Learning curves over environment steps, copal's beside others' at the same settings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copal.bench import curve_runs, machine
from copal.bench.config import CurveBench, curve_peers
from copal.bench.peers import BY_NAME, absence
from copal.bench.process import DriverFailedError, own_command, peer_command
from copal.bench.runner import BASELINE, say
from copal.bench.table import Report, Row, absences, markdown

MARKS = 4
"""Columns of the table: a quarter of the steps each."""


def measure(config: CurveBench) -> Report:
    """Runs or reads every curve that the configuration asks for."""
    described = machine.describe()
    names = (BASELINE, *(curve_peers(config.algo) if config.peers is None else config.peers))
    versions: dict[str, Any] = {}
    rows: list[Row] = []
    for seed in config.seeds:
        for name in names:
            say(f"{name}: {config.algo} on {config.env}, seed {seed}")
            try:
                curve = _curve(config, name, seed)
            except DriverFailedError as error:
                say(f"  absent: {error}")
                rows.append({"name": name, "seed": seed, "absent": str(error)})
                continue
            versions[name] = curve.head.get("versions", {})
            rows += [{"name": name, **point, "seed": seed} for point in curve.points]
    return Report(described, versions, rows)


def arguments(config: CurveBench, seed: int) -> list[str]:
    """Flags that every driver takes."""
    flags = ["--steps", str(config.steps), "--seed", str(seed)]
    for name, value in config.settings().items():
        values = value if isinstance(value, list) else [value]
        flags += [f"--{name.replace('_', '-')}", *map(str, values)]
    return flags


def _curve(config: CurveBench, name: str, seed: int) -> curve_runs.Curve:
    found = _loaded(config, name, seed)
    if found is not None:
        return found
    file = curve_runs.path(config.save, name, seed)
    return curve_runs.run(_command(config, name, seed), config.steps, file)


def _loaded(config: CurveBench, name: str, seed: int) -> curve_runs.Curve | None:
    if config.load is None:
        return None
    file = curve_runs.path(config.load, name, seed)
    if not file.exists():
        return None
    try:
        found = curve_runs.Curve.parse(file.read_text(encoding="utf-8"))
    except DriverFailedError as error:
        say(f"  {file} is run again: {error}")
        return None
    reason = found.fits(config.settings(), config.steps)
    say(f"  {file} is run again: {reason}" if reason else f"  read from {file}")
    return None if reason else found


def _command(config: CurveBench, name: str, seed: int) -> list[str]:
    flags = arguments(config, seed)
    if name == BASELINE:
        return own_command("copal.bench.own_curve", flags)
    peer = BY_NAME[name]
    reason = absence(config.peer_root, peer.environment)
    if reason is not None:
        raise DriverFailedError(reason)
    root = Path(config.peer_root).absolute()
    return peer_command(peer, peer.curve[config.algo], root, flags)


def summary(rows: Sequence[Row], steps: int, interval: int) -> list[Row]:
    """The return at each quarter of the steps, over seeds.

    Args:
        rows: A report's rows.
        steps: Environment steps of a run.
        interval: Environment steps between two evaluations; the nearest one counts.

    Returns:
        Rows `{"name", "env_steps", "seeds", "mean_return", "lowest", "highest"}`.
    """
    found = []
    for name in dict.fromkeys(row["name"] for row in rows):
        curves: dict[int, list[Row]] = {}
        for row in rows:
            if row["name"] == name and "mean_return" in row:
                curves.setdefault(row["seed"], []).append(row)
        for quarter in range(1, MARKS + 1):
            mark = steps * quarter // MARKS
            values = [v for points in curves.values() for v in _at(points, mark, interval)]
            if values:
                found.append(
                    {
                        "name": name,
                        "env_steps": mark,
                        "seeds": len(values),
                        "mean_return": statistics.fmean(values),
                        "lowest": min(values),
                        "highest": max(values),
                    }
                )
    return found


def _at(points: Sequence[Row], mark: int, interval: int) -> list[float]:
    """The return nearest to so many steps, in a list that is empty if none is near."""
    nearest = min(points, key=lambda point: abs(point["env_steps"] - mark))
    near = abs(nearest["env_steps"] - mark) < interval / 2
    return [float(nearest["mean_return"])] if near else []


def table(rows: Sequence[Row], steps: int, interval: int) -> str:
    """A line for each implementation, a column for each quarter of the steps."""
    cells: dict[str, dict[int, str]] = {}
    for row in summary(rows, steps, interval):
        spread = f" ({row['lowest']:,.0f} to {row['highest']:,.0f})" if row["seeds"] > 1 else ""
        text = f"{row['mean_return']:,.0f}{spread}"
        cells.setdefault(row["name"], {})[row["env_steps"]] = text
    marks = [steps * quarter // MARKS for quarter in range(1, MARKS + 1)]
    header = ["mean return (lowest to highest seed)", *(f"{mark:,} steps" for mark in marks)]
    lines = [[name, *(at.get(mark, "-") for mark in marks)] for name, at in cells.items()]
    return markdown(header, lines) + absences(rows)
