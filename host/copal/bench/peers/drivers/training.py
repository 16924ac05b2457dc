# SPDX-License-Identifier: MIT
"""What the training drivers share: settings, the command line, and the clock that paces them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .protocol import Reply, requests

ALGORITHMS = ("dqn", "sac")


class StopTraining(Exception):  # noqa: N818 - not a failure: it ends a loop that a peer owns
    """Raised where only an exception gets out of a peer's training loop."""


@dataclass(frozen=True)
class Settings:
    """A run's settings, the same for every framework; the names are those of `copal train`."""

    algo: str
    """`dqn` or `sac`; the settings on epsilon are for DQN alone."""
    env: str
    """Gymnasium id."""
    batch_size: int
    """Rows of a batch."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    learning_rate: float
    """Step size of Adam."""
    gamma: float
    """Discount of a reward one step later."""
    double: bool
    """The online network chooses the action that the target network values (double DQN)."""
    n_step: int
    """Rewards summed before the bootstrap."""
    max_grad_norm: float | None
    """Clip gradients to this Euclidean norm; None: no clipping."""
    target_tau: float
    """Averaging rate of the target network; 1 copies."""
    target_update_interval: int
    """Updates between two averagings of the target network."""
    buffer_size: int
    """Rows that the replay buffer holds."""
    learning_starts: int
    """Steps with random actions before the first update."""
    update_interval: int
    """Environment steps an update."""
    epsilon_end: float
    """Share of random actions once the decay is over."""
    epsilon_steps: int
    """Steps over which that share falls from 1."""
    seed: int
    """Seed of networks, environments and exploration."""
    threads: int
    """Threads of torch."""
    warm_steps: int
    """Steps before a rate is taken; more than `learning_starts`."""

    def epsilon(self, step: int) -> float:
        """Share of random actions at a step."""
        return max(self.epsilon_end, 1.0 - step / self.epsilon_steps * (1.0 - self.epsilon_end))


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with a flag for each of the `Settings`."""
    top = argparse.ArgumentParser(description=description)
    top.add_argument("--ops", default="", help="rate:seconds,... instead of requests on stdin")
    top.add_argument("--algo", default="dqn", choices=ALGORITHMS)
    top.add_argument("--env", default="LunarLander-v3")
    top.add_argument("--batch-size", type=int, default=64)
    top.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    top.add_argument("--learning-rate", type=float, default=5e-4)
    top.add_argument("--gamma", type=float, default=0.99)
    top.add_argument("--double", action="store_true")
    top.add_argument("--n-step", type=int, default=1)
    top.add_argument("--max-grad-norm", type=float, help="no clipping if absent")
    top.add_argument("--target-tau", type=float, default=1.0)
    top.add_argument("--target-update-interval", type=int, default=1000)
    top.add_argument("--buffer-size", type=int, default=100_000)
    top.add_argument("--learning-starts", type=int, default=1000)
    top.add_argument("--update-interval", type=int, default=1)
    top.add_argument("--epsilon-end", type=float, default=0.05)
    top.add_argument("--epsilon-steps", type=int, default=20_000)
    top.add_argument("--seed", type=int, default=1)
    top.add_argument("--threads", type=int, default=1)
    top.add_argument("--warm-steps", type=int, default=1200)
    return top


def settings(options: argparse.Namespace) -> Settings:
    """The settings that a command line of `parser` asks for."""
    values = {name: getattr(options, name) for name in Settings.__dataclass_fields__}
    values["hidden"] = tuple(options.hidden)
    return Settings(**values)


class Clock:
    """Paces a training loop: warm-up, then one measured stretch a request, standing still between.

    A peer's loop calls `step` after each environment step. Requests are `{"op": "rate",
    "n": seconds}`; while there is none, `step` does not return, so an idle peer costs nothing.

    Args:
        warm_steps: Environment steps before the first stretch.
        ops: The command line's `--ops`.
        versions: Sent once the warm-up is over.
        reply: Takes the rows.
    """

    def __init__(self, warm_steps: int, ops: str, versions: dict[str, str], reply: Reply) -> None:
        self._warm_steps, self._versions, self._reply = warm_steps, versions, reply
        self._requests: Iterator[dict[str, Any]] = requests(ops)
        self._seconds: float | None = None
        self._start_s = 0.0
        self._start: tuple[int, int] = (0, 0)

    def step(self, env_steps: int, updates: int) -> bool:
        """Notes the progress made.

        Args:
            env_steps: Environment steps since the start of the run.
            updates: Learner updates since the start of the run.

        Returns:
            True when nothing more is asked and the loop should end.
        """
        if self._seconds is None:
            if env_steps < self._warm_steps:
                return False
            self._reply({"ready": True, "versions": self._versions})
            return self._next_stretch(env_steps, updates)
        now_s = time.perf_counter()
        elapsed_s = now_s - self._start_s
        if elapsed_s < self._seconds:
            return False
        self._reply(
            {
                "op": "rate",
                "n": self._seconds,
                "env_steps_per_s": (env_steps - self._start[0]) / elapsed_s,
                "updates_per_s": (updates - self._start[1]) / elapsed_s,
                "env_steps": env_steps,
            }
        )
        return self._next_stretch(env_steps, updates)

    def _next_stretch(self, env_steps: int, updates: int) -> bool:
        request = next(self._requests, None)
        if request is None:
            return True
        self._seconds = float(request["n"])
        self._start = (env_steps, updates)
        self._start_s = time.perf_counter()
        return False
