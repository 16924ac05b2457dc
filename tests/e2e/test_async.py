# SPDX-License-Identifier: MIT
"""Whole runs with asynchronous learners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import copal
from copal.errors import ConfigError


def config(tmp_path: Path, **changes: Any) -> copal.TrainConfig:
    """CartPole with two asynchronous learners beside one actor."""
    settings: dict[str, Any] = {
        "env": "CartPole-v1",
        "steps": 20_000,
        "seed": 3,
        "learners": 2,
        "learner_mode": "async",
        "learning_starts": 500,
        "batch_size": 64,
        "hidden": (64, 64),
        "learning_rate": 1e-3,
        "update_interval": 2,
        "epsilon_fraction": 0.3,
        "stop_at_return": 150.0,
        "eval_interval": 2_000,
        "final_eval_episodes": 20,
        "out": tmp_path / "run",
        "tensorboard": False,
        "quiet": True,
    }
    return copal.TrainConfig(**{**settings, **changes})


def test_asynchronous_learners_learn_cartpole(tmp_path: Path) -> None:
    """Some policy of the run balances far longer than a random one, whose mean is about 22."""
    result = copal.train(config(tmp_path))
    assert result.mean_return >= 100
    assert result.staleness_mean is not None
    assert result.staleness_max is not None
    assert 0 <= result.staleness_mean <= result.staleness_max
    assert "staleness" in result.summary()
    lines = (result.out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    last = [r for r in records if r["kind"] == "train"][-1]
    assert sum(last["staleness"]) == last["updates"] == result.updates
    assert last["staleness_max"] == result.staleness_max


def test_checkpoint_and_resume_keep_the_ratio(tmp_path: Path) -> None:
    """A run that is resumed ends with as many updates as its steps ask for."""
    changes = {"stop_at_return": None, "eval_interval": 0, "final_eval_episodes": 2}
    first = copal.train(config(tmp_path, steps=1_500, checkpoint_interval=600, **changes))
    assert first.updates == (1_500 - 500) // 2
    again = copal.train(copal.TrainConfig(resume=first.out, steps=2_500, quiet=True))
    assert again.env_steps == 2_500
    assert again.updates == (2_500 - 500) // 2


@pytest.mark.parametrize("changes", [{"deterministic": True}, {"backend": "torch"}])
def test_asynchronous_needs_threads_of_the_cpu_backend(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Refused before anything is built, with a hint."""
    with pytest.raises(ConfigError, match="learner_mode") as e:
        config(tmp_path, **changes)
    assert "hint" in str(e.value)
