# SPDX-License-Identifier: MIT
"""Measures prioritized replay buffers, each in a process of its own, in rounds."""

from __future__ import annotations

import statistics
from typing import Any

from copal.bench import machine, replay_threads
from copal.bench.config import ReplayBench
from copal.bench.peers import BY_NAME, absence
from copal.bench.process import Driver, own_command, peer_command
from copal.bench.runner import (
    BASELINE,
    Cell,
    Measured,
    absent_rows,
    cost_slower,
    interleave,
    ratio,
    say,
)
from copal.bench.table import Report, Row
from copal.runtime.machine import allowed_cpus

GROWTH_ROWS = 10_000_000
"""Measured on top when the growth is drawn."""


def measure(config: ReplayBench) -> Report:
    """Measures everything that the configuration asks for."""
    rows: list[Row] = []
    versions: dict[str, Any] = {}
    sizes = config.rows
    if config.plot is not None and GROWTH_ROWS not in sizes:
        sizes = (*sizes, GROWTH_ROWS)
    described = machine.describe()
    for size in sizes:
        say(f"replay of {size:,} rows")
        found, measured = _measure_size(config, size)
        rows += found
        versions.update(measured.versions)
    if config.scaling:
        rows += replay_threads.measure(max(config.rows))
    return Report(described, versions, rows)


def cells(config: ReplayBench, size: int) -> list[Cell]:
    """What is measured at one number of rows."""
    found = [Cell("insert", n) for n in config.insert_sizes if n <= size]
    for op in ("sample", "update", "cycle"):
        found += [Cell(op, n) for n in config.batch_sizes]
    return found


def _measure_size(config: ReplayBench, size: int) -> tuple[list[Row], Measured]:
    cpu = allowed_cpus()[-1] if config.cpu is None else config.cpu
    arguments = [
        *("--rows", str(size)),
        *("--cpus", str(cpu)),
        *("--block-ms", str(config.block_ms)),
    ]
    drivers = [Driver(BASELINE, own_command("copal.bench.own_replay", arguments))]
    absent: dict[str, str] = {}
    for name in config.peers:
        peer = BY_NAME[name]
        reason = absence(config.peer_root, peer.environment)
        if reason is None and size > peer.max_rows:
            reason = f"filling more than {peer.max_rows:,} rows takes minutes"
        if reason is not None:
            absent[name] = reason
        elif peer.replay is not None:
            command = peer_command(peer, peer.replay, config.peer_root, arguments)
            drivers.append(Driver(name, command))
    asked = cells(config, size)
    measured = interleave(drivers, asked, config.rounds)
    measured.absent.update(absent)
    return _rows(measured, asked, size), measured


def _rows(measured: Measured, asked: list[Cell], size: int) -> list[Row]:
    rows: list[Row] = []
    for cell in asked:
        for (name, measured_cell), answers in measured.values.items():
            if measured_cell != cell:
                continue
            costs = [answer["us"] for answer in answers]
            rows.append(
                {
                    "name": name,
                    "rows": size,
                    "op": cell.op,
                    "n": int(cell.n),
                    "us": statistics.median(costs),
                    "us_min": min(costs),
                    "ratio": ratio(measured, name, cell, "us", cost_slower),
                }
            )
    return rows + absent_rows(measured, rows=size)
