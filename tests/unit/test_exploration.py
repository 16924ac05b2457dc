# SPDX-License-Identifier: MIT
"""Exploration whose every number is a function of seed, actor and number of draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from copal.replay import LinearSchedule
from copal.runtime import exploration
from copal.runtime.exploration import BLOCK, Exploration

WIDTH = 3


class Fixed:
    """A policy that always says the same, and a random action of a known kind."""

    def __init__(self, action: float) -> None:
        self.action = action
        self.noise: Any = None

    def act_into(
        self, store: Any, obs: Any, out: Any, role: str = "action", noise: Any = None
    ) -> None:
        del store, obs
        assert (role == "sample") == (noise is not None)
        out[...] = self.action if noise is None else np.tanh(self.action + noise)
        self.noise = noise


def make(
    kind: str, *, seed: int = 7, actor: int = 1, count: int = 2, policy: Any = None, **changes: Any
) -> Exploration:
    """An exploration with settings that show: epsilon 1, random until step 0, sigma 0.5."""
    settings: dict[str, Any] = {
        "actions": WIDTH,
        "epsilon": LinearSchedule(1.0, 1.0, 1),
        "starts": 0,
        "sigma": 0.5,
        **changes,
    }
    policy = policy or Fixed(0.0)
    return exploration.make(kind, policy, seed=seed, actor=actor, count=count, **settings)


def take(source: Exploration, before: int = 0, count: int = 2) -> np.ndarray:
    """The next actions of an exploration."""
    discrete = isinstance(source, exploration.EpsilonGreedy)
    out = np.full(count, -1) if discrete else np.full((count, WIDTH), np.nan, np.float32)
    source.act(None, np.zeros((count, 1), np.float32), before, out)
    return out


KINDS = ["epsilon", "gaussian", "policy"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("draws", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_restored_exploration_goes_on(kind: str, draws: int) -> None:
    """After n draws a new object restored to n gives the same actions, random start or not."""
    one, two = (make(kind, starts=draws + 9) for _ in range(2))
    for before in range(draws):
        take(one, before)
    two.restore(one.draws)
    for before in range(draws, draws + BLOCK + 5):
        np.testing.assert_array_equal(take(one, before), take(two, before))


def drawn(make_one: Callable[..., Exploration], steps: int = 2 * BLOCK) -> np.ndarray:
    source = make_one()
    return np.array([take(source, before) for before in range(steps)])


@pytest.mark.parametrize("kind", KINDS)
def test_other_actors_and_seeds_draw_other_numbers(kind: str) -> None:
    """No two of three agree."""
    keys = [{"seed": 1, "actor": 0}, {"seed": 1, "actor": 1}, {"seed": 2, "actor": 0}]
    first, *others = (drawn(lambda k=k: make(kind, **k), 20) for k in keys)
    assert not any(np.array_equal(first, other) for other in others)


def test_random_discrete_actions_are_uniform_and_as_many_as_epsilon_says() -> None:
    """The policy's action is 1; epsilon 0.6 of three actions leaves it 0.6 / 3 + 0.4."""
    actions = drawn(
        lambda: make("epsilon", policy=Fixed(1), epsilon=LinearSchedule(0.6, 0.6, 1))
    ).ravel()
    shares = np.bincount(actions, minlength=3) / actions.size
    np.testing.assert_allclose(shares, [0.2, 0.6, 0.2], atol=6 * np.sqrt(0.24 / actions.size))


@pytest.mark.parametrize("kind", ["gaussian", "policy"])
def test_continuous_actions_begin_uniform(kind: str) -> None:
    """Up to `starts` they fill [-1, 1] evenly; the first one after that is the policy's."""
    steps = 2 * BLOCK
    source = make(kind, starts=steps, policy=Fixed(2.0))
    actions = np.array([take(source, before) for before in range(steps)])
    counts, _ = np.histogram(actions, 4, (-1, 1))
    assert counts.sum() == actions.size
    assert (abs(counts / actions.size - 0.25) < 6 * np.sqrt(0.19 / actions.size)).all()
    assert source._policy.noise is None, "the policy was not asked"
    after = np.array([take(source, steps + i) for i in range(200)])
    assert after.mean() > 0.5


def test_gaussian_noise_has_its_deviation_and_stays_inside() -> None:
    """Around 0 the deviation is sigma; around an end the noise is cut off there."""
    inside = drawn(lambda: make("gaussian", sigma=0.1))
    assert inside.std() == pytest.approx(0.1, rel=0.05)
    assert abs(inside.mean()) < 0.005
    at_the_end = drawn(lambda: make("gaussian", policy=Fixed(1.0)), 200)
    assert at_the_end.max() == 1.0
    assert 0.4 < (at_the_end == 1.0).mean() < 0.6
    assert np.unique(drawn(lambda: make("gaussian", sigma=0.0), 5)).tolist() == [0.0]


def test_a_policy_that_draws_gets_standard_normal_noise() -> None:
    """Its own action is what comes out."""
    policy = Fixed(0.25)
    source = make("policy", policy=policy)
    noise = []
    for before in range(BLOCK):
        action = take(source, before)
        np.testing.assert_array_equal(action, np.tanh(0.25 + policy.noise))
        noise.append(policy.noise)
    assert np.std(noise) == pytest.approx(1.0, rel=0.05)
    assert abs(np.mean(noise)) < 0.05
