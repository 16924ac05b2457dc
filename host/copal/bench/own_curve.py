# SPDX-License-Identifier: MIT
"""copal's learning curve under the same settings as the other frameworks': uniform replay."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import copal
from copal.bench.machine import versions
from copal.bench.peers.drivers.curve import head, parser
from copal.bench.peers.drivers.protocol import Reply, serve
from copal.config import TrainConfig
from copal.runtime import metrics


def train_config(options: argparse.Namespace, out: Path) -> TrainConfig:
    """The run that the command line asks for, with nothing that would cost time besides."""
    return TrainConfig(
        algo=options.algo,
        env=options.env,
        steps=options.steps,
        seed=options.seed,
        out=out,
        hidden=tuple(options.hidden),
        learning_rate=options.learning_rate,
        batch_size=options.batch_size,
        buffer_size=options.buffer_size,
        learning_starts=options.learning_starts,
        gamma=options.gamma,
        target_tau=options.target_tau,
        target_update_interval=1,
        prioritized=False,
        eval_interval=options.eval_interval,
        eval_episodes=options.eval_episodes,
        final_eval_episodes=1,
        checkpoint_interval=0,
        tensorboard=False,
        quiet=True,
    )


def rows(folder: Path, seed: int) -> list[dict[str, Any]]:
    """The evaluations that a run noted in its folder, one row each."""
    lines = (folder / metrics.FILE).read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    began_s = found[0]["time_s"] if found else 0.0
    return [
        {
            "op": "curve",
            "seed": seed,
            "env_steps": row["env_steps"],
            "mean_return": row["mean_return"],
            "std": row["std"],
            "wall_s": row["time_s"] - began_s,
        }
        for row in found
        if row["kind"] == "eval"
    ]


def main(arguments: list[str], reply: Reply) -> None:
    """Trains once and replies with the curve."""
    options = parser(__doc__).parse_args(arguments)
    reply(head(options, versions()))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        copal.train(train_config(options, out))
        for row in rows(out, options.seed):
            reply(row)


if __name__ == "__main__":
    sys.exit(serve("copal.bench.own_curve", sys.argv[1:]))
