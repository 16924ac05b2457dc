# SPDX-License-Identifier: MIT
"""Run folders made up for the tests of reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copal.config import TrainConfig

BEGAN_S = 1.7e9
"""When every made-up run began, in seconds since the epoch."""
STEPS_PER_S = 1000
"""Env steps that it takes a second."""


def train(second: int, **figures: Any) -> dict[str, Any]:
    """The train record at the end of the n-th second."""
    steps = STEPS_PER_S * second
    return {
        "kind": "train",
        "time_s": BEGAN_S + second,
        "env_steps": steps,
        "return": float(second),
        "episodes": second,
        "updates": steps // 2,
        "env_steps_per_s": float(STEPS_PER_S),
        "updates_per_s": STEPS_PER_S / 2,
        "ratio": 2.0,
        "replay_rows": steps,
        "stale_updates": second,
        "beta": 0.5,
        "loss": 1.0 / second,
        "sample_s": 0.1 * second,
        "step_s": 0.5 * second,
        "wait_s": 0.3 * second,
        **figures,
    }


def evaluation(second: int, mean: float) -> dict[str, Any]:
    """An evaluation right after the n-th second."""
    steps = STEPS_PER_S * second + 3
    return {"kind": "eval", "time_s": BEGAN_S + second, "env_steps": steps, "mean_return": mean}


def final(second: int, mean: float) -> dict[str, Any]:
    """The score at the end."""
    record = {"kind": "final", "time_s": BEGAN_S + second, "env_steps": STEPS_PER_S * second}
    return {**record, "mean_return": mean, "std": 1.5, "episodes": 20}


def usual(seconds: int = 10, gain: float = 1.0) -> list[dict[str, Any]]:
    """Records of a finished run whose evaluations grow by `gain` a second."""
    records = []
    for second in range(1, seconds + 1):
        records += [train(second), evaluation(second, gain * second)]
    return [*records, final(seconds, gain * seconds)]


def made(
    folder: Path, records: Sequence[dict[str, Any]] | None = None, tail: str = "", **settings: Any
) -> Path:
    """Writes a run folder; `tail` follows the records, and `settings` are its config's.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True)
    chosen = {"env": "CartPole-v1", "eval_interval": STEPS_PER_S, "batch_size": 64, **settings}
    config = TrainConfig(**{"buffer_size": 100_000, "learning_starts": 1000, **chosen})
    (folder / "config.json").write_text(config.to_json())
    (folder / "machine.json").write_text(json.dumps({"cpu": "A CPU", "cores": 2}))
    lines = [json.dumps(record) + "\n" for record in (usual() if records is None else records)]
    (folder / "metrics.jsonl").write_text("".join(lines) + tail)
    return folder
