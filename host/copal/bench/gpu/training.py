# SPDX-License-Identifier: MIT
"""Whole trainings with the learner on the GPU and on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.bench.runner import say
from copal.bench.table import Row
from copal.config import TrainConfig

BACKENDS = ("gpu", "cpu")
_LEARNING_STARTS = 1000


def rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
    """Updates a second of DQN on LunarLander-v3, 256-256, batch 256, one update a step."""
    for backend in BACKENDS:
        row: Row = {"part": "train", "name": f"dqn on {backend}"}
        if config.device == "emulate":
            yield {**row, "absent": NOT_MEASURED}
            continue
        say(f"training on {backend}")
        yield from budget.rows(row, 2 * config.train_s, partial(_train, backend, config.train_s))


def _train(backend: str, seconds: float) -> Row:
    """Trains about so long, after a short run that shows how many steps that is."""
    warm = _trained(backend, _LEARNING_STARTS + 2000)
    return _trained(backend, _LEARNING_STARTS + max(1, round(warm["updates_per_s"] * seconds)))


def _trained(backend: str, steps: int) -> Row:
    import copal

    with tempfile.TemporaryDirectory() as folder:
        result = copal.train(
            TrainConfig(
                algo="dqn",
                env="LunarLander-v3",
                backend=backend,
                steps=steps,
                hidden=(256, 256),
                batch_size=256,
                update_interval=1,
                learning_starts=_LEARNING_STARTS,
                eval_interval=0,
                final_eval_episodes=1,
                checkpoint_interval=0,
                tensorboard=False,
                quiet=True,
                out=Path(folder) / "run",
            )
        )
    return {"updates_per_s": result.updates_per_s, "env_steps": result.env_steps}
