# SPDX-License-Identifier: MIT
"""Cases of the RLlib adapter."""

from __future__ import annotations

import logging
import pickle

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig as PeerConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from copal.adapters.rllib import DQNConfig, PrioritizedEpisodeReplayBuffer
from copal.errors import ConfigError, EmptyReplayError, PriorityError, SchemaError

torch.set_num_threads(1)
logging.disable(logging.WARNING)
TYPE = "copal.adapters.rllib.PrioritizedEpisodeReplayBuffer"
OBS = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
ACT = gymnasium.spaces.Discrete(4)


def episode(number: int, steps: int, end: str) -> SingleAgentEpisode:
    """An episode whose observations say (number, time)."""
    rng = np.random.default_rng()
    made = SingleAgentEpisode(id_=f"e{number}", observation_space=OBS, action_space=ACT)
    made.add_env_reset(np.array([number, 0], np.float32))
    for t in range(1, steps + 1):
        made.add_env_step(
            np.array([number, t], np.float32),
            int(rng.integers(4)),
            float(rng.normal()),
            terminated=end == "terminated" and t == steps,
            truncated=end == "truncated" and t == steps,
        )
    return made


def filled(capacity: int = 1000, **settings) -> tuple[PrioritizedEpisodeReplayBuffer, list]:
    """A buffer that got three episodes in interleaved chunks, and the episodes."""
    whole = [episode(0, 30, "terminated"), episode(1, 25, "truncated"), episode(2, 40, "")]
    buffer = PrioritizedEpisodeReplayBuffer(capacity, **settings)
    for first in range(0, 40, 4):
        chunks = [e[first : min(first + 4, len(e))] for e in whole if first < len(e)]
        for chunk, e in zip(chunks, [e for e in whole if first < len(e)], strict=True):
            at_end = first + 4 >= len(e)
            chunk.is_terminated = at_end and e.is_terminated
            chunk.is_truncated = at_end and e.is_truncated
        buffer.add(chunks)
    return buffer, whole


def expected(e: SingleAgentEpisode, t: int, n: int, gamma: float) -> tuple[float, int, bool, bool]:
    """Return, steps and flags of row `t`, from the episode itself."""
    rewards = e.get_rewards(slice(t, min(t + n, len(e))))
    total = sum(gamma**k * r for k, r in enumerate(rewards))
    at_end = t + len(rewards) == len(e)
    return total, len(rewards), at_end and e.is_terminated, at_end and e.is_truncated


def case_episodes_equal_an_oracle() -> None:
    """Sampled episodes hold the n-step transition of their row, for a fixed and a random n."""
    buffer, whole = filled()
    assert len(buffer) == 95
    assert buffer.get_num_episodes() == 3
    for n_step in (1, 3, (2, 5)):
        counts = set()
        for sample in buffer.sample(num_items=300, n_step=n_step, gamma=0.9, beta=0.4):
            number, t = (int(x) for x in sample.get_observations(0))
            n = int(sample.get_extra_model_outputs("n_step", 0))
            counts.add(n)
            asked = n if isinstance(n_step, tuple) else n_step
            total, steps, terminated, truncated = expected(whole[number], t, asked, 0.9)
            assert n == steps
            assert abs(sample.get_rewards(0) - total) < 1e-4
            assert tuple(sample.get_observations(1)) == (number, t + n)
            assert sample.get_actions(0) == whole[number].get_actions(t)
            assert (sample.is_terminated, sample.is_truncated) == (terminated, truncated)
        assert max(counts) == (4 if isinstance(n_step, tuple) else n_step)


def case_columns_equal_episodes() -> None:
    """With `columns` the same draw is a batch under the learner's names."""
    a, _ = filled(seed=7)
    b = pickle.loads(pickle.dumps(a.get_state()))
    c = PrioritizedEpisodeReplayBuffer(1000, columns=True)
    c.set_state(b)
    episodes = a.sample(num_items=64, n_step=3, gamma=0.9, beta=0.4)
    batch = c.sample(num_items=64, n_step=3, gamma=0.9, beta=0.4)["default_policy"]
    for row, e in enumerate(episodes):
        assert np.array_equal(batch["obs"][row], e.get_observations(0))
        assert np.array_equal(batch["new_obs"][row], e.get_observations(1))
        assert batch["weights"][row] == e.get_extra_model_outputs("weights", 0)
        assert batch["terminateds"][row] == e.is_terminated
        assert batch["rewards"][row] == e.get_rewards(0)


def case_weights_follow_priorities() -> None:
    """Weights equal (N P)^-beta over the largest after an update of the last sample."""
    buffer, _ = filled(columns=True, alpha=0.7, eps=0.0)
    batch = buffer.sample(num_items=3000, beta=0.5)["default_policy"]
    buffer.update_priorities(batch["obs"][:, 1] + 1)
    batch = buffer.sample(num_items=3000, beta=0.5)["default_policy"]
    p = (batch["obs"][:, 1].astype(np.float64) + 1) ** 0.7
    assert np.allclose(batch["weights"], (p / p.min()) ** -0.5, rtol=1e-4)


def case_old_steps_and_episodes_leave() -> None:
    """A full ring holds the newest steps, and the counters say what left."""
    buffer, _ = filled(capacity=8, columns=True)
    assert buffer.get_num_episodes() == 1
    assert buffer.get_num_episodes_evicted() >= 2
    buffer, whole = filled(capacity=20, columns=True)
    assert len(buffer) == 20
    assert (buffer.get_num_episodes(), buffer.get_num_episodes_evicted()) == (3, 0)
    assert buffer.get_added_timesteps() == 95
    batch = buffer.sample(num_items=200, n_step=3, gamma=0.9)["default_policy"]
    for row in range(200):
        number, t = (int(x) for x in batch["obs"][row])
        total, steps, *_ = expected(whole[number], t, 3, 0.9)
        assert batch["n_step"][row] == steps
        assert abs(batch["rewards"][row] - total) < 1e-4
    metrics = buffer.get_metrics()
    assert metrics


def case_bad_input_is_refused() -> None:
    """Recurrent sequences, nested observations and priorities that do not fit are errors."""
    buffer, _ = filled()
    nested = SingleAgentEpisode(id_="x")
    nested.add_env_reset({"a": np.zeros(2)})
    nested.add_env_step({"a": np.zeros(2)}, 0, 0.0)
    buffer.sample(num_items=2)
    for wrong, error in (
        (lambda: PrioritizedEpisodeReplayBuffer(10).sample(num_items=1), EmptyReplayError),
        (lambda: buffer.sample(num_items=4, batch_length_T=8), ConfigError),
        (lambda: buffer.sample(num_items=4, include_infos=True), ConfigError),
        (lambda: buffer.add([nested]), SchemaError),
        (lambda: buffer.update_priorities(np.ones(3)), SchemaError),
        (lambda: buffer.update_priorities(np.array([1, np.nan])), PriorityError),
        (lambda: PrioritizedEpisodeReplayBuffer(10, alpha=3.0), ConfigError),
    ):
        try:
            wrong()
        except error:
            continue
        raise AssertionError(error)
    assert len(buffer) == 95


def start() -> None:
    """Ray in this process, once."""
    if not ray.is_initialized():
        ray.init(
            num_cpus=1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=100 * 2**20,
            _node_ip_address="127.0.0.1",
        )


def build(config, n_step: int = 1, buffer: str = TYPE, **training):
    """A small DQN on CartPole, wholly in this process."""
    start()
    return (
        config.environment("CartPole-v1")
        .env_runners(num_env_runners=0, rollout_fragment_length=4)
        .training(
            lr=1e-3,
            gamma=0.97,
            n_step=n_step,
            dueling=False,
            train_batch_size_per_learner=32,
            training_intensity=16,
            num_steps_sampled_before_learning_starts=200,
            target_network_update_freq=200,
            epsilon=[(0, 1.0), (1500, 0.05)],
            replay_buffer_config={"type": buffer, "capacity": 5000, "alpha": 0.6, "beta": 0.4},
            **training,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[64, 64], fcnet_activation="relu", head_fcnet_hiddens=[]
            )
        )
        .learners(num_learners=0)
        .debugging(seed=1, log_level="ERROR")
        .reporting(min_sample_timesteps_per_iteration=400, min_time_s_per_iteration=None)
        .build_algo()
    )


def case_dqn_on_columns_equals_dqn_on_episodes() -> None:
    """Without the episodes between buffer and learner, the same seeds give the same losses."""
    losses = []
    for config in (PeerConfig(), DQNConfig()):
        algorithm = build(config, n_step=3)
        results = [algorithm.train() for _ in range(2)]
        losses.append([r["learners"]["default_policy"]["qf_loss"] for r in results])
        stats = algorithm.local_replay_buffer.replay.stats()
        assert stats["updated"] == stats["sampled"] > 0
        algorithm.stop()
    assert np.isfinite(losses).all()
    assert np.allclose(losses[0], losses[1], rtol=1e-4), losses


def case_dqn_learns_and_its_buffer_is_in_the_checkpoint() -> None:
    """CartPole's return rises above chance; a restored buffer draws the same rows."""
    algorithm = build(DQNConfig())
    best = 0.0
    for _ in range(12):
        result = algorithm.train()
        best = max(best, result["env_runners"].get("episode_return_mean", 0.0))
        if best > 60:
            break
    assert best > 45, best
    buffer = algorithm.local_replay_buffer
    state = pickle.loads(pickle.dumps(buffer.get_state()))
    again = PrioritizedEpisodeReplayBuffer(5000, columns=True)
    again.set_state(state)
    a, b = (x.sample(num_items=32)["default_policy"] for x in (buffer, again))
    assert all(np.array_equal(a[key], b[key]) for key in a)
    algorithm.stop()


def case_dqn_refuses_another_buffer() -> None:
    """The DQN of the adapter says which buffer it wants."""
    try:
        build(DQNConfig(), buffer="PrioritizedEpisodeReplayBuffer")
    except ConfigError as error:
        assert TYPE in str(error)  # noqa: PT017 - there is no pytest here
    else:
        raise AssertionError("another buffer was taken")
    ray.shutdown()
