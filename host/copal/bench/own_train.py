# SPDX-License-Identifier: MIT
"""copal's training under the same requests as the other frameworks."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import copal
from copal.bench.machine import versions
from copal.bench.peers.drivers.protocol import Reply, requests, serve
from copal.config import TrainConfig

WARM_STEPS = 4_000
"""Steps of the run that the length of the measured ones is chosen by."""


def rate_config(options: argparse.Namespace, steps: int) -> TrainConfig:
    """A run that only trains: no periodic evaluation, no checkpoints but the last, no events.

    Exploration is over early, so that nearly every action costs an inference.
    """
    chosen: dict[str, Any] = {}
    if options.algo == "dqn":
        chosen["epsilon_fraction"] = min(1.0, options.epsilon_steps / steps)
    else:  # as the others do: they draw uniformly
        chosen["prioritized"] = False
        chosen["learning_rate"] = options.learning_rate
        chosen["target_tau"] = options.target_tau
        chosen["target_update_interval"] = options.target_update_interval
    return TrainConfig(
        algo=options.algo,
        env=options.env,
        steps=steps,
        actors=options.actors,
        num_envs=options.num_envs,
        learners=options.learners,
        learner_mode=options.learner_mode,
        update_interval=options.update_interval,
        batch_size=options.batch_size,
        hidden=tuple(options.hidden),
        learning_starts=options.learning_starts,
        eval_interval=0,
        final_eval_episodes=1,
        checkpoint_interval=0,
        tensorboard=False,
        quiet=True,
        **chosen,
    )


def rate(options: argparse.Namespace, steps: int) -> dict[str, Any]:
    """Trains for so many steps in a folder that is thrown away; returns the rates."""
    with tempfile.TemporaryDirectory() as folder:
        result = copal.train(replace(rate_config(options, steps), out=Path(folder) / "run"))
        return {
            # Steps before learning starts are much faster: count the others alone.
            "env_steps_per_s": result.updates_per_s * options.update_interval,
            "updates_per_s": result.updates_per_s,
            "env_steps": result.env_steps,
        }


def solve(config: TrainConfig) -> dict[str, Any]:
    """Trains to the return in the config; returns the row."""
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        result = copal.train(replace(config, out=Path(folder) / "run"))
        return {
            "op": "solve",
            "n": config.seed,
            "mean_return": result.mean_return,
            "env_steps": result.env_steps,
            "updates": result.updates,
            "wall_s": result.wall_s,
            "process_s": time.perf_counter() - start_s,
        }


def main(arguments: list[str], reply: Reply) -> None:
    """Measures copal's rate, or trains to a score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="rate:seconds,solve:seed,... instead of stdin")
    parser.add_argument("--algo", default="dqn")
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--update-interval", type=int, default=1)
    parser.add_argument("--learning-starts", type=int, default=1000)
    parser.add_argument("--epsilon-steps", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--target-tau", type=float, default=0.005)
    parser.add_argument("--target-update-interval", type=int, default=1)
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--learners", type=int, default=1)
    parser.add_argument("--learner-mode", default="sync")
    parser.add_argument("--solve", default="", help="a TrainConfig as JSON")
    options = parser.parse_args(arguments)
    wanted = options.solve
    guess_per_s = 0.0 if wanted else rate(options, WARM_STEPS)["env_steps_per_s"]
    reply({"ready": True, "versions": versions()})
    for request in requests(options.ops):
        n = request["n"]
        if request["op"] == "solve":
            reply(solve(TrainConfig.from_dict({**json.loads(wanted), "seed": int(n)})))
            continue
        row = rate(options, options.learning_starts + max(1, round(guess_per_s * n)))
        guess_per_s = row["env_steps_per_s"]
        reply({"op": "rate", "n": n, **row})


if __name__ == "__main__":
    sys.exit(serve("copal.bench.own_train", sys.argv[1:]))
