# SPDX-License-Identifier: MIT
"""The frameworks that copal is measured against: where each lives and which drivers it has."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LAUNCHER = FOLDER / "run.py"
REQUIREMENTS = FOLDER / "requirements"
REASON_FILE = "absent.txt"
"""Left in an environment whose installation failed; holds the reason."""


@dataclass(frozen=True)
class Peer:
    """One thing to compare with."""

    name: str
    """Name of its rows."""
    environment: str | None
    """Virtual environment it runs in; None: copal's own, since it needs nothing else."""
    replay: str | None = None
    """Driver of its replay buffer."""
    train: Mapping[str, str] = field(default_factory=dict)
    """Driver of its training for each algorithm that it is measured with."""
    curve: Mapping[str, str] = field(default_factory=dict)
    """Driver of its learning curve for each algorithm that it is compared in."""
    max_rows: int = 100_000_000
    """Largest replay buffer that is filled in reasonable time."""


PEERS = (
    Peer("cpprb", "cpprb", replay="replay_cpprb"),
    Peer("tianshou", "tianshou", replay="replay_tianshou", train={"dqn": "train_tianshou"}),
    Peer("torchrl", "torchrl", replay="replay_torchrl"),
    Peer("rllib", "rllib", replay="replay_rllib", train={"dqn": "train_rllib"}, max_rows=1_000_000),
    Peer("rllib-old", "rllib", replay="replay_rllib_old", max_rows=1_000_000),
    Peer("cleanrl-style", None, train={"dqn": "train_cleanrl", "sac": "train_cleanrl_sac"}),
    Peer("sb3", "sb3", train={"dqn": "train_sb3", "sac": "train_sb3"}, curve={"sac": "curve_sb3"}),
    Peer("rltools", "rltools", train={"sac": "train_rltools"}),
    Peer("rltools-openblas", "rltools", train={"sac": "train_rltools_openblas"}),
)

BY_NAME = {peer.name: peer for peer in PEERS}


def environments() -> list[str]:
    """Names of the environments that can be installed, one a requirements file."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def interpreter(root: Path, environment: str | None) -> Path:
    """The Python of an environment below `root`, whether it exists or not."""
    if environment is None:
        return Path(sys.executable)
    folder = root / environment
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def absence(root: Path, environment: str | None) -> str | None:
    """Why an environment cannot be used; None if it can be tried."""
    if environment is None:
        return None
    reason = root / environment / REASON_FILE
    if reason.exists():
        return reason.read_text(encoding="utf-8").strip()
    if not interpreter(root, environment).exists():
        return f"not installed; python -m copal.bench.peers.install {environment}"
    return None
