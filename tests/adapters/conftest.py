# SPDX-License-Identifier: MIT
"""Runs cases with each framework's own Python, which has neither pytest nor copal."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from copal.bench.peers import absence, interpreter
from copal.bench.peers.share import copy_package

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER_ROOT = Path(os.environ.get("COPAL_PEER_ROOT", ROOT / ".venv-peers"))
TIMEOUT_S = 280

Outcomes = dict[str, str]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this copal, importable by another environment."""
    return copy_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def outcomes(package: Path) -> Callable[[str], Outcomes]:
    """From a framework's name to what its cases said: an empty text, or how they failed."""
    known: dict[str, Outcomes] = {}

    def run(peer: str) -> Outcomes:
        reason = absence(PEER_ROOT, peer)
        if reason is not None:
            pytest.skip(f"{peer}: {reason}")
        if peer not in known:
            known[peer] = _run(peer, package)
        return known[peer]

    return run


def _run(peer: str, package: Path) -> Outcomes:
    environment = {**os.environ, "PYTHONPATH": str(package), "RAY_usage_stats_enabled": "0"}
    done = subprocess.run(
        [str(interpreter(PEER_ROOT, peer)), str(HERE / "cases.py"), f"in_{peer}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    rows = [json.loads(x[6:]) for x in done.stdout.splitlines() if x.startswith("@case ")]
    assert rows, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return {row["case"]: row["failure"] for row in rows}
