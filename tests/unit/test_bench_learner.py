# SPDX-License-Identifier: MIT
"""The learner benchmark compares equals: every implementation makes the same update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from copal.backends.base import LearnerState
from copal.backends.torch import TorchLearner
from copal.bench import learner_numpy, learner_torch
from copal.bench.learner_build import build, noise_widths, random_batch, update_flops
from copal.bench.peers.drivers import train_cleanrl_sac
from copal.program.modules import flatten_module

ALGORITHMS = ("dqn", "ddpg", "td3", "sac")
ROWS = 12


def given(algo: str) -> tuple[Any, dict[str, Any]]:
    """An algorithm of small networks, and a batch that has the noise in it."""
    built = build(algo, (16, 8), obs=5, actions=3)
    batch = random_batch(built, ROWS)
    rng = np.random.default_rng()
    for name, width in noise_widths(built).items():
        batch[name] = rng.standard_normal((ROWS, width)).astype(np.float32)
    return built, batch


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_all_implementations_make_the_same_updates(algo: str) -> None:
    """Four updates of the lean torch code and of NumPy end where the `torch` backend does."""
    built, batch = given(algo)
    learner = TorchLearner(
        built.update, LearnerState.initial(built.update, built.parameters), built.source
    )
    torch_side = learner_torch.Updater(built, batch)
    numpy_side = learner_numpy.Updater(built, batch)
    for _ in range(4):
        learner.step(batch)
        torch_side()
        numpy_side()
    for name in built.parameters:
        wanted = learner.parameters(name)
        np.testing.assert_allclose(flatten_module(torch_side.modules[name]), wanted, atol=2e-5)
        np.testing.assert_allclose(numpy_side.parameters[name], wanted, atol=2e-5)
    moved = [n for n in built.parameters if (learner.parameters(n) != built.parameters[n]).any()]
    assert set(built.update.trained()) <= set(moved)


@pytest.mark.parametrize("algo", ["td3", "sac"])
def test_noise_is_drawn_anew_in_each_update(algo: str) -> None:
    """Two copies of the benchmark's update part, since neither sees the other's noise."""
    built, batch = given(algo)
    for name in noise_widths(built):
        del batch[name]
    first, second = (learner_torch.Updater(built, batch) for _ in range(2))
    for update in (first, second):
        update()
    assert not np.array_equal(
        flatten_module(first.modules["critic"]), flatten_module(second.modules["critic"])
    )


def test_a_batch_stays_within_the_spaces() -> None:
    """Discrete actions are counted from 0, continuous ones lie in [-1, 1]."""
    discrete = random_batch(build("dqn", (4,), obs=3, actions=2), 200)["action"]
    assert set(discrete.tolist()) == {0, 1}
    continuous = random_batch(build("sac", (4,), obs=3, actions=2), 200)["action"]
    assert continuous.shape == (200, 2)
    assert 0.9 < np.abs(continuous).max() <= 1


def test_the_work_of_a_delayed_phase_counts_once_in_so_many_updates() -> None:
    """TD3's actor learns in every second update."""
    built = build("td3", (32, 32))
    critic, actor = (p.program.flops_per_row() for p in built.update.phases)
    assert update_flops(built, 10) == 10 * (critic + actor / 2)


def test_sac_by_hand_trains_on_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its terminated rows have no bootstrap: an endless discount does no harm there."""
    made: list[Any] = []

    class Kept(train_cleanrl_sac.Learner):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(train_cleanrl_sac, "Learner", Kept)
    built, batch = given("sac")
    batch["terminated"][:] = True
    batch["discount"][:] = 1e30
    update = learner_torch.sac_by_hand(built, batch)
    (learner,) = made
    networks = (learner.actor, learner.critic, learner.target)
    before = [flatten_module(network) for network in networks]
    update()
    update()
    for network, old in zip(networks, before, strict=True):
        new = flatten_module(network)
        assert np.isfinite(new).all()
        assert not np.array_equal(new, old)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_torch_policy_acts_as_the_captured_one(algo: str) -> None:
    """Greedy actions agree with the reference run of the policy's Program."""
    from copal.program.reference import run

    built = build(algo, (16, 8), obs=5, actions=3)
    obs = np.random.default_rng().standard_normal((7, 5)).astype(np.float32)
    found = learner_torch.actor(built, obs)()
    if algo == "sac":  # draws its actions
        assert found.shape == (7, 3)
        assert np.abs(found).max() <= 1
        return
    result = run(built.update.policy, built.parameters, {"obs": obs})
    action = np.asarray(result.outputs["action"]).reshape(found.shape)
    np.testing.assert_allclose(found, action, atol=1e-5)
