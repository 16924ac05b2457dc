# SPDX-License-Identifier: MIT
"""Cases of the tianshou adapter."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import DQN as PeerDQN
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net

from copal.adapters.tianshou import DQN, PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer
from copal.errors import ConfigError, PriorityError, SchemaError

torch.set_num_threads(1)
ENVS = 3


def row(rng: np.random.Generator, t: int, envs: int = ENVS, ends: float = 0.15) -> Batch:
    """A random step of every environment, told apart by its observation."""
    done, cut = rng.random(envs) < ends, rng.random(envs) < 0.5
    return Batch(
        obs=np.stack([np.full(envs, t), np.arange(envs)], 1).astype(np.float32),
        act=rng.integers(2, size=envs),
        rew=rng.normal(size=envs),
        terminated=done & ~cut,
        truncated=done & cut,
        obs_next=np.stack([np.full(envs, t + 1), np.arange(envs)], 1).astype(np.float32),
        info=Batch(env_id=np.arange(envs)),
        policy=Batch(),
    )


def filled(steps: int, size: int = 600) -> tuple[PrioritizedVectorReplayBuffer, list[Batch]]:
    """A buffer with random rows of several environments, and these rows."""
    rng = np.random.default_rng()
    buffer = PrioritizedVectorReplayBuffer(size, ENVS, alpha=0.6, beta=0.4)
    rows = [row(rng, t) for t in range(steps)]
    for batch in rows:
        buffer.add(batch, np.arange(ENVS))
    return buffer, rows


def agent(cls, n_step: int = 1, env: str = "CartPole-v1"):
    """An algorithm on a small network."""
    one = gymnasium.make(env)
    torch.manual_seed(0)
    net = Net(
        state_shape=one.observation_space.shape,
        action_shape=one.action_space.n,
        hidden_sizes=[64, 64],
    )
    policy = DiscreteQLearningPolicy(
        model=net,
        action_space=one.action_space,
        observation_space=one.observation_space,
        eps_training=0.2,
    )
    return cls(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.95,
        n_step_return_horizon=n_step,
        target_update_freq=100,
    )


def case_rows_come_back_as_they_were_added() -> None:
    """Every key of a sampled row, `info` too, is the row's own."""
    buffer, rows = filled(50)
    batch, indices = buffer.sample(300)
    again = buffer[indices.copy()]
    for i in range(300):
        t, e = (int(x) for x in batch.obs[i])
        for key in ("act", "rew", "terminated", "truncated", "obs_next"):
            assert np.array_equal(batch[key][i], rows[t][key][e]), key
            assert np.array_equal(again[key][i], rows[t][key][e]), key
        assert batch.info.env_id[i] == e
        assert batch.done[i] == (rows[t].terminated[e] or rows[t].truncated[e])
    other = buffer[indices[::-1].copy()]
    assert np.array_equal(other.obs, batch.obs[::-1])
    assert np.allclose(other.weight, batch.weight[::-1], rtol=1e-5)


def case_next_and_prev_stay_within_an_episode() -> None:
    """They follow an environment's rows, also once the ring has come round."""
    for size in (600, 61):
        buffer, rows = filled(50, size)
        indices = buffer.sample_indices(0)
        assert len(indices) == min(size, 150)
        obs, after = buffer.obs[indices], buffer.obs[buffer.next(indices)]
        before = buffer.obs[buffer.prev(indices)]
        held = {tuple(o) for o in obs.astype(int)}
        for o, a, b in zip(obs.astype(int), after.astype(int), before.astype(int), strict=True):
            t, e = o
            ended = bool(rows[t].terminated[e] or rows[t].truncated[e])
            assert tuple(a) == ((t, e) if ended or t == 49 else (t + 1, e))
            fresh = t == 0 or rows[t - 1].terminated[e] or rows[t - 1].truncated[e]
            lost = fresh or (t - 1, e) not in held
            assert tuple(b) == ((t, e) if lost else (t - 1, e))
        open_rows = {tuple(o) for o in buffer.obs[buffer.unfinished_index()].astype(int)}
        last = rows[49]
        going = {(49, e) for e in range(ENVS) if not (last.terminated[e] or last.truncated[e])}
        assert open_rows == going


def case_weights_follow_priorities() -> None:
    """Weights equal (N P)^-beta over the batch's largest after an update."""
    buffer, _ = filled(40)
    batch, indices = buffer.sample(2000)
    buffer.update_weight(indices, torch.from_numpy(batch.obs[:, 0] + 1.0))
    batch, _ = buffer.sample(2000)
    p = (batch.obs[:, 0].astype(np.float64) + 1.0) ** 0.6
    assert np.allclose(batch.weight, (p / p.min()) ** -0.4, rtol=1e-4)


def case_targets_equal_tianshous_own() -> None:
    """The DQN's returns equal those that tianshou computes from the same buffer."""
    for n_step in (1, 3):
        ours, theirs = agent(DQN, n_step), agent(PeerDQN, n_step)
        envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=12)] * 2)
        buffer = PrioritizedVectorReplayBuffer(400, 2, alpha=0.6, beta=0.4)
        collector = Collector(ours, envs, buffer, exploration_noise=True)
        collector.reset()
        collector.collect(n_step=500)
        batch, indices = buffer.sample(128)
        a = ours._preprocess_batch(batch, buffer, indices).returns
        batch, indices = buffer[indices], indices.copy()
        b = theirs._preprocess_batch(batch, buffer, indices).returns
        assert torch.allclose(a.flatten().double(), b.flatten().double(), atol=1e-4)


def case_collector_reports_whole_episodes() -> None:
    """Episode returns and lengths equal those of the environment."""
    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(2)])
    buffer = PrioritizedVectorReplayBuffer(1000, 2, alpha=0.6, beta=0.4)
    collector = Collector(agent(DQN), envs, buffer, exploration_noise=True)
    collector.reset()
    stats = collector.collect(n_episode=8)
    assert np.array_equal(stats.returns, stats.lens)  # CartPole: one a step
    assert stats.lens.sum() == stats.n_collected_steps


def case_one_environment_without_a_leading_axis() -> None:
    """The plain buffer takes single rows, and `update` moves another buffer's rows in."""
    rng = np.random.default_rng()
    buffer = PrioritizedReplayBuffer(100, alpha=0.6, beta=0.4)
    for t in range(20):
        slot, *_ = buffer.add(row(rng, t, 1)[0])
        assert slot[0] == t
    other = PrioritizedReplayBuffer(50, alpha=0.6, beta=0.4)
    moved = other.update(buffer)
    assert np.array_equal(other.obs[moved], buffer.obs[:20])


def case_images_and_dictionaries() -> None:
    """uint8 images stay uint8; dictionary observations come back as a batch."""
    buffer = PrioritizedReplayBuffer(20, alpha=0.6, beta=0.4)
    rng = np.random.default_rng()
    for t in range(10):
        one = row(rng, t, 1)
        image = rng.integers(0, 255, (1, 4, 5), dtype=np.uint8)
        one.obs = Batch(image=image, place=np.full((1, 2), t, np.float32))
        one.obs_next = one.obs
        buffer.add(one, [0])
    batch, _ = buffer.sample(8)
    assert batch.obs.image.dtype == np.uint8
    assert batch.obs.image.shape == (8, 4, 5)
    assert batch.obs_next.place.shape == (8, 2)


def case_pickle_and_hdf5_go_on() -> None:
    """A copy through a pickle, and one through HDF5, draws the same rows."""
    buffer, _ = filled(40)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "buffer.hdf5")
        buffer.save_hdf5(path)
        copies = [pickle.loads(pickle.dumps(buffer)), type(buffer).load_hdf5(path)]
    expected, _ = buffer.sample(64)
    for copy in copies:
        batch, _ = copy.sample(64)
        assert np.array_equal(batch.obs, expected.obs)
        assert np.array_equal(batch.weight, expected.weight)


def case_bad_input_is_refused() -> None:
    """NaN priorities, foreign indices and options that are not served are typed errors."""
    buffer, _ = filled(10)
    _, indices = buffer.sample(4)
    before = buffer._native.priorities().copy()
    for wrong, error in (
        (lambda: buffer.update_weight(indices, np.array([1, np.nan, 1, 1])), PriorityError),
        (lambda: buffer.update_weight(np.array([500]), np.ones(1)), SchemaError),
        (lambda: PrioritizedReplayBuffer(10, alpha=0.6, beta=0.4, stack_num=4), ConfigError),
        (lambda: PrioritizedReplayBuffer(10, alpha=0.0, beta=0.4), ConfigError),
        (lambda: buffer.set_beta(2.0), ConfigError),
        (
            lambda: buffer.add(Batch(terminated=np.zeros(ENVS), truncated=np.zeros(ENVS))),
            SchemaError,
        ),
    ):
        try:
            wrong()
        except error:
            continue
        raise AssertionError(error)
    assert np.array_equal(before, buffer._native.priorities())


def case_dqn_learns() -> None:
    """CartPole's return rises well above chance, with tianshou's DQN and with the adapter's."""
    for cls, n_step, updates in ((PeerDQN, 1, 1200), (DQN, 3, 1200)):
        algorithm = agent(cls, n_step)
        envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(4)])
        envs.seed(2)
        buffer = PrioritizedVectorReplayBuffer(20_000, 4, alpha=0.6, beta=0.4)
        collector = Collector(algorithm, envs, buffer, exploration_noise=True)
        collector.reset()
        lengths: list[int] = []
        with policy_within_training_step(algorithm.policy):
            collector.collect(n_step=400)
            for _ in range(updates):
                lengths.extend(collector.collect(n_step=4).lens)
                algorithm.update(buffer=buffer, sample_size=64)
        assert np.mean(lengths[-10:]) > 45, (cls, lengths[-20:])
        assert buffer._native.stats()["updated"] == updates * 64
