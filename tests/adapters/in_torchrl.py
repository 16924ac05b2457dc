# SPDX-License-Identifier: MIT
"""Cases of the TorchRL adapter."""

from __future__ import annotations

import copy
import pickle
import tempfile

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from copal.adapters.torchrl import PrioritizedSampler, Storage
from copal.errors import ConfigError, EmptyReplayError, PriorityError, SchemaError

torch.set_num_threads(1)
KINDS = ("both", "sampler")


def rows(n: int, first: int = 0) -> TensorDict:
    """Rows told apart by their observation."""
    number = torch.arange(first, first + n, dtype=torch.float32)
    return TensorDict(
        {
            "obs": number[:, None] * torch.ones(3),
            "pixels": torch.randint(255, (n, 2, 4), dtype=torch.uint8),
            ("next", "obs"): number[:, None] + torch.ones(3),
            ("next", "reward"): torch.randn(n, 1),
            ("next", "done"): torch.rand(n, 1) < 0.1,
        },
        [n],
    )


def buffer(kind: str, size: int = 100, **settings) -> TensorDictReplayBuffer:
    """A TorchRL buffer with the adapter's parts."""
    sampler = PrioritizedSampler(size, **{"alpha": 0.6, "beta": 0.4, **settings})
    storage = Storage(size) if kind == "both" else LazyTensorStorage(size)
    return TensorDictReplayBuffer(
        storage=storage, sampler=sampler, priority_key="td_error", batch_size=64
    )


def case_rows_come_back_as_they_were_written() -> None:
    """Nested keys, dtypes and values are kept, also once the ring has come round."""
    for kind in KINDS:
        made, data = buffer(kind), rows(150)
        for first in range(0, 150, 30):
            made.extend(data[first : first + 30].clone())
        assert len(made) == 100
        batch = made.sample(256)
        where = batch["obs"][:, 0].long()
        assert where.min() >= 50
        for key in ("obs", "pixels", ("next", "obs"), ("next", "reward"), ("next", "done")):
            assert batch[key].dtype == data[key].dtype
            assert torch.equal(batch[key], data[key][where]), key
        assert torch.equal(made[batch["index"]]["obs"], batch["obs"])
        assert float(made[int(batch["index"][0])]["obs"][0]) == float(where[0])


def case_weights_and_draws_follow_priorities() -> None:
    """Weights equal (N P)^-beta over the largest; draws are in proportion to P."""
    for kind in KINDS:
        made = buffer(kind, 20, alpha=0.7, beta=0.5)
        made.extend(rows(20))
        batch = made.sample(4000)
        batch["td_error"] = -(batch["obs"][:, 0] + 1)
        made.update_priority(batch["index"], batch["obs"][:, 0] + 1)
        batch = made.sample(40_000)
        p = (batch["obs"][:, 0].double().numpy() + 1) ** 0.7
        assert np.allclose(batch["priority_weight"], (p / p.min()) ** -0.5, rtol=1e-4)
        values, counts = np.unique(p, return_counts=True)
        assert len(values) == 20
        assert np.allclose(counts / 40_000, values / values.sum(), atol=0.012)
        made.extend(rows(1, 99))
        newest = float(made.sampler.default_priority)
        assert abs(newest - 20) < 1e-3, newest


def case_single_rows_and_other_samplers() -> None:
    """`add` takes one row; the storage serves TorchRL's uniform sampler."""
    for kind in KINDS:
        made = buffer(kind)
        for one in rows(10):
            made.add(one.clone())
        assert len(made) == 10
    uniform = TensorDictReplayBuffer(storage=Storage(50), sampler=RandomSampler(), batch_size=8)
    uniform.extend(rows(20))
    batch = uniform.sample()
    assert torch.equal(batch["next", "obs"], batch["obs"] + 1)


def case_state_goes_on() -> None:
    """state_dict, pickle and dumps give a buffer that draws the same rows."""
    for kind in KINDS:
        made = buffer(kind)
        made.extend(rows(80))
        batch = made.sample()
        made.update_priority(batch["index"], torch.rand(64))
        copies = [buffer(kind), pickle.loads(pickle.dumps(made)), buffer(kind)]
        copies[0].load_state_dict(copy.deepcopy(made.state_dict()))
        with tempfile.TemporaryDirectory() as folder:
            made.dumps(folder)
            if kind == "sampler":
                copies[2].extend(rows(80))
            copies[2].loads(folder)
        expected = made.sample()
        for again in copies:
            batch = again.sample()
            assert torch.equal(batch["obs"], expected["obs"])
            assert torch.equal(batch["priority_weight"], expected["priority_weight"])
        made.empty()
        assert len(made) == 0


def case_bad_input_is_refused() -> None:
    """NaN priorities, other keys, stored rows that would change and bad settings."""
    made = buffer("both")
    made.extend(rows(20))
    batch = made.sample(4)
    before = made.storage.replay.priorities().copy()
    for wrong, error in (
        (lambda: made.update_priority(batch["index"], torch.full((4,), torch.nan)), PriorityError),
        (lambda: made.update_priority(torch.tensor([90]), torch.ones(1)), SchemaError),
        (lambda: made.storage.set(3, rows(1)[0]), SchemaError),
        (lambda: made.extend(rows(2).exclude("pixels")), SchemaError),
        (lambda: PrioritizedSampler(10, beta=2.0), ConfigError),
        (lambda: buffer("both").sample(), EmptyReplayError),
    ):
        try:
            wrong()
        except error:
            continue
        raise AssertionError(error)
    assert np.array_equal(before, made.storage.replay.priorities())


def case_dqn_loss_learns() -> None:
    """TorchRL's DQNLoss trains CartPole from it; the return rises well above chance."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env = gymnasium.make("CartPole-v1")
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 2),
    )
    actor = QValueActor(
        TensorDictModule(net, ["observation"], ["action_value"]),
        in_keys=["observation"],
        spec=OneHot(2),
    )
    loss = DQNLoss(actor, action_space="one_hot", delay_value=True, reduction="none")
    loss.make_value_estimator(gamma=0.98)
    target = SoftUpdate(loss, tau=0.01)
    adam = torch.optim.Adam(loss.parameters(), 1e-3)
    made = buffer("both", 10_000)
    obs, lengths, length = env.reset(seed=0)[0], [], 0
    for step in range(5000):
        if rng.random() < max(0.05, 1 - step / 1500):
            action = int(rng.integers(2))
        else:
            with torch.no_grad():
                action = int(net(torch.from_numpy(obs)).argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        length += 1
        row = TensorDict(
            {
                "observation": torch.from_numpy(obs),
                "action": torch.nn.functional.one_hot(torch.tensor(action), 2),
                ("next", "observation"): torch.from_numpy(after),
                ("next", "reward"): torch.tensor([float(reward)]),
                ("next", "done"): torch.tensor([terminated or truncated]),
                ("next", "terminated"): torch.tensor([terminated]),
            },
            [],
        )
        made.extend(row[None])
        obs = after
        if terminated or truncated:
            obs, _ = env.reset()
            lengths.append(length)
            length = 0
        if step >= 300 and step % 2 == 0:
            batch = made.sample()
            value = (loss(batch)["loss"] * batch["priority_weight"]).mean()
            adam.zero_grad()
            value.backward()
            adam.step()
            target.step()
            made.update_tensordict_priority(batch)
            assert torch.isfinite(value)
    assert np.mean(lengths[-8:]) > 50, lengths[-20:]
    assert made.storage.replay.stats()["updated"] > 100_000
