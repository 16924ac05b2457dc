# SPDX-License-Identifier: MIT
"""Whole runs on pictures: DQN with a convolutional network on the `torch` backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import copal
import image_env
from copal.errors import BackendUnavailableError
from copal.runtime import evaluation
from copal.runtime.policy import Policy
from runs import BARE, runs_of

SMALL: dict[str, Any] = {
    **BARE,
    "env": "Halves-v0",
    "backend": "torch",
    "steps": 400,
    "learning_starts": 100,
    "buffer_size": 400,
    "batch_size": 16,
    "gamma": 0.0,
    "n_step": 1,
    "final_eval_episodes": 3,
}
small = runs_of(SMALL)


@pytest.fixture(autouse=True)
def _environments() -> None:
    image_env.register()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"env": "HalvesColour-v0", "frame_stack": 2, "algo": "double-dqn", "share_next_obs": True},
    ],
    ids=["grey", "stacked colours"],
)
def test_trains_resumes_and_evaluates(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A run, its continuation, and the saved policy, which PyTorch runs."""
    first = copal.train(small(tmp_path, **changes))
    assert first.updates > 200
    again = copal.train(copal.TrainConfig(resume=first.out, steps=500))
    assert again.env_steps >= 500
    assert again.updates > first.updates
    score = copal.evaluate(first.out, episodes=2)
    assert score.mean_length == 10
    policy = Policy.load(first.out)
    picture = np.zeros(policy.facts.obs_shape, np.uint8)
    assert policy(picture) in (0, 1)
    assert policy(np.stack([picture, picture])).shape == (2,)


def test_learns_which_half_is_bright(tmp_path: Path) -> None:
    """Chance is 5 of 10; one look at the picture tells."""
    result = copal.train(small(tmp_path, steps=600, epsilon_fraction=0.3, final_eval_episodes=5))
    assert result.mean_return > 8


def test_other_backend_is_refused(tmp_path: Path) -> None:
    """Before anything is trained, with the operation's name."""
    with pytest.raises(BackendUnavailableError, match=r"aten\.convolution"):
        copal.train(small(tmp_path, backend="cpu"))


def test_envpool_atari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of steps of Pong: uint8 [4, 84, 84]. A whole game would take a minute."""
    pytest.importorskip("envpool")
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 10)
    result = copal.train(
        small(
            tmp_path,
            env="Pong-v5",
            vectorization="envpool",
            num_envs=2,
            steps=60,
            learning_starts=40,
            buffer_size=60,
            batch_size=4,
            final_eval_episodes=1,
        )
    )
    assert result.updates > 0
    assert Policy.load(result.out).facts.obs_shape == (4, 84, 84)
