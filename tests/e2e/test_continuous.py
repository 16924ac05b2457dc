# SPDX-License-Identifier: MIT
"""Whole runs with continuous actions: every algorithm and backend, exact resume, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import copal
from copal.errors import CheckpointError, ConfigError, LearnerFailedError
from copal.runtime import normalization
from runs import BARE, newest, resumed_equals, runs_of, same_files

SMALL: dict[str, Any] = {
    **BARE,
    "env": "Pendulum-v1",
    "steps": 500,
    "learning_starts": 200,
    "buffer_size": 1_000,
    "batch_size": 16,
    "hidden": (16, 16),
    "final_eval_episodes": 1,
}
small = runs_of(SMALL)


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
@pytest.mark.parametrize("backend", ["cpu", "torch", "reference"])
def test_every_algorithm_trains_on_every_backend(tmp_path: Path, algo: str, backend: str) -> None:
    """Threads, a checkpoint, then more steps from it; actions are the environment's own."""
    changes = {"backend": backend, "steps": 400, "update_interval": 4.0, "actors": 2}
    first = copal.train(small(tmp_path, algo=algo, **changes))
    assert (first.env_steps, first.updates, first.stop_reason) == (400, 50, "steps")
    again = copal.train(copal.TrainConfig(resume=first.out, steps=600, quiet=True))
    assert (again.env_steps, again.updates) == (600, 100)
    replay = copal.PrioritizedReplay.load(newest(first.out).path / "replay.bin")
    actions = replay.column("action")
    assert actions.dtype == np.float32
    assert actions.shape[1:] == (1,)
    assert -1 <= actions.min() < -0.5 < 0.5 < actions.max() <= 1
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(again.policy(obs))


@pytest.mark.parametrize(
    ("algo", "changes"),
    [
        ("sac", {}),
        ("sac", {"learners": 2, "actors": 2, "num_envs": 2, "n_step": 3, "prioritized": False}),
        ("td3", {"update_interval": 2.0, "env": "LunarLanderContinuous-v3"}),
        ("ddpg", {"n_step": 3, "share_next_obs": True, "normalize_observations": True}),
        ("td3", {"backend": "torch", "update_interval": 4.0}),
        ("sac", {"backend": "torch", "update_interval": 4.0, "reward_scale": 0.1}),
        ("dqn", {"normalize_observations": True, "env": "CartPole-v1"}),
    ],
    ids=["sac", "parallel", "td3", "n-step", "torch td3", "torch sac", "normalised dqn"],
)
def test_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, algo: str, changes: dict[str, Any]
) -> None:
    """From the checkpoint in the middle a deterministic run reaches the same bits at the end."""
    config = small(tmp_path, algo=algo, deterministic=True, checkpoint_interval=300, **changes)
    whole = copal.train(config)
    middle = min((whole.out / "checkpoints").iterdir())
    resumed_equals(whole, middle, tmp_path / "copy")


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_same_seed_same_bits_other_seed_others(tmp_path: Path, algo: str) -> None:
    """Two deterministic runs agree in every file; another seed gives other weights."""
    runs = [
        copal.train(small(tmp_path, algo=algo, deterministic=True, out=tmp_path / name, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    found = [newest(r.out) for r in runs]
    same_files(found[0].path, found[1].path)
    weights = [f.arrays("weights.safetensors")["actor"] for f in found]
    assert not np.array_equal(weights[0], weights[2])


def test_learns_pendulum(tmp_path: Path) -> None:
    """A seeded SAC run of one thread swings the pendulum up: -300 or more, -1,200 at random."""
    result = copal.train(
        copal.TrainConfig(
            algo="sac",
            env="Pendulum-v1",
            steps=5_000,
            deterministic=True,
            seed=3,
            learning_starts=500,
            batch_size=64,
            hidden=(64, 64),
            learning_rate=2e-3,
            eval_interval=1_000,
            final_eval_episodes=20,
            out=tmp_path / "run",
            tensorboard=False,
            quiet=True,
        )
    )
    assert result.mean_return >= -300
    assert copal.evaluate(result.out, episodes=10, seed=5).mean >= -300


def test_observations_are_normalised_by_what_was_measured(tmp_path: Path) -> None:
    """The parameters are those of the rollout at the start and at the end, in the policy, too."""
    config = small(tmp_path, algo="sac", normalize_observations=True)
    result = copal.train(config)
    measured = normalization.measure(config)
    mean, inverse = np.split(measured, 2)
    stored = newest(result.out).arrays("weights.safetensors")["observation_scale"]
    np.testing.assert_array_equal(stored, measured)
    # Pendulum: cosine and sine of an angle, and a velocity of a few rad/s.
    assert (abs(mean[:2]) < 1).all()
    assert (inverse[:2] > 1).all()
    assert inverse[2] < 1
    policy = copal.load_policy(result.out)
    assert {n.name for n in policy.program.networks} == {"observation_scale", "actor"}
    obs = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_array_equal(policy.act(obs), result.policy(obs))


def test_a_policy_that_draws(tmp_path: Path) -> None:
    """Drawn actions differ, a generator repeats them; a deterministic policy has none."""
    sac = copal.train(small(tmp_path, algo="sac", out=tmp_path / "sac")).best
    obs = np.zeros((500, 3), np.float32)
    drawn = sac.act(obs, sample=True, generator=np.random.default_rng(1))
    again = sac.act(obs, sample=True, generator=np.random.default_rng(1))
    np.testing.assert_array_equal(drawn, again)
    assert drawn.shape == (500, 1)
    assert abs(drawn).max() <= 2
    assert drawn.std() > 10 * sac.act(obs).std()
    assert sac.act(obs[0], sample=True).shape == (1,)
    td3 = copal.train(small(tmp_path, algo="td3", out=tmp_path / "td3")).best
    with pytest.raises(ConfigError, match="deterministic"):
        td3.act(obs, sample=True)


class Exploding(gymnasium.Env):  # type: ignore[misc]
    """Once `armed`, its rewards are 3e38, close to the largest number that float32 holds."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    armed = False

    def __init__(self) -> None:
        self._steps = 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        obs = np.array([float(action[0]), (self._steps % 7) / 7], np.float32)
        return obs, 3e38 if self.armed else 1.0, False, self._steps == 50, {}


@pytest.mark.parametrize(
    ("algo", "backend", "deterministic"),
    [("sac", "cpu", True), ("ddpg", "cpu", False), ("td3", "torch", False)],
)
def test_values_that_overflow_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str, backend: str, deterministic: bool
) -> None:
    """The error names the phase and where the last good checkpoint is, which is finite."""
    gymnasium.register("Exploding-v0", Exploding)
    try:
        config = small(
            tmp_path,
            env="Exploding-v0",
            algo=algo,
            backend=backend,
            deterministic=deterministic,
            steps=250,
        )
        out = copal.train(config).out
        monkeypatch.setattr(Exploding, "armed", True)
        with pytest.raises(LearnerFailedError) as caught:
            copal.train(copal.TrainConfig(resume=out, steps=100_000, quiet=True))
    finally:
        del gymnasium.registry["Exploding-v0"]
    assert caught.value.exit_code == 1
    found = newest(out)
    assert found.counters["env_steps"] == 250
    assert f"{algo}-critic" in str(caught.value)
    assert str(found.path) in str(caught.value)
    for vector in found.arrays("weights.safetensors").values():
        assert np.isfinite(vector).all()


def test_a_policy_of_another_kind_is_refused(tmp_path: Path) -> None:
    """By algorithm, by environment, and by the size of its networks; both are named."""
    out = copal.train(small(tmp_path, algo="td3", steps=300)).out
    assert copal.load_policy(out, algo="td3", env="Pendulum-v1").facts.algo == "td3"
    with pytest.raises(CheckpointError, match=r"`sac`(.|\n)*`td3`"):
        copal.load_policy(out, algo="sac")
    with pytest.raises(CheckpointError, match=r"`Hopper-v5`(.|\n)*`Pendulum-v1`"):
        copal.evaluate(out, env="Hopper-v5")
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "hidden": [8]}))
    with pytest.raises(CheckpointError, match="weights of `actor`"):
        copal.train(copal.TrainConfig(resume=out, steps=600))
    (out / "config.json").write_text(json.dumps({**config, "algo": "dqn", "env": "CartPole-v1"}))
    with pytest.raises((CheckpointError, ConfigError)):
        copal.train(copal.TrainConfig(resume=out, steps=600))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algo": "sac", "env": "CartPole-v1"}, "dqn"),
        ({"algo": "dqn"}, "SAC"),
        ({"algo": "sac", "epsilon_end": 0.2}, "dqn"),
        ({"algo": "sac", "policy_delay": 2}, "td3"),
        ({"algo": "td3", "autotune": True}, "sac"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    """With the algorithms that do; there is no folder."""
    with pytest.raises(ConfigError, match=says):
        copal.train(small(tmp_path, **changes))
    assert not (tmp_path / "run").exists()


def test_settings_of_the_run_are_kept(tmp_path: Path) -> None:
    """config.json holds the algorithm's own values, and a resumed run follows them."""
    out = copal.train(small(tmp_path, algo="td3", steps=300)).out
    stored = json.loads((out / "config.json").read_text())
    assert (stored["policy_delay"], stored["max_grad_norm"], stored["autotune"]) == (2, 0.0, None)
    with pytest.raises(ConfigError, match="policy_delay"):
        copal.train(copal.TrainConfig(resume=out, steps=400, policy_delay=3))


def test_a_run_of_the_first_version_goes_on(tmp_path: Path) -> None:
    """Its config.json lacks what came later, and says None where no clipping was meant."""
    out = copal.train(small(tmp_path, env="CartPole-v1", steps=300)).out
    stored = json.loads((out / "config.json").read_text())
    later = ("learner_mode", "autotune", "reward_scale", "exploration_noise", "frame_stack")
    old = {k: v for k, v in stored.items() if k not in later} | {"max_grad_norm": None}
    (out / "config.json").write_text(json.dumps(old))
    assert copal.train(copal.TrainConfig(resume=out, steps=400, quiet=True)).env_steps == 400
    assert json.loads((out / "config.json").read_text())["max_grad_norm"] == 0.0
