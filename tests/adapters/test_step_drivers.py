# SPDX-License-Identifier: MIT
"""The drivers of `copal bench adapters` answer, each with as many of copal's parts as there are."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from copal.bench.adapters_report import FRAMEWORKS, OWN, _rows
from copal.bench.peers import LAUNCHER, absence, interpreter
from copal.bench.runner import Cell, Measured

ROOT = Path(__file__).resolve().parents[2]
PEER_ROOT = Path(os.environ.get("COPAL_PEER_ROOT", ROOT / ".venv-peers"))


@pytest.mark.parametrize("peer", sorted(FRAMEWORKS))
def test_driver_answers_every_operation(package: Path, peer: str) -> None:
    """Each operation of the framework comes back with a time, with all parts in it."""
    reason = absence(PEER_ROOT, peer)
    if reason is not None:
        pytest.skip(f"{peer}: {reason}")
    framework = FRAMEWORKS[peer]
    flags = ["--env", "CartPole-v1", "--hidden", "8", "--rows", "10000", "--batch-size", "16"]
    ops = ",".join(f"{op}:3" for op in framework.ops)
    done = subprocess.run(
        [
            *(str(interpreter(PEER_ROOT, peer)), "-W", "ignore", str(LAUNCHER), f"step_{peer}"),
            *(*flags, "--parts", framework.parts[-1], "--ops", ops),
        ],
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr[-2000:]
    assert "absent" not in rows[0], rows[0]
    assert [row.get("op") for row in rows[1:]] == list(framework.ops)
    assert all(row["us"] > 0 for row in rows[1:])


def test_ratios_are_taken_round_by_round() -> None:
    """A variant's ratio is the median of the framework's own time over its, in each round."""
    cell, measured = Cell("update", 10), Measured()
    measured.values[OWN, cell] = [{"us": 100.0}, {"us": 400.0}, {"us": 90.0}]
    measured.values["dqn", cell] = [{"us": 50.0}, {"us": 100.0}, {"us": 45.0}]
    measured.absent["buffer"] = "it ended"
    rows = {row["name"]: row for row in _rows(measured)}
    assert rows["dqn"]["ratio"] == 2.0
    assert rows["dqn"]["us"] == 50.0
    assert rows[OWN]["ratio"] == 1.0
    assert rows["buffer"]["absent"] == "it ended"
