# SPDX-License-Identifier: MIT
"""DQN and double DQN: captured gradients against autograd, spaces, settings, networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from copal import algorithms
from copal.algorithms.dqn import DqnConfig
from copal.algorithms.networks import flatten_module, mlp, unflatten_into
from copal.errors import ConfigError, SchemaError, UnknownNameError
from copal.program import Update
from copal.program.reference import run


def box(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(-1.0, 1.0, shape)


def batch(rng: np.random.Generator, rows: int, width: int, actions: int) -> dict[str, np.ndarray]:
    """Rows as a replay gives them: n-step discounts, some terminated, weights up to 1."""
    return {
        "obs": rng.normal(size=(rows, width)),
        "action": rng.integers(actions, size=rows),
        "reward": 3 * rng.normal(size=rows),
        "next_obs": rng.normal(size=(rows, width)),
        "terminated": (rng.random(rows) < 0.3).astype(float),
        "discount": 0.99 ** rng.integers(1, 6, size=rows),
        "weight": rng.random(rows),
    }


def plain_gradient(
    sizes: tuple[int, ...],
    config: DqnConfig,
    parameters: dict[str, np.ndarray],
    columns: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the mean loss and TD errors, written out with ordinary autograd in float64."""
    q, target = mlp(sizes, 0).double(), mlp(sizes, 0).double()
    unflatten_into(q, parameters["q"])
    unflatten_into(target, parameters["q_target"])
    t = {k: torch.from_numpy(v) for k, v in columns.items()}
    rows = torch.arange(len(t["reward"]))
    value = q(t["obs"])[rows, t["action"]]
    with torch.no_grad():
        following = target(t["next_obs"])
        best = (q if config.double else target)(t["next_obs"]).argmax(1)
        y = t["reward"] + t["discount"] * (1 - t["terminated"]) * following[rows, best]
    td_error = value - y
    huber = torch.where(td_error.abs() < 1, 0.5 * td_error**2, td_error.abs() - 0.5)
    row_loss = huber if config.huber else 0.5 * td_error**2
    (t["weight"] * row_loss).mean().backward()
    flat = torch.cat([p.grad.flatten() for p in q.parameters() if p.grad is not None])
    return flat.numpy(), td_error.detach().numpy()


@pytest.mark.parametrize("name", ["dqn", "double-dqn"])
@pytest.mark.parametrize("huber", [True, False])
@given(data=st.data())
@settings(max_examples=4)
def test_gradient_equals_autograd(name: str, huber: bool, data: st.DataObject) -> None:
    """Gradient and TD errors of the Program, for random sizes, parameters and batches."""
    width = data.draw(st.integers(1, 9), "observation")
    actions = data.draw(st.integers(1, 6), "actions")
    hidden = tuple(data.draw(st.lists(st.integers(1, 20), max_size=3), "hidden"))
    rows = data.draw(st.integers(1, 40), "rows")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    config = DqnConfig(hidden=hidden, huber=huber, double=name == "double-dqn")
    built = algorithms.get(name).build(box(width), gym.spaces.Discrete(actions), config)
    parameters = {n: v + rng.normal(size=v.size) / 2 for n, v in built.parameters.items()}
    columns = batch(rng, rows, width, actions)

    expected, td_error = plain_gradient((width, *hidden, actions), config, parameters, columns)
    program = built.update.phases[0].program
    exact = run(program, parameters, columns)

    assert exact.gradient is not None
    scale = np.abs(expected).max() + 1e-30
    np.testing.assert_allclose(exact.gradient / rows / scale, expected / scale, atol=1e-12)
    np.testing.assert_allclose(exact.outputs["td_error"], td_error, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["dqn", "double-dqn"])
def test_policy_takes_the_best_action(name: str) -> None:
    """Outputs `q` [B, actions] and `action` [B]."""
    built = algorithms.get(name).build(box(3), gym.spaces.Discrete(4), seed=1)
    obs = np.random.default_rng(5).normal(size=(20, 3))
    result = run(built.update.policy, built.parameters, {"obs": obs})
    module = mlp((3, 256, 256, 4), 1).double()
    expected = module(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(result.outputs["q"], expected, atol=1e-12)
    assert result.outputs["action"].tolist() == expected.argmax(1).tolist()


def test_update_survives_json() -> None:
    """What a captured Update says as JSON is all that it is."""
    update = algorithms.get("dqn").build(box(3), gym.spaces.Discrete(2)).update
    assert Update.from_json(update.to_json()) == update


def test_update_holds_the_settings() -> None:
    """Optimiser, clipping and target rates reach the reduce step."""
    config = DqnConfig(
        hidden=(8,),
        learning_rate=0.01,
        adam_eps=1e-5,
        target_tau=1.0,
        target_update_interval=50,
        max_grad_norm=None,
    )
    update = algorithms.get("dqn").build(box(3), gym.spaces.Discrete(2), config).update
    (phase,), (target,) = update.phases, update.targets
    assert (phase.optimiser.learning_rate, phase.optimiser.eps) == (0.01, 1e-5)
    assert (phase.max_grad_norm, phase.every) == (None, 1)
    assert (target.source, target.target, target.tau, target.every) == ("q", "q_target", 1.0, 50)


def test_columns_fit_the_program() -> None:
    """The replay's columns give every input but the two that it adds itself."""
    built = algorithms.get("dqn").build(box(2, 3), gym.spaces.Discrete(2), DqnConfig(hidden=(4,)))
    inputs = {b.name: b.width for b in built.update.phases[0].program.inputs}
    assert set(inputs) - set(built.columns) == {"discount", "weight"}
    assert inputs["obs"] == 6
    assert built.columns["obs"] == ((6,), "float32")


def test_seed_decides_about_the_parameters_alone() -> None:
    """Same seed, same networks; PyTorch's own generator is left in peace."""
    spaces = box(3), gym.spaces.Discrete(2)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, again, other = (
        algorithms.get("dqn").build(*spaces, seed=seed).parameters["q"] for seed in (7, 7, 8)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_target_starts_as_a_copy() -> None:
    """The two vectors are equal and not the same memory."""
    parameters = algorithms.get("dqn").build(box(3), gym.spaces.Discrete(2)).parameters
    assert np.array_equal(parameters["q"], parameters["q_target"])
    assert not np.shares_memory(parameters["q"], parameters["q_target"])


@pytest.mark.parametrize(
    ("name", "found"),
    [("dqn", "dqn"), ("DQN", "dqn"), ("ddqn", "double-dqn"), ("double_dqn", "double-dqn")],
)
def test_names_and_aliases(name: str, found: str) -> None:
    """Every spelling that users type."""
    assert algorithms.get(name).name == found


def test_name_decides_about_double() -> None:
    """`dqn` with a configuration of double DQN is still DQN."""
    config = DqnConfig(hidden=(4,), double=True)
    built = algorithms.get("dqn").build(box(3), gym.spaces.Discrete(2), config)
    assert built.update.name == "dqn"
    assert "row_argmax" not in {op.kind for op in built.update.phases[0].program.ops}


def test_unknown_algorithm_lists_near_matches() -> None:
    """A typing mistake is answered with what it may have meant."""
    with pytest.raises(UnknownNameError, match="did you mean `dqn`"):
        algorithms.get("dqnn")


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (box(2), ["discrete actions", "DDPG, TD3 and SAC"]),
        (gym.spaces.MultiDiscrete([2, 3]), ["discrete actions", "Discrete(n)"]),
        (gym.spaces.Discrete(3, start=1), ["counted from 0"]),
    ],
)
def test_action_space_that_does_not_fit(space: Any, words: list[str]) -> None:
    """Says that DQN needs discrete actions, and what fits instead."""
    with pytest.raises(ConfigError) as caught:
        algorithms.get("dqn").build(box(3), space)
    assert caught.value.field == "action_space"
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("space", "word"),
    [
        (gym.spaces.Box(0, 255, (20, 20, 4), np.uint8), "pixels"),
        (gym.spaces.Discrete(5), "FlattenObservation"),
        (gym.spaces.Dict({"a": box(2)}), "FlattenObservation"),
    ],
)
def test_observation_space_that_does_not_fit(space: Any, word: str) -> None:
    """Tiny images and structured observations are refused with what to do."""
    with pytest.raises(ConfigError) as caught:
        algorithms.get("dqn").build(space, gym.spaces.Discrete(2))
    assert caught.value.field == "observation_space"
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", (0,)),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("adam_eps", -1.0),
        ("huber", "cubic"),
        ("target_tau", 0.0),
        ("target_tau", 1.1),
        ("target_update_interval", 0),
        ("max_grad_norm", -1.0),
        ("reward_scale", 0.0),
        ("normalize_observations", 1),
        ("double", "yes"),
    ],
)
def test_setting_out_of_range(field: str, value: Any) -> None:
    """Each setting says what it may be."""
    with pytest.raises(ConfigError) as caught:
        replace(DqnConfig(), **{field: value})
    assert caught.value.field == field


def test_flat_vector_goes_back_into_a_module() -> None:
    """`unflatten_into` undoes `flatten_module`."""
    first, second = mlp((3, 5, 2), 0), mlp((3, 5, 2), 1)
    unflatten_into(second, flatten_module(first))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_flat_vector_is_rows_then_bias() -> None:
    """A dense layer lies as [out, in] row by row, then its bias."""
    layer = nn.Linear(3, 2)
    flat = flatten_module(layer)
    np.testing.assert_array_equal(flat[:6].reshape(2, 3), layer.weight.detach().numpy())
    np.testing.assert_array_equal(flat[6:], layer.bias.detach().numpy())


def test_flat_vector_of_another_size_changes_nothing() -> None:
    """The error comes before the first copy."""
    module = mlp((3, 5, 2), 0)
    before = flatten_module(module)
    with pytest.raises(SchemaError, match="`vector`"):
        unflatten_into(module, np.zeros(4))
    assert np.array_equal(flatten_module(module), before)
