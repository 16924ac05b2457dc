# SPDX-License-Identifier: MIT
"""The torch and reference backends against each other and against a training loop written out."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from copal import algorithms, backends
from copal.algorithms import Built, Source
from copal.algorithms.dqn import DqnConfig
from copal.algorithms.networks import mlp, unflatten_into
from copal.algorithms.spaces import observation_width
from copal.backends import LearnerState
from copal.errors import ConfigError, LearnerFailedError, ProgramError
from copal.program import Adam, Buffer, Phase, Program, Target, Update
from copal.program.capture import capture
from copal.program.modules import flatten_module
from copal.program.reference import ReferenceLearner

WIDTH, ACTIONS, HIDDEN, ROWS = 5, 3, (16, 12), 24


def build(name: str = "dqn", **settings: object) -> Built:
    space = gym.spaces.Box(-1.0, 1.0, (WIDTH,))
    config = DqnConfig(hidden=HIDDEN, **settings)  # type: ignore[arg-type]
    return algorithms.get(name).build(space, gym.spaces.Discrete(ACTIONS), config)


def batch(rng: np.random.Generator, rows: int = ROWS) -> dict[str, np.ndarray]:
    """A batch in the dtypes of a replay buffer."""
    return {
        "obs": rng.normal(size=(rows, WIDTH)).astype(np.float32),
        "action": rng.integers(ACTIONS, size=rows),
        "reward": (3 * rng.normal(size=rows)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, WIDTH)).astype(np.float32),
        "terminated": rng.random(rows) < 0.2,
        "discount": (0.99 ** rng.integers(1, 4, size=rows)).astype(np.float32),
        "weight": rng.random(rows).astype(np.float32),
    }


SETTINGS = [
    ("dqn", {}),
    ("dqn", {"huber": False, "max_grad_norm": 0.5, "learning_rate": 0.01}),
    ("double-dqn", {"target_tau": 1.0, "target_update_interval": 4, "max_grad_norm": None}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_whole_updates_equal_a_loop_written_out(
    name: str, settings: dict[str, object], rng: np.random.Generator
) -> None:
    """Twelve updates of the float64 reference: loss, clipping, Adam and targets of PyTorch."""
    built = build(name, **settings)
    config = DqnConfig(hidden=HIDDEN, **settings)  # type: ignore[arg-type]
    learner = ReferenceLearner(built.update, built.parameters)
    q, target = (mlp((WIDTH, *HIDDEN, ACTIONS), 0).double() for _ in range(2))
    unflatten_into(q, built.parameters["q"])
    unflatten_into(target, built.parameters["q_target"])
    optimiser = torch.optim.Adam(q.parameters(), lr=config.learning_rate, eps=config.adam_eps)
    for update in range(12):
        columns = {k: v if k == "action" else v.astype(np.float64) for k, v in batch(rng).items()}
        t = {k: torch.from_numpy(v) for k, v in columns.items()}
        value = q(t["obs"]).gather(1, t["action"][:, None])[:, 0]
        with torch.no_grad():
            chooser = q if name == "double-dqn" else target
            best = chooser(t["next_obs"]).argmax(1, keepdim=True)
            following = target(t["next_obs"]).gather(1, best)[:, 0]
            y = t["reward"] + t["discount"] * (1 - t["terminated"]) * following
        loss = nn.functional.huber_loss if config.huber else nn.functional.mse_loss
        half = 1.0 if config.huber else 0.5
        optimiser.zero_grad()
        (half * t["weight"] * loss(value, y, reduction="none")).mean().backward()
        if config.max_grad_norm is not None:
            gradients = [p.grad for p in q.parameters() if p.grad is not None]
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            for g in gradients:
                g.mul_(min(1.0, config.max_grad_norm / float(norm)))
        optimiser.step()
        if (update + 1) % config.target_update_interval == 0:
            for p, s in zip(target.parameters(), q.parameters(), strict=True):
                p.data.mul_(1 - config.target_tau).add_(s.data, alpha=config.target_tau)

        td_error = learner.step(columns)
        np.testing.assert_allclose(td_error, (value - y).detach().numpy(), atol=1e-10)
    for network, module in {"q": q, "q_target": target}.items():
        flat = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()
        np.testing.assert_allclose(learner.parameters[network], flat, atol=1e-10)


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_torch_equals_reference(
    name: str, settings: dict[str, object], rng: np.random.Generator
) -> None:
    """Fifteen updates in float32 stay next to the float64 oracle, moments and targets too.

    A large eps keeps Adam from turning the rounding of tiny gradients into whole steps.
    """
    built = build(name, **{"adam_eps": 1e-3, **settings})
    learners = {
        n: backends.learner(backends.require(n), built, batch_size=ROWS)
        for n in ("torch", "reference")
    }
    for update in range(15):
        columns = batch(rng)
        got, expected = (learners[n].step(columns) for n in ("torch", "reference"))
        assert got.dtype == expected.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=2e-4)
        assert learners["torch"].updates == update + 1
    got, expected = (learners[n].state() for n in ("torch", "reference"))
    for network, vector in expected.parameters.items():
        np.testing.assert_allclose(got.parameters[network], vector, atol=1e-4)
    for part in ("first_moment", "second_moment"):
        np.testing.assert_allclose(getattr(got, part)["q"], getattr(expected, part)["q"], atol=1e-4)
    assert got.optimiser_steps == expected.optimiser_steps == {"q": 15}
    assert got.updates == expected.updates == 15


@pytest.mark.parametrize("name", ["torch", "reference"])
def test_state_carries_on_exactly(name: str, rng: np.random.Generator) -> None:
    """A second learner that gets the state goes the same way."""
    built, backend = build(), backends.require(name)
    first = backends.learner(backend, built, batch_size=ROWS)
    for _ in range(3):
        first.step(batch(rng))
    state = first.state()
    second = backends.learner(backend, built, state, batch_size=ROWS)
    third = backends.learner(backend, built, batch_size=ROWS)
    third.load_state(state)
    assert second.updates == third.updates == 3
    for _ in range(3):
        columns = batch(rng)
        # The reference rounds to float32 in its state, so it is compared after the rounding.
        np.testing.assert_array_equal(second.step(columns), third.step(columns))
    for network, vector in second.state().parameters.items():
        np.testing.assert_array_equal(vector, third.state().parameters[network])
    assert state.updates == 3


@pytest.mark.parametrize("name", ["cpu", "torch", "reference"])
def test_parameters_are_those_of_the_state(name: str, rng: np.random.Generator) -> None:
    """One network's vector alone, as a copy that later updates do not reach into."""
    learner = backends.learner(backends.require(name), build(), batch_size=ROWS)
    learner.step(batch(rng))
    found = {network: learner.parameters(network) for network in ("q", "q_target")}
    before = learner.state().parameters
    learner.step(batch(rng))
    for network, vector in found.items():
        assert vector.dtype == np.float32
        np.testing.assert_array_equal(vector, before[network])
        assert not np.array_equal(vector, learner.parameters(network))


@pytest.mark.parametrize("name", ["torch", "reference"])
def test_state_is_a_copy(name: str, rng: np.random.Generator) -> None:
    """Further updates do not reach into a state that was handed out."""
    learner = backends.learner(backends.require(name), build(), batch_size=ROWS)
    state = learner.state()
    before = {n: v.copy() for n, v in state.parameters.items()}
    learner.step(batch(rng))
    for network, vector in before.items():
        np.testing.assert_array_equal(state.parameters[network], vector)
    assert not np.array_equal(learner.state().parameters["q"], before["q"])


@pytest.mark.parametrize("name", ["torch", "reference"])
@pytest.mark.parametrize("column", ["reward", "obs"])
def test_bad_batch_changes_nothing(name: str, column: str, rng: np.random.Generator) -> None:
    """NaN in a column is found before the optimiser steps."""
    learner = backends.learner(backends.require(name), build(), batch_size=ROWS)
    learner.step(batch(rng))
    before, bad = learner.state(), batch(rng)
    bad[column][3] = np.nan
    with pytest.raises(LearnerFailedError):
        learner.step(bad)
    after = learner.state()
    for part in ("parameters", "first_moment", "second_moment"):
        for network, vector in getattr(before, part).items():
            np.testing.assert_array_equal(getattr(after, part)[network], vector)
    assert after.updates == before.updates == 1
    learner.step(batch(rng))
    assert learner.updates == 2


@pytest.mark.parametrize("name", ["torch", "reference"])
def test_parallel_learners_are_refused(name: str) -> None:
    """These backends have one learner, and say which one has more."""
    with pytest.raises(ConfigError, match="`learners`"):
        backends.learner(backends.require(name), build(), batch_size=ROWS, learners=2)


def test_torch_needs_the_loss() -> None:
    """An Update alone is not what this backend runs."""
    built = build()
    state = LearnerState.initial(built.update, built.parameters)
    with pytest.raises(ProgramError, match="`source`"):
        backends.require("torch").learner(built.update, state, batch_size=ROWS, learners=1)


def test_two_phases_with_delay_run_alike(rng: np.random.Generator) -> None:
    """An actor-critic pair as DDPG and TD3 have: a second, delayed phase through the first net."""
    width = observation_width(gym.spaces.Box(-1.0, 1.0, (WIDTH,)))
    networks: dict[str, nn.Module] = {
        "critic": nn.Sequential(nn.Linear(width + 2, 8), nn.Tanh(), nn.Linear(8, 1)),
        "actor": nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 2)),
    }
    networks["critic_target"] = networks["critic"]
    inputs = (Buffer("obs", width), Buffer("act", 2), Buffer("reward", 1))

    def critic_loss(nets, b):  # type: ignore[no-untyped-def]
        value = nets.critic(torch.cat([b.obs, b.act], 1)).squeeze(1)
        with torch.no_grad():
            best = torch.tanh(nets.actor(b.obs))
            y = b.reward + 0.9 * nets.critic_target(torch.cat([b.obs, best], 1)).squeeze(1)
        return (value - y) ** 2, value - y

    def actor_loss(nets, b):  # type: ignore[no-untyped-def]
        best = torch.tanh(nets.actor(b.obs))
        value = nets.critic(torch.cat([b.obs, best], 1)).squeeze(1)
        return -value, value

    losses = (critic_loss, actor_loss)
    programs = [
        capture(loss, networks, inputs, gradient=name, name=name)
        for loss, name in zip(losses, ("critic", "actor"), strict=True)
    ]
    update = Update(
        "pair",
        (
            Phase(programs[0], Adam(0.01, eps=1e-3)),
            Phase(programs[1], Adam(0.02, eps=1e-3), 1.0, every=2),
        ),
        (Target("critic", "critic_target", 0.1),),
        Program("none", (), (), (), {}),
    )
    parameters = {n: flatten_module(m) for n, m in networks.items()}
    built = Built(update, parameters, {}, Source(losses, networks))
    learners = [
        backends.learner(backends.require(n), built, batch_size=ROWS)
        for n in ("torch", "reference")
    ]
    for _ in range(5):
        columns = {
            "obs": rng.normal(size=(ROWS, width)),
            "act": rng.normal(size=(ROWS, 2)),
            "reward": rng.normal(size=ROWS),
        }
        got, expected = (learner.step(columns) for learner in learners)
        np.testing.assert_allclose(got, expected, atol=1e-4)
    got, expected = (learner.state() for learner in learners)
    assert got.optimiser_steps == expected.optimiser_steps == {"critic": 5, "actor": 2}
    for network, vector in expected.parameters.items():
        np.testing.assert_allclose(got.parameters[network], vector, atol=1e-4)


def test_two_phases_of_one_network_share_its_moments(rng: np.random.Generator) -> None:
    """Settings are each phase's own; the optimiser's state and step count are the network's."""
    built = build(adam_eps=1e-3)
    first = built.update.phases[0]
    second = replace(first, optimiser=Adam(0.02, beta1=0.8, beta2=0.99, eps=1e-3), every=2)
    update = replace(built.update, phases=(first, second))
    source = Source(built.source.losses * 2, built.source.networks)
    built = replace(built, update=update, source=source)
    learners = [
        backends.learner(backends.require(n), built, batch_size=ROWS)
        for n in ("torch", "reference")
    ]
    for _ in range(4):
        columns = batch(rng)
        got, expected = (learner.step(columns) for learner in learners)
        np.testing.assert_allclose(got, expected, atol=1e-4)
    got, expected = (learner.state() for learner in learners)
    assert got.optimiser_steps == expected.optimiser_steps == {"q": 6}
    for part in ("parameters", "first_moment", "second_moment"):
        np.testing.assert_allclose(getattr(got, part)["q"], getattr(expected, part)["q"], atol=1e-4)
