# SPDX-License-Identifier: MIT
"""Evaluation and saved policies against a plain loop over episodes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import copal
import counting_env
from copal import algorithms
from copal.envs import Actions
from copal.errors import (
    CheckpointError,
    ConfigError,
    EnvironmentFailedError,
    ProgramError,
    SchemaError,
)
from copal.program import reference
from copal.runtime import evaluation
from copal.runtime.evaluation import PARALLEL, Interrupted, play
from copal.runtime.policy import Policy, PolicyFacts


def random_policy(env_id: str, seed: int) -> Policy:
    """An untrained policy, with weights large enough for both actions to occur."""
    env = gymnasium.make(env_id)
    built = algorithms.get("dqn").build(env.observation_space, env.action_space, None, seed)
    shape = env.observation_space.shape
    facts = PolicyFacts(env_id, "dqn", shape, Actions.of(env.action_space))
    env.close()
    return Policy(built.update.policy, built.parameters["q"], facts)


@pytest.fixture(autouse=True)
def _registered() -> None:
    counting_env.register()
    counting_env.Counting.arm()


@pytest.mark.parametrize("episodes", [1, 3, 16, 40])
def test_returns_equal_a_plain_loop(episodes: int) -> None:
    """Side by side or one after the other, episode i is the one of seed + i."""
    policy = random_policy("CartPole-v1", 5)
    env = gymnasium.make("CartPole-v1")
    expected = []
    for i in range(episodes):
        obs, _ = env.reset(seed=100 + i)
        total, ended = 0.0, False
        while not ended:
            columns = {"obs": np.asarray(obs, np.float32)[None]}
            values = reference.run(policy.program, {"q": policy.weights}, columns).outputs
            obs, reward, terminated, truncated, _ = env.step(int(values["action"][0]))
            total, ended = total + float(reward), terminated or truncated
        expected.append(total)
    score = play(policy, episodes, 100)
    assert score.returns == tuple(expected)
    assert score.mean == pytest.approx(np.mean(expected))
    assert score.std == pytest.approx(np.std(expected))
    assert score.mean_length == pytest.approx(np.mean(expected))


def test_single_and_batched_observations_agree() -> None:
    """One observation gives an int, several an array, and both the reference's actions."""
    policy = random_policy("LunarLander-v3", 2)
    obs = np.random.default_rng(0).normal(size=(33, 8)).astype(np.float32)
    expected = reference.run(policy.program, {"q": policy.weights}, {"obs": obs}).outputs["action"]
    np.testing.assert_array_equal(policy.act(obs), expected)
    assert [policy.act(o) for o in obs] == expected.tolist()
    assert policy.act(obs.astype(np.float64).tolist()[0]) == expected[0]


@pytest.mark.parametrize("shape", [(7,), (3, 9), (2, 2, 8), ()])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    """The error names the shape that fits."""
    with pytest.raises(SchemaError, match=r"\(8,\)"):
        random_policy("LunarLander-v3", 2).act(np.zeros(shape, np.float32))


def test_saved_policy_acts_alike(tmp_path: Path) -> None:
    """Also when it replaces another one, and from the folder above."""
    random_policy("CartPole-v1", 1).save(tmp_path / "policy")
    policy = random_policy("CartPole-v1", 2)
    policy.save(tmp_path / "policy")
    obs = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    for folder in (tmp_path / "policy", tmp_path):
        again = copal.load_policy(folder)
        assert again.facts == policy.facts
        np.testing.assert_array_equal(again.act(obs), policy.act(obs))
    assert [p.name for p in tmp_path.iterdir()] == ["policy"]


@pytest.mark.parametrize("damage", ["missing", "truncated", "version", "incomplete"])
def test_damaged_policy_is_refused(tmp_path: Path, damage: str) -> None:
    """A typed error, whatever is wrong with the folder."""
    random_policy("CartPole-v1", 1).save(tmp_path)
    facts, weights = tmp_path / "policy.json", tmp_path / "weights.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-7])
    elif damage == "version":
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": 99}))
    else:
        facts.write_text(json.dumps({"format": 1}))
    with pytest.raises(CheckpointError):
        copal.load_policy(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actions", {"kind": "box", "shape": [1], "low": [], "high": [], "dtype": "float32"}),
        ("actions", {"kind": "others"}),
        ("actions", {"kind": "discrete", "count": 0}),
        ("actions", {"kind": "discrete", "count": 2, "dtype": "floaty"}),
        ("actions", 5),
        ("frame_stack", "x"),
        ("obs_shape", 4),
        ("program", 5),
        ("format", "2"),
    ],
)
def test_altered_policy_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    """Also where the file is still JSON."""
    random_policy("CartPole-v1", 1).save(tmp_path)
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises((CheckpointError, ProgramError)):
        copal.load_policy(tmp_path)


@pytest.mark.parametrize("text", ["[]", "5", "null", "[" * 100_000, ""])
def test_other_json_is_no_policy(tmp_path: Path, text: str) -> None:
    """However it is nested."""
    random_policy("CartPole-v1", 1).save(tmp_path)
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(CheckpointError):
        copal.load_policy(tmp_path)


def test_crashing_environment_plays_the_episode_again() -> None:
    """A crash changes no return; three in a row are an error."""
    policy = random_policy("Counting-v0", 1)
    counting_env.Counting.arm(crash_at={10, 30})
    assert play(policy, 5, 0).returns == (7.0,) * 5
    counting_env.Counting.arm(crash_at=range(10, 40))
    with pytest.raises(EnvironmentFailedError, match="the simulator broke down"):
        play(policy, 1, 0) and play(policy, 5, 0)


def test_episode_that_always_crashes_midway_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun again with its seed it fails at the same step, for ever if nobody counted."""
    step = counting_env.Counting.step

    def crash(env: Any, action: Any) -> Any:
        result = step(env, action)
        if result[0][0] == 5:
            raise RuntimeError("the fifth step is broken")
        return result

    monkeypatch.setattr(counting_env.Counting, "step", crash)
    with pytest.raises(EnvironmentFailedError, match="the fifth step is broken"):
        play(random_policy("Counting-v0", 1), 2, 0)


@pytest.mark.parametrize(
    "broken", [{"obs": np.array([np.nan, 0])}, {"obs": np.zeros(3)}, {"reward": np.nan}]
)
def test_numbers_that_no_policy_can_take_are_failures(
    broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in training: the episode is played again, and a mean return is never NaN."""
    step, calls = counting_env.Counting.step, iter(range(1000))

    def sometimes(env: Any, action: Any) -> Any:
        obs, reward, *ended = step(env, action)
        if next(calls) == 9:
            obs, reward = broken.get("obs", obs), broken.get("reward", reward)
        return obs, reward, *ended

    monkeypatch.setattr(counting_env.Counting, "step", sometimes)
    assert play(random_policy("Counting-v0", 1), 3, 0).returns == (7.0,) * 3


@pytest.mark.parametrize("other", ["CartPole-v1", "Pendulum-v1", "Counting-v0"])
def test_environment_with_other_spaces_is_refused(other: str) -> None:
    """Under the name of the one that the policy was trained in."""
    known = random_policy("MountainCar-v0", 1)  # as wide as Counting-v0, with one more action
    policy = Policy(known.program, known.weights, replace(known.facts, env=other))
    with pytest.raises(ConfigError, match=other):
        play(policy, 2, 0)


def test_episode_without_an_end_counts_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the longest that an episode may be."""
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 5)
    assert play(random_policy("Counting-v0", 1), 3, 0).returns == (5.0,) * 3


@pytest.mark.parametrize("interrupted", [False, True])
def test_evaluation_can_be_interrupted(interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks between two steps, and closes its environments in any case."""
    closed: list[int] = []
    monkeypatch.setattr(counting_env.Counting, "close", lambda env: closed.append(id(env)))
    policy = random_policy("Counting-v0", 1)
    closed.clear()
    asked = iter([False] * 5 + [interrupted] * 100)
    with pytest.raises(Interrupted) if interrupted else contextlib.nullcontext():
        play(policy, 50, 0, stop=lambda: next(asked))
    assert len(set(closed)) == PARALLEL


def test_no_episodes_are_refused(tmp_path: Path) -> None:
    """The error names the argument."""
    random_policy("CartPole-v1", 1).save(tmp_path)
    with pytest.raises(ConfigError, match="episodes"):
        copal.evaluate(tmp_path, episodes=0)
    with pytest.raises(ConfigError, match="seed"):
        copal.evaluate(tmp_path, seed=-5)


def continuous_policy(algo: str = "sac") -> Policy:
    """An untrained policy for an environment whose actions are a box [2, 3], not around 0."""
    space = gymnasium.spaces.Box(-1.0, 5.0, (2, 3), np.float64)
    observations = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    built = algorithms.get(algo).build(observations, space, None, 3)
    program = built.update.policy
    weights = np.concatenate([built.parameters[n.name] for n in program.networks])
    return Policy(program, weights, PolicyFacts("Odd-v0", algo, (4,), Actions.of(space)))


def test_continuous_actions_are_the_environments(tmp_path: Path) -> None:
    """In its shape, dtype and range: those of the reference, scaled; kept by a saved policy."""
    policy = continuous_policy()
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    columns = {"obs": obs, "noise": np.zeros((9, 6), np.float32)}
    raw = reference.run(policy.program, {"actor": policy.weights}, columns).outputs["action"]
    actions = policy.act(obs)
    assert (actions.shape, actions.dtype) == ((9, 2, 3), np.float64)
    np.testing.assert_allclose(actions.reshape(9, 6), 2 + 3 * raw, atol=1e-5)
    np.testing.assert_allclose(policy.act(obs[3]), actions[3], atol=1e-6)
    policy.save(tmp_path / "policy")
    again = copal.load_policy(tmp_path, algo="SAC", env="Odd-v0")
    assert again.facts == policy.facts
    np.testing.assert_array_equal(again.act(obs), actions)


def test_policy_of_the_first_format_loads(tmp_path: Path) -> None:
    """It knew discrete actions only."""
    policy = random_policy("CartPole-v1", 1)
    policy.save(tmp_path)
    facts = json.loads((tmp_path / "policy.json").read_text())
    del facts["frame_stack"]
    old = {**facts, "format": 1, "actions": 2, "action_start": 0}
    (tmp_path / "policy.json").write_text(json.dumps(old))
    again = copal.load_policy(tmp_path)
    obs = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    assert (again.facts.actions.count, again.facts.actions.start) == (2, 0)
    np.testing.assert_array_equal(again.act(obs), policy.act(obs))


def test_weights_of_another_size_are_refused() -> None:
    """Whatever they come from; the networks are named."""
    policy = random_policy("CartPole-v1", 1)
    with pytest.raises(CheckpointError, match="'q'"):
        Policy(policy.program, policy.weights[:-1], policy.facts)


def test_policy_itself_is_scored_like_its_folder(tmp_path: Path) -> None:
    """`copal.evaluate(result.best)`, with the same checks of algorithm and environment."""
    policy = random_policy("CartPole-v1", 5)
    policy.save(tmp_path / "policy")
    scores = [copal.evaluate(p, episodes=3, algo="dqn") for p in (policy, tmp_path, str(tmp_path))]
    assert scores[0] == scores[1] == scores[2]
    with pytest.raises(CheckpointError, match="Pendulum"):
        copal.evaluate(policy, env="Pendulum-v1")


@pytest.mark.parametrize("wrong", [random_policy, None, 3])
def test_what_is_no_policy_is_refused(wrong: Any) -> None:
    """The method `result.policy` for instance; the hint names `result.best`."""
    with pytest.raises(ConfigError, match=r"copal\.Policy.*\n.*result\.best"):
        copal.evaluate(wrong)
