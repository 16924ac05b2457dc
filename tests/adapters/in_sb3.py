# SPDX-License-Identifier: MIT
"""Cases of the Stable-Baselines3 adapter."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN as PeerDQN
from stable_baselines3.common.env_util import make_vec_env

from copal.adapters.sb3 import DQN, PrioritizedReplayBuffer
from copal.errors import ConfigError, EmptyReplayError, PriorityError

torch.set_num_threads(1)
OBS = spaces.Box(-9, 9, (3,), np.float32)
ACT = spaces.Discrete(4)


def filled(rows: int, envs: int = 2, **settings) -> tuple[PrioritizedReplayBuffer, dict]:
    """A buffer with random rows of each environment, and these rows, [rows, envs, ...]."""
    rng = np.random.default_rng()
    buffer = PrioritizedReplayBuffer(rows * envs, OBS, ACT, "cpu", envs, **settings)
    obs = rng.normal(size=(rows + 1, envs, 3)).astype(np.float32)
    data = {
        "obs": obs,
        "action": rng.integers(4, size=(rows, envs)),
        "reward": rng.normal(size=(rows, envs)).astype(np.float32),
        "done": rng.random((rows, envs)) < 0.2,
        "cut": rng.random((rows, envs)) < 0.5,
    }
    for t in range(rows):
        infos = [{"TimeLimit.truncated": bool(c)} for c in data["cut"][t] & data["done"][t]]
        buffer.add(obs[t], obs[t + 1], data["action"][t], data["reward"][t], data["done"][t], infos)
    return buffer, data


def case_samples_are_n_step_returns_of_one_environment() -> None:
    """Rewards, next observations, discounts and terminations equal a loop over the rows."""
    for n in (1, 3):
        buffer, data = filled(60, n_steps=n, gamma=0.9)
        samples = buffer.sample(200)
        where = {data["obs"][t, e].tobytes(): (t, e) for t in range(60) for e in range(2)}
        for i in range(200):
            t, e = where[samples.observations[i].numpy().tobytes()]
            total, k = 0.0, 0
            while True:
                total += 0.9**k * float(data["reward"][t + k, e])
                end = data["done"][t + k, e]
                k += 1
                if end or k == n:
                    break
            last = t + k - 1
            assert abs(float(samples.rewards[i]) - total) < 1e-5
            assert np.array_equal(samples.next_observations[i].numpy(), data["obs"][last + 1, e])
            terminated = data["done"][last, e] and not data["cut"][last, e]
            assert float(samples.dones[i]) == float(terminated)
            assert int(samples.actions[i]) == data["action"][t, e]
            if n > 1:
                assert abs(float(samples.discounts[i]) - 0.9**k) < 1e-6


def case_weights_and_draws_follow_priorities() -> None:
    """Weights equal (N P)^-beta over the largest, and rows are drawn in proportion to P."""
    buffer, _ = filled(32, 1, alpha=0.7, beta=0.5, eps=0.0)
    samples = buffer.sample(4000)
    td = np.abs(samples.observations.numpy()[:, 0]) + 0.1
    assert buffer.update_priorities(torch.from_numpy(td)[:, None]) == 0
    samples = buffer.sample(40_000)
    p = (np.abs(samples.observations.numpy()[:, 0]).astype(np.float64) + 0.1) ** 0.7
    expected = (p / p.min()) ** -0.5
    assert np.allclose(samples.weights.numpy()[:, 0], expected, rtol=1e-4)
    values, counts = np.unique(p, return_counts=True)
    assert np.allclose(counts / 40_000, values / values.sum(), atol=0.012)


def case_images_keep_their_dtype() -> None:
    """Observations of uint8 come back as uint8, and SB3's memory option shares them."""
    space = spaces.Box(0, 255, (2, 4, 4), np.uint8)
    for shared in (False, True):
        buffer = PrioritizedReplayBuffer(
            64, space, ACT, "cpu", 1, optimize_memory_usage=shared, handle_timeout_termination=True
        )
        frames = np.random.default_rng().integers(0, 256, (41, 1, 2, 4, 4), dtype=np.uint8)
        for t in range(40):
            one = np.zeros(1)
            buffer.add(frames[t], frames[t + 1], one.astype(int), one, one, [{}])
        samples = buffer.sample(50)
        assert samples.observations.dtype == torch.uint8
        pairs = {frames[t].tobytes(): frames[t + 1].tobytes() for t in range(40)}
        for a, b in zip(samples.observations, samples.next_observations, strict=True):
            assert pairs[a.numpy().tobytes()] == b.numpy().tobytes()


def case_bad_input_is_refused() -> None:
    """Bad settings, NaN priorities and a priority update before any sample are typed errors."""
    for settings in ({"beta": 1.5}, {"alpha": 2.0}, {"n_steps": 0}):
        try:
            PrioritizedReplayBuffer(10, OBS, ACT, **settings)
        except ConfigError:
            continue
        raise AssertionError(settings)
    buffer, _ = filled(10)
    try:
        buffer.update_priorities(torch.zeros(4))
    except EmptyReplayError:
        pass
    else:
        raise AssertionError("nothing was sampled")
    before = buffer.replay.priorities().copy()
    buffer.sample(4)
    try:
        buffer.update_priorities(torch.tensor([1.0, float("nan"), 1.0, 1.0]))
    except PriorityError:
        assert np.array_equal(before, buffer.replay.priorities())
    else:
        raise AssertionError("NaN was taken")


def case_dqn_learns_and_goes_on_from_a_saved_buffer() -> None:
    """CartPole's return rises well above chance; the pickled buffer goes on bit by bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = DQN(
            "MlpPolicy",
            make_vec_env("CartPole-v1", 2, seed=3),
            n_steps=3,
            learning_rate=1e-3,
            batch_size=64,
            buffer_size=20_000,
            learning_starts=500,
            train_freq=2,
            gradient_steps=2,
            target_update_interval=200,
            exploration_fraction=0.3,
            seed=1,
            device="cpu",
        )
    model.learn(7000)
    returns = [e["r"] for e in model.ep_info_buffer]
    assert np.mean(returns[-10:]) > 50, returns
    assert model.replay_buffer.beta == 1.0
    assert model.replay_buffer.replay.stats()["updated"] > 200_000
    with tempfile.TemporaryDirectory() as folder:
        model.save_replay_buffer(Path(folder) / "buffer")
        model.save(Path(folder) / "model")
        again = DQN.load(Path(folder) / "model", device="cpu")
        again.load_replay_buffer(Path(folder) / "buffer")
    assert again.n_steps == 3
    a, b = model.replay_buffer.sample(64), again.replay_buffer.sample(64)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def case_plain_dqn_takes_the_buffer() -> None:
    """SB3's own DQN trains from it, uniformly."""
    model = PeerDQN(
        "MlpPolicy",
        "CartPole-v1",
        replay_buffer_class=PrioritizedReplayBuffer,
        buffer_size=500,
        learning_starts=50,
        device="cpu",
    )
    model.learn(300)
    assert model.replay_buffer.size() == 300
    assert np.all(model.replay_buffer.replay.priorities() == 1.0)
