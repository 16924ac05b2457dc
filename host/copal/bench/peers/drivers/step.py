# SPDX-License-Identifier: MIT
"""What the drivers of single training steps share: the command line, rows to fill, the clock.

Requests are `{"op": "update", "n": 50}`: draw a batch, learn from it, set its priorities; or
`{"op": "step", "n": 50}`: the same after a step of the environment. Answers hold `us` a step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np
from numpy.typing import NDArray

from .protocol import Reply, requests

GAMMA = 0.99
LEARNING_RATE = 5e-4
TARGET_INTERVAL = 500
ALPHA, BETA = 0.6, 0.4
WARM_STEPS = 30

Runs = dict[str, Callable[[], None]]


@dataclass(frozen=True)
class Settings:
    """One framework's DQN with one of the buffers."""

    env: str
    """Gymnasium id."""
    batch_size: int
    """Rows of a batch."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    rows: int
    """Rows of the buffer, which is full."""
    n_step: int
    """Rewards summed before the bootstrap."""
    parts: str
    """`own`, or which of copal's parts: `buffer`, and on top of it `dqn` or `storage`."""
    threads: int
    """Threads of torch."""


def settings(arguments: list[str], description: str | None) -> tuple[Settings, str]:
    """The settings on a command line, and its `--ops`."""
    top = argparse.ArgumentParser(description=description)
    top.add_argument("--ops", default="", help="step:50,update:50 instead of requests on stdin")
    top.add_argument("--env", default="LunarLander-v3")
    top.add_argument("--batch-size", type=int, default=256)
    top.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    top.add_argument("--rows", type=int, default=100_000)
    top.add_argument("--n-step", type=int, default=1)
    top.add_argument("--parts", default="own")
    top.add_argument("--threads", type=int, default=1)
    chosen = vars(top.parse_args(arguments))
    ops = chosen.pop("ops")
    return Settings(**{**chosen, "hidden": tuple(chosen["hidden"])}), ops


def play(env: str, steps: int) -> dict[str, NDArray[np.generic]]:
    """Steps with random actions: obs, action, reward, next_obs, terminated, truncated, [steps]."""
    world = gymnasium.make(env)
    world.action_space.seed(1)
    obs, _ = world.reset(seed=1)
    rows = []
    for _ in range(steps):
        action = world.action_space.sample()
        after, reward, terminated, truncated, _ = world.step(action)
        rows.append((obs, action, reward, after, terminated, truncated))
        obs = world.reset()[0] if terminated or truncated else after
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    dtypes = (np.float32, np.int64, np.float32, np.float32, bool, bool)
    columns = zip(*rows, strict=True)
    return {n: np.array(c, t) for n, c, t in zip(names, columns, dtypes, strict=True)}


def answer(runs: Runs, ops: str, versions: dict[str, str], reply: Reply) -> None:
    """Warms up, and then times what is asked for.

    Args:
        runs: One step of each kind.
        ops: The command line's `--ops`.
        versions: Installed versions.
        reply: Takes the rows.
    """
    for run in runs.values():
        for _ in range(WARM_STEPS):
            run()
    reply({"ready": True, "versions": versions})
    for request in requests(ops):
        run, n = runs[request["op"]], int(request["n"])
        start = time.perf_counter()
        for _ in range(n):
            run()
        us = (time.perf_counter() - start) / n * 1e6
        reply({"op": request["op"], "n": n, "us": us})
