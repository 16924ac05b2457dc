# SPDX-License-Identifier: MIT
"""Compares the engine's gradients with float64 on batches of a training run."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import LearnerState
from copal.backends.fpga import EngineLearner
from copal.bench.table import Row
from copal.config import TrainConfig
from copal.fpga.engine import open_engine
from copal.program import Update
from copal.program.reference import ReferenceLearner
from copal.runtime import session
from copal.runtime.checkpoint import CheckpointStore
from copal.runtime.control import Control
from copal.runtime.settings import settled
from copal.runtime.trainer import train

ENVIRONMENTS: Mapping[str, str] = {
    "dqn": "CartPole-v1",
    "ddpg": "Pendulum-v1",
    "td3": "Pendulum-v1",
    "sac": "Pendulum-v1",
}


def measure(algo: str, env: str, steps: int, batches: int) -> list[Row]:
    """Trains on the `cpu` backend, then computes gradients of fresh batches both ways.

    The exponents of a batch are those that the batch before left behind, as in training.

    Args:
        algo: Algorithm.
        env: Environment.
        steps: Environment steps before the comparison.
        batches: Batches to compare.

    Returns:
        One row a trained network: median and worst relative error.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = TrainConfig(
            algo=algo,
            env=env,
            steps=steps,
            hidden=(64, 64),
            batch_size=64,
            seed=1,
            eval_episodes=1,
            final_eval_episodes=1,
            quiet=True,
            out=Path(folder) / "run",
        )
        train(asked)
        found = CheckpointStore(Path(folder) / "run" / "checkpoints").newest(lambda _: None)
        parts = session.build(settled(asked), Control(1), found)
        try:
            return _compare(algo, env, parts, batches)
        finally:
            parts.close()


def _compare(algo: str, env: str, parts: Any, batches: int) -> list[Row]:
    update: Update = parts.built.update
    start = _without_moments(update, parts.learner.state())
    driver = open_engine("model", update, batch_size=64)
    engine = EngineLearner(driver, start)
    errors: dict[str, list[float]] = {}
    try:
        for i in range(batches + 1):
            batch = dict(parts.replay.sample(64, beta=0.6).items())
            notes = engine.state().notes
            engine.load_state(replace(start, notes=notes))
            engine.step(batch)
            if i == 0:
                continue
            for name, value in _gradient_errors(update, start, batch, engine.state()):
                errors.setdefault(name, []).append(value)
    finally:
        engine.close()
    return [
        {
            "name": f"{algo} {name} on {env}",
            "op": "gradient",
            "batches": len(values),
            "updates": start.updates,
            "error": statistics.median(values),
            "error_worst": max(values),
        }
        for name, values in errors.items()
    ]


def _without_moments(update: Update, state: LearnerState) -> LearnerState:
    """The state with optimisers that never stepped: the first moment then tells the gradient."""
    fresh = LearnerState.initial(update, state.parameters)
    every = max(phase.every for phase in update.phases)
    fresh.updates = state.updates // every * every + every - 1
    return fresh


def _gradient_errors(
    update: Update, start: LearnerState, batch: Mapping[str, NDArray[Any]], after: LearnerState
) -> Iterator[tuple[str, float]]:
    oracle = ReferenceLearner(update, start.parameters)
    oracle.updates = start.updates
    oracle.step(batch)
    for name, true in oracle.first_moment.items():
        size = float(np.linalg.norm(true))
        if size > 0:
            yield name, float(np.linalg.norm(after.first_moment[name] - true)) / size
