# SPDX-License-Identifier: MIT
# ruff: noqa: ARG002, ARG005  every part takes what an algorithm's takes
"""Mistakes in an algorithm of one's own: each is a typed error that says where it is."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch

from copal import algorithms
from copal.algorithms import CommonConfig
from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.networks import mlp
from copal.errors import CaptureError, ConfigError

OBSERVATIONS = gym.spaces.Box(-1, 1, (4,))
DISCRETE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))


class Own:
    """Regression of Q(s, a) on the reward; a test replaces one part by a wrong one."""

    name, config = "own", CommonConfig
    defaults: ClassVar[Any] = {}
    actions, column, exploration = 3, ((), "int64"), "epsilon"
    outputs: tuple[str, ...] = ("q", "action")
    acting: tuple[str, ...] = ("q",)
    noises: Any = None

    def loss(self, nets: Any, batch: Any) -> Any:
        error = nets.q(batch.obs)[:, 0] - batch.reward
        return error**2, error, {"error": error}

    def policy(self, nets: Any, batch: Any) -> Any:
        values = nets.q(batch.obs)
        return values, values.argmax(1)

    def columns(self) -> Any:
        return transitions(4, self.column)

    def build(self, observations: Any, actions: Any, config: Any = None, seed: int = 0) -> Any:
        return assemble(
            self.name,
            config,
            networks={"q": mlp((4, 8, self.actions), seed)},
            steps=[Step("q", self.loss)],
            acting=Acting(self.policy, self.acting, self.outputs, exploration=self.exploration),
            columns=self.columns(),
            noises=self.noises,
        )


def own(**parts: Any) -> Any:
    """`Own` with other parts."""
    return type("Wrong", (Own,), parts)()


def build(algorithm: Any, actions: Any = DISCRETE) -> Any:
    return algorithms.build(algorithm, OBSERVATIONS, actions, CommonConfig(hidden=(8,)))


def test_right_one_is_built() -> None:
    """What the others are compared with; and one for continuous actions."""
    assert build(own()).update.name == "own"
    built = build(
        own(
            column=((2,), "float32"),
            exploration="gaussian",
            outputs=("action",),
            policy=lambda self, nets, batch: nets.q(batch.obs)[:, :2],
        ),
        BOX,
    )
    assert built.exploration == "gaussian"


def divide(self: Any, nets: Any, batch: Any) -> Any:
    return 1 / 0


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (divide, ["ZeroDivisionError", "loss of own", "`return 1 / 0`", __file__]),
        (lambda s, n, b: n.q(b.rewards), ["no column `rewards`", "reward"]),
        (lambda s, n, b: n.p(b.obs), ["no network `p`", "only q"]),
        (lambda s, n, b: n.q(b.obs) @ b.obs, ["RuntimeError", "shapes", __file__]),
        (lambda s, n, b: (b.reward.numpy(), b.reward), ["RuntimeError", __file__]),
        (lambda s, n, b: (*Own().loss(n, b)[:2], [b.reward]), ["list"]),
        (lambda s, n, b: (b.reward, b.reward), ["depend on the network `q`"]),
        (
            lambda s, n, b: tuple(torch.detach(x) for x in Own().loss(n, b)[:2]),
            ["depend on the network `q`"],
        ),
    ],
)
def test_loss_that_fails_is_located(loss: Any, words: list[str]) -> None:
    """What it raised or returned, and the line."""
    with pytest.raises(CaptureError) as caught:
        build(own(loss=loss))
    for word in words:
        assert word in str(caught.value)


def test_policy_that_fails_is_located() -> None:
    """Like a loss."""
    with pytest.raises(CaptureError, match=r"own-policy.*ZeroDivisionError.*1 / 0"):
        build(own(policy=divide))


@pytest.mark.parametrize(
    ("parts", "actions", "words"),
    [
        ({"build": lambda s, o, a, c=None, seed=0: None}, DISCRETE, ["assemble", "NoneType"]),
        ({"build": lambda s, o, a: None}, DISCRETE, ["TypeError", "build"]),
        ({"build": lambda s, o, a, c=None, seed=0: {}["x"]}, DISCRETE, ["KeyError", __file__]),
        ({"acting": ("p",)}, DISCRETE, ["networks among q", "`p`"]),
        ({"noises": {"obs": 2}}, DISCRETE, ["noises", "`obs`"]),
        ({"noises": {"weight": 1}}, DISCRETE, ["noises", "`weight`"]),
        ({"noises": {"mine": 0}}, DISCRETE, ["`mine`", "at least 1"]),
        ({"exploration": "random"}, DISCRETE, ["epsilon", "`random`"]),
        ({"exploration": "gaussian"}, DISCRETE, ["epsilon", "`gaussian`"]),
        ({}, BOX, ["gaussian or policy", "`epsilon`"]),
        ({"exploration": "gaussian"}, BOX, ["column `action`", "float32"]),
        ({"column": ((1,), "float32")}, DISCRETE, ["column `action`", "int64"]),
        ({"outputs": ("q", "act")}, DISCRETE, ["output `action`", "none"]),
        ({"outputs": ("action", "q")}, DISCRETE, ["output `action`", "float32 [B, 3]"]),
        ({"columns": lambda s: transitions(5, s.column)}, DISCRETE, ["RuntimeError", "shapes"]),
        (
            {
                "columns": lambda s: {**transitions(4, s.column), "extra": ((), "float32")},
            },
            DISCRETE,
            ["columns", "extra"],
        ),
        (
            {
                "columns": lambda s: {**transitions(4, s.column), "next_obs": ((3,), "float32")},
            },
            DISCRETE,
            ["`next_obs` of 4 numbers", "(3,)"],
        ),
        (
            {
                "column": ((2,), "float32"),
                "exploration": "policy",
                "outputs": ("action", "sample"),
                "policy": lambda s, n, b: (n.q(b.obs)[:, :2], n.q(b.obs)[:, :2]),
            },
            BOX,
            ["input `noise`"],
        ),
    ],
)
def test_parts_that_do_not_fit_are_named(
    parts: dict[str, Any], actions: Any, words: list[str]
) -> None:
    """Before a run begins, not when its first actor or learner meets them."""
    with pytest.raises((ConfigError, CaptureError)) as caught:
        build(own(**parts), actions)
    for word in words:
        assert word in str(caught.value)


def test_layers_of_ones_own_depend_on_the_seed_alone() -> None:
    """Plain nn.Linear draws from PyTorch's generator, which is left as it was."""

    def plain(self: Any, obs: Any, actions: Any, config: Any = None, seed: int = 0) -> Any:
        q = torch.nn.Linear(4, self.actions)
        return assemble(
            self.name,
            config,
            networks={"q": q},
            steps=[Step("q", self.loss)],
            acting=Acting(self.policy, self.acting, self.outputs),
            columns=self.columns(),
        )

    def vector(seed: int) -> Any:
        algorithm = own(build=plain)
        spaces = [(OBSERVATIONS, DISCRETE)]
        built = algorithms.build_on_first(algorithm, spaces, CommonConfig(), seed)
        return built.parameters["q"]

    before = torch.random.get_rng_state()
    first, again, other = vector(3), vector(3), vector(4)
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
