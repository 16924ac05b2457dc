# SPDX-License-Identifier: MIT
"""Training on the emulated GPU: exact resumes, learning, faults, and a change of backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import copal
from copal.backends.gpu import GpuBackend
from copal.errors import ConfigError, LearnerFailedError, UnknownNameError
from runs import BARE, resumes_exactly, runs_of

SMALL: dict[str, Any] = {
    **BARE,
    "backend": "gpu",
    "device": "emulate",
    "env": "CartPole-v1",
    "steps": 320,
    "learning_starts": 100,
    "buffer_size": 1_000,
    "batch_size": 13,
    "hidden": (12, 10),
    "eval_episodes": 2,
    "final_eval_episodes": 2,
}
small = runs_of(SMALL)


@pytest.mark.parametrize(
    "changes",
    [{}, {"env": "Pendulum-v1", "algo": "td3"}, {"env": "Pendulum-v1", "algo": "sac"}],
    ids=["dqn", "td3", "sac"],
)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Weights, moments, counters and noise go through the checkpoint."""
    config = small(tmp_path, **changes)
    whole = resumes_exactly(config, tmp_path / "copy", every=120)
    assert whole.updates == config.steps - 100


def test_a_run_may_go_on_with_another_backend(tmp_path: Path) -> None:
    """State is the same everywhere: from the GPU to the CPU and back."""
    first = copal.train(small(tmp_path))
    second = copal.train(copal.TrainConfig(resume=first.out, backend="cpu", steps=400, quiet=True))
    assert second.updates > first.updates
    third = copal.train(
        copal.TrainConfig(resume=first.out, backend="gpu", device="emulate", steps=480, quiet=True)
    )
    assert third.updates > second.updates


@pytest.mark.slow
def test_cartpole_learns(tmp_path: Path) -> None:
    """The policy balances the pole several times as long as a random one, which has 22 steps."""
    result = copal.train(
        small(
            tmp_path,
            steps=4_000,
            learning_starts=500,
            buffer_size=4_000,
            batch_size=32,
            hidden=(32, 32),
            learning_rate=2e-3,
            epsilon_fraction=0.3,
            deterministic=True,
            final_eval_episodes=5,
        )
    )
    assert np.mean(result.returns) > 60, result.returns


def test_diverging_run_ends_with_the_reason(tmp_path: Path) -> None:
    """A learning rate that no number survives: phase and operation are named."""
    with pytest.raises(LearnerFailedError, match=r"phases\[0\] dqn"):
        copal.train(small(tmp_path, learning_rate=1e30, max_grad_norm=None, steps=600))


def test_a_device_of_another_backend_is_refused() -> None:
    """`sim` is no GPU, `cuda` is no engine, and `lanes` is nothing to a GPU."""
    with pytest.raises(ConfigError, match="cuda, emulate"):
        copal.TrainConfig(backend="gpu", device="sim")
    with pytest.raises(ConfigError, match="sim, model, pynq"):
        copal.TrainConfig(backend="fpga", device="cuda")
    with pytest.raises(ConfigError, match="no such setting"):
        copal.TrainConfig(backend="gpu", lanes=64)
    with pytest.raises(UnknownNameError, match="emulate"):
        GpuBackend("emulated")


def test_parallel_learners_are_blocks(tmp_path: Path) -> None:
    """`--learners` is the number of shares of a batch."""
    result = copal.train(small(tmp_path, learners=5, steps=150))
    assert result.updates == 50
