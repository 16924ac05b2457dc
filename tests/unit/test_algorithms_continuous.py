# SPDX-License-Identifier: MIT
"""DDPG, TD3 and SAC: losses written out a second time, spaces, settings, what is delivered."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from copal import algorithms
from copal.algorithms import Built
from copal.algorithms.networks import unflatten_into
from copal.errors import ConfigError
from copal.program import Update
from copal.program.reference import run

WIDTH, ACTIONS, HIDDEN, ROWS = 4, 2, (12, 9), 20
NAMES = ("ddpg", "td3", "sac")
Tensors = dict[str, torch.Tensor]


def box(*shape: int, bound: float = 1.0) -> gym.spaces.Box:
    return gym.spaces.Box(-bound, bound, shape)


@functools.cache
def build(name: str, **settings: Any) -> Built:
    """One capture for all tests that ask for the same; none of them changes it."""
    algorithm = algorithms.get(name)
    config = algorithm.config(**{"hidden": HIDDEN, **settings})
    return algorithm.build(box(WIDTH), box(ACTIONS, bound=3.0), config, seed=5)


def batch(rng: np.random.Generator) -> Tensors:
    columns = {
        "obs": rng.normal(size=(ROWS, WIDTH)),
        "action": rng.uniform(-1, 1, (ROWS, ACTIONS)),
        "reward": 3 * rng.normal(size=ROWS),
        "next_obs": rng.normal(size=(ROWS, WIDTH)),
        "terminated": (rng.random(ROWS) < 0.3).astype(float),
        "discount": 0.99 ** rng.integers(1, 6, size=ROWS),
        "weight": rng.random(ROWS),
        "noise": rng.normal(size=(ROWS, ACTIONS)),
        "next_noise": rng.normal(size=(ROWS, ACTIONS)),
    }
    return {n: torch.from_numpy(v) for n, v in columns.items()}


class Plain:
    """Networks in float64, made here without the package's own modules."""

    def __init__(self, built: Built, rng: np.random.Generator) -> None:
        self.vectors: dict[str, np.ndarray] = {}
        self.modules: dict[str, nn.Module] = {}
        for name, start in built.parameters.items():
            self.vectors[name] = start + rng.normal(size=start.size) / 4
            self.modules[name] = self._module(name, built)
            unflatten_into(self.modules[name], self.vectors[name])

    def _module(self, name: str, built: Built) -> nn.Module:
        def layers(fan_in: int, fan_out: int) -> nn.Sequential:
            sizes = (fan_in, *HIDDEN, fan_out)
            made: list[nn.Module] = []
            for i, o in itertools.pairwise(sizes):
                made += [nn.Linear(i, o), nn.ReLU()]
            return nn.Sequential(*made[:-1])

        if name.startswith("actor"):
            made: nn.Module = layers(WIDTH, 2 * ACTIONS if built.update.name == "sac" else ACTIONS)
        elif name.startswith("critic"):
            heads = 1 if built.update.name == "ddpg" else 2
            made = nn.ModuleList([layers(WIDTH + ACTIONS, 1) for _ in range(heads)])
        else:
            made = nn.ParameterList([torch.zeros(1)])
        return made.double()

    def q(self, name: str, obs: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
        heads = self.modules[name]
        assert isinstance(heads, nn.ModuleList)
        return [h(torch.cat([obs, action], 1))[:, 0] for h in heads]

    def alpha(self) -> torch.Tensor:
        return next(self.modules["temperature"].parameters())[0].exp()

    def gaussian(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.modules["actor"](obs).split(ACTIONS, 1)
        std = log_std.clamp(-20, 2).exp()
        squashed = TransformedDistribution(Normal(mean, std), [TanhTransform(cache_size=1)])
        action = squashed.transforms[0](mean + std * noise)
        return action, squashed.log_prob(action).sum(1)


def plain_losses(name: str, nets: Plain, b: Tensors) -> dict[str, tuple[torch.Tensor, Any]]:
    """Trained network to mean loss and TD errors, as the papers write them."""
    if name == "sac":
        best, log_prob = nets.gaussian(b["next_obs"], b["next_noise"])
        entropy = nets.alpha() * log_prob
    else:
        best, entropy = torch.tanh(nets.modules["actor_target"](b["next_obs"])), 0
        if name == "td3":
            best = best + (0.2 * b["noise"]).clip(-0.5, 0.5)
            best = best.clip(-1, 1)
    following = torch.stack(nets.q("critic_target", b["next_obs"], best)).amin(0) - entropy
    y = (b["reward"] + b["discount"] * (1 - b["terminated"]) * following).detach()
    errors = [q - y for q in nets.q("critic", b["obs"], b["action"])]
    critic = sum(((b["weight"] * e**2 / 2).mean() for e in errors), torch.tensor(0.0))
    td_error = errors[0] if name == "ddpg" else (errors[0].abs() + errors[1].abs()) / 2
    losses: dict[str, tuple[torch.Tensor, Any]] = {"critic": (critic, td_error)}
    if name == "sac":
        action, log_prob = nets.gaussian(b["obs"], b["noise"])
        value = torch.stack(nets.q("critic", b["obs"], action)).amin(0)
        losses["actor"] = ((nets.alpha().detach() * log_prob - value).mean(), None)
        wanted = -(log_prob.detach() - ACTIONS).mean()
        losses["temperature"] = (nets.alpha().log() * wanted, None)
    else:
        action = torch.tanh(nets.modules["actor"](b["obs"]))
        losses["actor"] = (-nets.q("critic", b["obs"], action)[0].mean(), None)
    return losses


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_paper(name: str, rng: np.random.Generator) -> None:
    """Gradient and TD errors of each phase against the same formulas in ordinary PyTorch."""
    built = build(name)
    nets, columns = Plain(built, rng), batch(rng)
    arrays = {n: v.numpy() for n, v in columns.items()}
    expected = plain_losses(name, nets, columns)
    assert [p.program.gradient for p in built.update.phases] == list(expected)
    for phase in built.update.phases:
        trained = str(phase.program.gradient)
        loss, td_error = expected[trained]
        found = run(phase.program, nets.vectors, arrays)
        parameters = list(nets.modules[trained].parameters())
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
        flat = torch.cat([g.flatten() for g in gradients]).numpy()
        assert found.gradient is not None
        scale = np.abs(flat).max()
        np.testing.assert_allclose(found.gradient / ROWS / scale, flat / scale, atol=1e-9)
        if td_error is not None:
            np.testing.assert_allclose(
                found.outputs["td_error"], td_error.detach().numpy(), rtol=1e-9, atol=1e-9
            )


def test_density_of_a_squashed_gaussian_is_stable() -> None:
    """Far out, where tanh(u) rounds to 1, the density is what the asymptote says."""
    from copal.algorithms.sac import squashed_gaussian

    u = torch.tensor([[40.0], [-40.0], [300.0], [-300.0]])
    outputs = torch.cat([u, torch.zeros(4, 1)], 1).requires_grad_()
    action, log_prob = squashed_gaussian(outputs, torch.zeros(4, 1))
    expected = -0.5 * np.log(2 * np.pi) - 2 * np.log(2) + 2 * u.abs()[:, 0]
    assert torch.equal(action, u.sign())
    torch.testing.assert_close(log_prob.detach(), expected)
    (gradient,) = torch.autograd.grad(log_prob.sum(), outputs)
    torch.testing.assert_close(gradient[:, 0], 2 * u.sign()[:, 0])


def test_policy_of_sac_samples_its_own_distribution(rng: np.random.Generator) -> None:
    """Output `action` is the squashed mean, `sample` moves with the noise; one noise a row."""
    built = build("sac")
    nets, columns = Plain(built, rng), batch(rng)
    obs, noise = columns["obs"], columns["noise"]
    found = run(built.update.policy, nets.vectors, {"obs": obs.numpy(), "noise": noise.numpy()})
    mean = nets.modules["actor"](obs)[:, :ACTIONS]
    np.testing.assert_allclose(found.outputs["action"], torch.tanh(mean).detach(), atol=1e-12)
    sample, _ = nets.gaussian(obs, noise)
    np.testing.assert_allclose(found.outputs["sample"], sample.detach(), atol=1e-12)
    assert [(b.name, b.source) for b in built.update.policy.inputs] == [
        ("obs", "batch"),
        ("noise", "normal"),
    ]


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_policy_is_the_actor(name: str, rng: np.random.Generator) -> None:
    """Output `action` is tanh of the actor's layers."""
    built = build(name)
    nets, obs = Plain(built, rng), batch(rng)["obs"]
    found = run(built.update.policy, nets.vectors, {"obs": obs.numpy()}).outputs["action"]
    np.testing.assert_allclose(found, torch.tanh(nets.modules["actor"](obs)).detach(), atol=1e-12)


def test_exploration_is_named() -> None:
    """What actors do with the policy's outputs."""
    found = {name: build(name).exploration for name in NAMES}
    assert found == {"ddpg": "gaussian", "td3": "gaussian", "sac": "policy"}


def test_delays_and_targets_of_td3() -> None:
    """The actor and both targets step in every `policy_delay`-th update, the critics in each."""
    update = build("td3", policy_delay=3, target_update_interval=2, target_tau=0.1).update
    assert [(p.program.gradient, p.every) for p in update.phases] == [("critic", 1), ("actor", 3)]
    targets = {(t.source, t.target, t.tau, t.every) for t in update.targets}
    assert targets == {("actor", "actor_target", 0.1, 6), ("critic", "critic_target", 0.1, 6)}


def test_step_sizes_reach_the_phases() -> None:
    """The actor may have its own; clipping and eps are shared."""
    update = build(
        "sac", learning_rate=0.01, actor_learning_rate=0.02, adam_eps=1e-5, max_grad_norm=2.0
    ).update
    assert [p.optimiser.learning_rate for p in update.phases] == [0.01, 0.02, 0.01]
    assert {(p.optimiser.eps, p.max_grad_norm) for p in update.phases} == {(1e-5, 2.0)}


def test_no_clipping_is_zero_or_none() -> None:
    """Both spellings mean the same to the reduce step."""
    for value in (0.0, None):
        assert build("ddpg", max_grad_norm=value).update.phases[0].max_grad_norm is None


def test_temperature_without_tuning_is_a_constant(rng: np.random.Generator) -> None:
    """Two phases are left, and the losses read the fixed value."""
    built = build("sac", autotune=False, initial_temperature=0.25)
    assert built.update.trained() == ("critic", "actor")
    np.testing.assert_allclose(built.parameters["temperature"], np.log([0.25]), rtol=1e-6)


def test_seed_reaches_parameters_and_noise() -> None:
    """Same seed, same networks; both critics differ from each other."""
    algorithm = algorithms.get("sac")
    config = algorithm.config(hidden=HIDDEN)
    one = build("sac")
    again, other = (algorithm.build(box(WIDTH), box(ACTIONS), config, seed) for seed in (5, 8))
    assert (one.update.seed, other.update.seed) == (5, 8)
    for name in ("actor", "critic"):
        assert np.array_equal(one.parameters[name], again.parameters[name])
        assert not np.array_equal(one.parameters[name], other.parameters[name])
    first, second = np.split(one.parameters["critic"], 2)
    assert not np.array_equal(first, second)
    assert np.array_equal(one.parameters["critic"], one.parameters["critic_target"])


@pytest.mark.parametrize("name", NAMES)
def test_delivery_is_whole(name: str) -> None:
    """JSON, columns, parameters and noise fit the Programs."""
    built = build(name)
    assert Update.from_json(built.update.to_json()) == built.update
    assert {n: v.size for n, v in built.parameters.items()} == built.update.networks()
    assert built.columns["action"] == ((ACTIONS,), "float32")
    inputs = {b.name for p in built.update.phases for b in p.program.inputs}
    assert inputs - set(built.columns) - set(built.update.noises()) == {"discount", "weight"}
    assert (
        built.update.noises()
        == {
            "ddpg": (),
            "td3": ("noise",),
            "sac": ("next_noise", "noise"),
        }[name]
    )


def test_observations_of_every_network_are_normalised(rng: np.random.Generator) -> None:
    """Shifted and scaled observations with the fitting scale give the losses of plain ones."""
    plain, scaled = build("sac"), build("sac", normalize_observations=True, reward_scale=0.5)
    assert [n.name for n in scaled.update.policy.networks] == ["observation_scale", "actor"]
    vectors = {n: v + rng.normal(size=v.size) / 4 for n, v in plain.parameters.items()}
    mean, inverse_std = rng.normal(size=WIDTH), rng.uniform(0.5, 2, WIDTH)
    columns = {n: v.numpy() for n, v in batch(rng).items()}
    moved = {n: columns[n] / inverse_std + mean for n in ("obs", "next_obs")}
    moved["reward"] = columns["reward"] / 0.5
    scale = {"observation_scale": np.concatenate([mean, inverse_std])}
    phases = zip(plain.update.phases, scaled.update.phases, strict=True)
    pairs = [(a.program, b.program) for a, b in phases]
    for program, other in [*pairs, (plain.update.policy, scaled.update.policy)]:
        expected = run(program, vectors, columns)
        found = run(other, {**vectors, **scale}, {**columns, **moved})
        for role, values in expected.outputs.items():
            np.testing.assert_allclose(found.outputs[role], values, rtol=1e-9, atol=1e-9)


def test_normalised_observations_are_bounded() -> None:
    """Ten deviations are the most that a network sees."""
    built = build("ddpg", normalize_observations=True)
    far = run(built.update.policy, built.parameters, {"obs": np.full((1, WIDTH), 1e6)})
    edge = run(built.update.policy, built.parameters, {"obs": np.full((1, WIDTH), 10.0)})
    np.testing.assert_array_equal(far.outputs["action"], edge.outputs["action"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("space", "words"),
    [
        (gym.spaces.Discrete(3), ["continuous actions", "--algo dqn"]),
        (gym.spaces.MultiDiscrete([2, 3]), ["continuous actions", "Box of floats"]),
        (gym.spaces.Dict({"a": box(2)}), ["continuous actions"]),
        (gym.spaces.Box(0, 5, (2,), np.int64), ["continuous actions"]),
        (gym.spaces.Box(-np.inf, np.inf, (2,)), ["finite bounds", "RescaleAction"]),
        (box(0), ["at least one number"]),
    ],
)
def test_action_space_that_does_not_fit(name: str, space: Any, words: list[str]) -> None:
    """Says what the algorithm needs, and which one fits instead."""
    with pytest.raises(ConfigError) as caught:
        algorithms.get(name).build(box(WIDTH), space)
    assert caught.value.field == "action_space"
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("space", [gym.spaces.Dict({"a": box(2)}), gym.spaces.Discrete(4), box(0)])
def test_observation_space_that_does_not_fit(space: Any) -> None:
    """Structured and empty observations are refused before anything is built."""
    with pytest.raises(ConfigError, match="`observation_space`"):
        algorithms.get("sac").build(space, box(ACTIONS))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("ddpg", "actor_learning_rate", 0.0),
        ("td3", "actor_learning_rate", float("inf")),
        ("td3", "policy_delay", 0),
        ("td3", "policy_delay", 2.0),
        ("td3", "target_update_interval", True),
        ("td3", "target_noise", -0.1),
        ("td3", "target_noise_clip", float("nan")),
        ("sac", "initial_temperature", 0.0),
        ("sac", "target_entropy", float("inf")),
        ("sac", "target_entropy", "high"),
        ("sac", "autotune", 1),
        ("sac", "max_grad_norm", -1.0),
        ("sac", "reward_scale", float("nan")),
        ("sac", "hidden", (8, 0)),
        ("sac", "hidden", (8.5,)),
        ("sac", "hidden", 8),
    ],
)
def test_setting_out_of_range(name: str, field: str, value: Any) -> None:
    """Each setting says what it may be."""
    with pytest.raises(ConfigError) as caught:
        replace(algorithms.get(name).config(), **{field: value})
    assert caught.value.field == field


def test_settings_of_another_algorithm() -> None:
    """They are refused before anything is built, instead of lacking something later."""
    settings = algorithms.get("dqn").config()
    with pytest.raises(ConfigError, match="SacConfig"):
        algorithms.get("sac").build(box(WIDTH), box(ACTIONS), settings)
