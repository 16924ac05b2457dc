# SPDX-License-Identifier: MIT
"""What the drivers of learning curves share: their command line and their rows."""

from __future__ import annotations

import argparse
from typing import Any

SETTINGS = (
    "algo",
    "env",
    "hidden",
    "learning_rate",
    "batch_size",
    "buffer_size",
    "learning_starts",
    "gamma",
    "target_tau",
    "eval_interval",
    "eval_episodes",
)
"""What makes two curves comparable; written at the head of each."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the settings of a curve; the names are those of `copal train`."""
    top = argparse.ArgumentParser(description=description)
    top.add_argument("--algo", default="sac")
    top.add_argument("--env", default="HalfCheetah-v5")
    top.add_argument("--steps", type=int, default=200_000)
    top.add_argument("--seed", type=int, default=1)
    top.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    top.add_argument("--learning-rate", type=float, default=3e-4)
    top.add_argument("--batch-size", type=int, default=256)
    top.add_argument("--buffer-size", type=int, default=1_000_000)
    top.add_argument("--learning-starts", type=int, default=10_000)
    top.add_argument("--gamma", type=float, default=0.99)
    top.add_argument("--target-tau", type=float, default=0.005)
    top.add_argument("--eval-interval", type=int, default=10_000)
    top.add_argument("--eval-episodes", type=int, default=10)
    top.add_argument("--threads", type=int, default=1)
    return top


def head(options: argparse.Namespace, versions: dict[str, str]) -> dict[str, Any]:
    """The first row of a curve: it says what was run."""
    settings = {name: getattr(options, name) for name in SETTINGS}
    return {"ready": True, "versions": versions, "settings": settings}
