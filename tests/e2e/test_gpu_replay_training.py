# SPDX-License-Identifier: MIT
"""Training with the replay on the emulated GPU: exact resumes, threads, faults, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import copal
from copal.errors import ConfigError, LearnerFailedError
from runs import BARE, newest, resumed_equals, runs_of, same_files

SMALL: dict[str, Any] = {
    **BARE,
    "backend": "gpu",
    "device": "emulate",
    "replay_device": "gpu",
    "env": "CartPole-v1",
    "steps": 200,
    "learning_starts": 100,
    "buffer_size": 110,
    "batch_size": 13,
    "hidden": (12, 10),
    "eval_episodes": 1,
    "final_eval_episodes": 1,
}
small = runs_of(SMALL)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_step": 3, "num_envs": 2, "update_interval": 2.0},
        {"algo": "double-dqn", "prioritized": False},
        {"env": "Pendulum-v1", "algo": "ddpg"},
        {"env": "Pendulum-v1", "algo": "td3"},
        {"env": "Pendulum-v1", "algo": "sac", "prioritized": True},
    ],
    ids=["dqn", "double-dqn", "ddpg", "td3", "sac"],
)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Priorities go through the checkpoint, bit for bit, also of rows not yet on the device."""
    config = small(
        tmp_path, deterministic=True, checkpoint_interval=57, keep_checkpoints=9, **changes
    )
    whole = copal.train(config)
    assert whole.updates >= 50
    middle = sorted((whole.out / "checkpoints").iterdir())[:-1]
    assert len(middle) == 3
    resumed_equals(whole, middle[1], tmp_path / "copy")


def test_checkpoints_do_not_change_a_run(tmp_path: Path) -> None:
    """Rows go to the device when an update needs them, not when a checkpoint is written."""
    settings = {"deterministic": True, "update_interval": 3.0}
    runs = [
        copal.train(small(tmp_path / str(n), checkpoint_interval=n, **settings)) for n in (0, 20)
    ]
    assert runs[0].returns == runs[1].returns
    same_files(*(newest(run.out).path for run in runs))


def test_threads_and_changes_of_device(tmp_path: Path) -> None:
    """Actors insert beside the learner; a run goes on with the replay elsewhere and back."""
    first = copal.train(small(tmp_path, actors=2, num_envs=2, checkpoint_interval=100))
    assert first.updates > 90
    stored = json.loads((first.out / "config.json").read_text())
    assert stored["replay_device"] == "gpu"
    updates = first.updates
    for steps, changes in (
        (215, {"replay_device": "cpu"}),
        (230, {"replay_device": "gpu"}),
        (245, {"backend": "cpu"}),
        (260, {"backend": "gpu", "device": "emulate", "replay_device": "gpu"}),
    ):
        more = copal.train(copal.TrainConfig(resume=first.out, steps=steps, quiet=True, **changes))
        assert more.updates > updates
        updates = more.updates


def test_diverging_run_ends_with_the_reason(tmp_path: Path) -> None:
    """Phase and operation are named."""
    with pytest.raises(LearnerFailedError, match=r"phases\[0\] dqn"):
        copal.train(small(tmp_path, learning_rate=1e30, max_grad_norm=None, steps=600))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"backend": "cpu", "device": None}, "replay_device"),
        ({"backend": "torch", "device": None, "replay_device": "cpu"}, "replay_device"),
        ({"replay_device": "cuda"}, "replay_device"),
        ({"share_next_obs": True}, "share_next_obs"),
    ],
)
def test_refusals(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    """Of settings that do not go together, before anything starts."""
    with pytest.raises(ConfigError) as caught:
        small(tmp_path, **changes)
    assert caught.value.field == field
    assert not (tmp_path / "run").exists()
