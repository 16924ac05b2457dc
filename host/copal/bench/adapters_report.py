# SPDX-License-Identifier: MIT
"""Measures other frameworks' training steps with their own buffers and with copal's, in rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from copal.bench import machine
from copal.bench.config import AdaptersBench
from copal.bench.peers import Peer, absence
from copal.bench.peers.share import share
from copal.bench.process import Driver, peer_command
from copal.bench.runner import Cell, Measured, absent_rows, cost_slower, interleave, say
from copal.bench.table import Report, Row

OWN = "own"


@dataclass(frozen=True)
class Framework:
    """One framework, and what of copal's can be put into it."""

    parts: tuple[str, ...]
    """Its own buffer first, then with copal's parts."""
    max_rows: int
    """Largest buffer of its own that fills in reasonable time."""
    ops: tuple[str, ...] = ("update", "step")
    """What is measured."""


FRAMEWORKS = {
    "rllib": Framework((OWN, "buffer", "dqn"), 100_000, ("step",)),
    "tianshou": Framework((OWN, "buffer", "dqn"), 1_000_000),
    "torchrl": Framework((OWN, "buffer", "storage"), 1_000_000),
    "sb3": Framework((OWN, "dqn"), 200_000),
}


def measure(config: AdaptersBench) -> Report:
    """Measures each framework by itself, its variants side by side.

    Returns:
        Rows `{"name", "parts", "op", "batch_size", "rows", "us", "us_min", "ratio"}`; the ratio
        says how many times faster the variant is than the framework with its own buffer.
    """
    report = Report(machine.describe(), {}, [])
    share(config.peer_root, list(config.peers))
    for name in config.peers:
        reason = absence(config.peer_root, name)
        if reason is not None:
            report.rows.append({"name": name, "absent": reason})
            continue
        for batch_size in config.batch_sizes:
            say(f"{name}, batches of {batch_size}")
            _measure(name, batch_size, config, report)
    return report


def _measure(name: str, batch_size: int, config: AdaptersBench, report: Report) -> None:
    framework = FRAMEWORKS[name]
    rows = min(config.rows, framework.max_rows)
    shared = [
        *("--env", config.env),
        *("--batch-size", str(batch_size)),
        *("--hidden", *map(str, config.hidden)),
        *("--n-step", str(config.n_step)),
        *("--rows", str(rows)),
    ]
    drivers = []
    for parts in framework.parts:
        arguments = [*shared, "--parts", parts]
        command = peer_command(Peer(name, name), f"step_{name}", config.peer_root, arguments)
        drivers.append(Driver(parts, command))
    cells = [Cell(op, config.steps) for op in framework.ops]
    measured = interleave(drivers, cells, config.rounds)
    report.versions[name] = next(iter(measured.versions.values()), {})
    for row in _rows(measured):
        label = {"name": name, "batch_size": batch_size, "rows": rows}
        report.rows.append({**row, **label, "name": f"{name}, {row['name']}"})


def _rows(measured: Measured) -> list[Row]:
    rows: list[Row] = []
    for (parts, cell), answers in measured.values.items():
        figures = [answer["us"] for answer in answers]
        base = [answer["us"] for answer in measured.values.get((OWN, cell), [])]
        faster = [cost_slower(b, f) for b, f in zip(base, figures, strict=False)]
        rows.append(
            {
                "name": parts,
                "op": cell.op,
                "us": statistics.median(figures),
                "us_min": min(figures),
                "ratio": statistics.median(faster) if faster else None,
            }
        )
    rows.sort(key=lambda row: str(row["op"]))
    return rows + absent_rows(measured)
