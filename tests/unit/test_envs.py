# SPDX-License-Identifier: MIT
"""Environments behind the small interface: true last observations, seeds, faults, restoring."""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import counting_env
from copal import envs
from copal.envs import Actions, Scale
from copal.errors import ConfigError, EnvironmentFailedError, UnknownNameError


@pytest.fixture(autouse=True)
def _registered() -> None:
    counting_env.register()
    counting_env.Counting.arm()


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.int64)


@pytest.mark.parametrize(("env_id", "cut"), [("Counting-v0", False), ("CountingCut-v0", True)])
def test_transitions_never_cross_an_episode(env_id: str, cut: bool) -> None:
    """Each step leads one further within its episode, and the seventh carries the right flag."""
    pool = envs.make(env_id, 2, seed=3)
    for step in range(30):
        before = pool.obs.copy()
        pool.step(zeros(2))
        assert (pool.next_obs[:, 0] == before[:, 0] + 1).all()
        assert (pool.next_obs[:, 1] == before[:, 1]).all(), "the noise is fixed in an episode"
        last = step % 7 == 6
        assert (pool.terminated == (last and not cut)).all()
        assert (pool.truncated == (last and cut)).all()
        pool.advance()
        assert (pool.obs[:, 0] == (0 if last else before[:, 0] + 1)).all()
    assert [tuple(e) for e in pool.finished] == [(7.0, 7)] * 8
    pool.close()


def test_matches_gymnasium_itself() -> None:
    """Observations, rewards and ends are those of the bare environment under the same actions."""
    pool = envs.make("CartPole-v1", 1, seed=11)
    bare = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(0)
    episode = 0
    seed = np.random.SeedSequence((11, 0, episode)).generate_state(1)[0]
    expected, _ = bare.reset(seed=int(seed))
    for _ in range(300):
        np.testing.assert_array_equal(pool.obs[0], expected)
        action = int(rng.integers(2))
        pool.step(np.array([action]))
        expected, reward, terminated, truncated, _ = bare.step(action)
        np.testing.assert_array_equal(pool.next_obs[0], expected)
        assert (pool.reward[0], pool.terminated[0]) == (reward, terminated)
        if terminated or truncated:
            episode += 1
            seed = np.random.SeedSequence((11, 0, episode)).generate_state(1)[0]
            expected, _ = bare.reset(seed=int(seed))
        pool.advance()
    assert episode > 3


def test_streams_and_episodes_have_seeds_of_their_own() -> None:
    """No two episodes of any two streams begin alike, and the same seed repeats them."""

    def first_observations(seed: int, stream: int) -> set[float]:
        pool = envs.make("Counting-v0", 2, seed=seed, first_stream=stream)
        seen = set(pool.obs[:, 1].tolist())
        for _ in range(20):
            pool.step(zeros(2))
            pool.advance()
            seen |= set(pool.obs[:, 1].tolist())
        return seen

    a, b, again = first_observations(1, 0), first_observations(1, 2), first_observations(1, 0)
    assert len(a) == len(b) == 6
    assert not a & b
    assert a == again


def test_observations_other_than_boxes_are_flattened() -> None:
    """A discrete observation arrives as a one-hot vector."""
    pool = envs.make("FrozenLake-v1", 1, seed=0)
    assert pool.obs.shape == (1, 16)
    assert pool.obs.sum() == 1


class Spaces(gymnasium.Env):  # type: ignore[misc]
    """Any spaces; nothing ever happens."""

    def __init__(self, observation: Any = None, action: Any = None) -> None:
        self.observation_space = observation or gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = action or gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}


def broken() -> Any:
    raise OSError("no licence")


def made(entry: Any, **settings: Any) -> envs.Environments:
    """One environment of its own kind."""
    gymnasium.registry.pop("Odd-v0", None)
    gymnasium.register("Odd-v0", entry_point=entry, kwargs=settings)
    return envs.make("Odd-v0", 1, seed=0)


@pytest.mark.parametrize("entry", [broken, int])
def test_constructors_that_fail_are_named(entry: Any) -> None:
    """Whatever they raise or return."""
    with pytest.raises(ConfigError, match="Odd-v0"):
        made(entry)


def test_observations_of_any_length_are_refused() -> None:
    """They cannot become a vector."""
    endless = gymnasium.spaces.Sequence(gymnasium.spaces.Box(0, 1, (2,), np.float32))
    with pytest.raises(ConfigError, match="flattened"):
        made(Spaces, observation=endless)


def test_action_spaces_without_one_first_action() -> None:
    """They are left to the algorithm to judge."""
    space = gymnasium.spaces.MultiDiscrete([2, 3], start=[1, 1])
    assert made(Spaces, action=space).action_space == space


@pytest.mark.parametrize("kind", ["crash_at", "nan_at"])
def test_failed_step_is_replaced_and_counted(kind: str) -> None:
    """The failing environment begins anew with no transition; its neighbour goes on."""
    counting_env.Counting.arm(**{kind: {5}})
    pool = envs.make("Counting-v0", 2, seed=0)
    for _ in range(2):
        pool.step(zeros(2))
        pool.advance()
    pool.step(zeros(2))
    assert pool.lost.tolist() == [True, False]
    assert pool.any_lost
    pool.advance()
    assert pool.obs[:, 0].tolist() == [0, 3]
    assert pool.restarts == 1
    pool.step(zeros(2))
    assert not pool.any_lost
    assert not pool.lost.any()


@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e39, -1e300])
def test_rewards_that_float32_cannot_hold_are_failures(
    reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be infinite in the replay, where every learner meets them."""
    step = counting_env.Counting.step
    monkeypatch.setattr(
        counting_env.Counting, "step", lambda env, a: (step(env, a)[0], reward, False, False, {})
    )
    pool = envs.make("Counting-v0", 1, seed=0)
    pool.step(zeros(1))
    assert pool.any_lost
    assert "float32" in pool.replaced[0].reason
    assert np.isfinite(pool.reward).all()


def test_three_failures_in_a_row_stop() -> None:
    """The third failure without a step in between is an error that names its cause."""
    counting_env.Counting.arm(crash_at={3, 4, 5})
    pool = envs.make("Counting-v0", 1, seed=0)
    for _ in range(2):
        pool.step(zeros(1))
        pool.advance()
    for _ in range(2):
        pool.step(zeros(1))
        pool.advance()
    with pytest.raises(EnvironmentFailedError, match="the simulator broke down"):
        pool.step(zeros(1))
    assert pool.restarts == 2


def test_failed_reset_is_tried_with_a_new_instance() -> None:
    """Two failures in a row are survived, no step is lost, and a third one is an error."""
    counting_env.Counting.arm(reset_crash_at={2, 3})
    pool = envs.make("Counting-v0", 1, seed=0)
    for _ in range(8):
        pool.step(zeros(1))
        assert not pool.any_lost
        pool.advance()
    assert (pool.restarts, pool.obs[0, 0]) == (2, 1)
    counting_env.Counting.arm(reset_crash_at={1, 2, 3})
    with pytest.raises(EnvironmentFailedError, match="the simulator does not start"):
        envs.make("Counting-v0", 1, seed=0)


def test_failures_apart_do_not_stop() -> None:
    """A successful step in between starts the count again."""
    counting_env.Counting.arm(crash_at={2, 3, 5, 6, 8, 9})
    pool = envs.make("Counting-v0", 1, seed=0)
    for _ in range(12):
        pool.step(zeros(1))
        pool.advance()
    assert pool.restarts == 6


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "CartPole-v1", "Counting-v0"])
@pytest.mark.parametrize("steps", [0, 1, 40, 150])
def test_restored_episode_goes_on_bit_equal(env_id: str, steps: int) -> None:
    """A new pool that restores the state makes the same transitions as the first one."""
    rng = np.random.default_rng(steps)
    one = envs.make(env_id, 2, seed=5, first_stream=4)
    for _ in range(steps):
        one.step(rng.integers(2, size=2))
        one.advance()
    two = envs.make(env_id, 2, seed=5, first_stream=4)
    assert two.restore(one.state()) == []
    for _ in range(60):
        np.testing.assert_array_equal(one.obs, two.obs)
        actions = rng.integers(2, size=2)
        one.step(actions)
        two.step(actions)
        np.testing.assert_array_equal(one.next_obs, two.next_obs)
        one.advance()
        two.advance()


def test_episode_that_cannot_be_reproduced_is_named() -> None:
    """A stored observation that the replay does not reach leads to a fresh episode."""
    one = envs.make("CartPole-v1", 2, seed=5)
    for _ in range(5):
        one.step(zeros(2))
        one.advance()
    state = one.state()
    state[1]["obs"][0] += 0.25
    two = envs.make("CartPole-v1", 2, seed=5)
    assert two.restore(state) == [1]
    np.testing.assert_array_equal(two.obs[0], one.obs[0])
    assert abs(two.obs[1]).max() <= 0.05, "a first observation of CartPole"


def test_unknown_name_lists_near_matches() -> None:
    """The error says which names look alike."""
    with pytest.raises(UnknownNameError, match="LunarLander-v3"):
        envs.make("LunarLandr-v3", 1, seed=0)
    with pytest.raises(UnknownNameError, match="CartPole-v1"):
        envs.make("CartPole-v7", 1, seed=0)


def test_missing_envpool_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the error holds the command that installs it."""
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match="pip install envpool"):
        envs.make("CartPole-v1", 1, seed=0, vectorization="envpool")


def test_envpool_shows_no_step_across_episodes() -> None:
    """After an end comes a first observation of the next episode, and no other transition."""
    pytest.importorskip("envpool", exc_type=ImportError)
    pool = envs.make("CartPole-v1", 4, seed=3, vectorization="envpool")
    ends = 0
    for _ in range(200):
        before = pool.obs.copy()
        pool.step(zeros(4))
        # Pushed to the left for 0.02 s, the cart moves by its velocity, whatever else happens.
        np.testing.assert_allclose(
            pool.next_obs[:, 0], before[:, 0] + 0.02 * before[:, 1], rtol=0, atol=1e-5
        )
        ended = pool.terminated | pool.truncated
        pool.advance()
        assert (np.abs(pool.obs[ended]) <= 0.05).all()
        ends += int(ended.sum())
    assert ends == len(pool.finished) > 40
    pool.close()


def moves(pool: envs.Environments, rng: np.random.Generator) -> np.ndarray:
    """Random actions of any kind, continuous ones a little beyond [-1, 1]."""
    if pool.actions.kind == "box":
        return rng.uniform(-1.2, 1.2, (pool.count, pool.actions.width)).astype(np.float32)
    return rng.integers(pool.actions.count, size=pool.count)


CONTINUOUS = [
    "Pendulum-v1",
    "LunarLanderContinuous-v3",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
]


@pytest.mark.parametrize("env_id", CONTINUOUS)
def test_continuous_actions_match_gymnasium_itself(env_id: str) -> None:
    """-1 and 1 are the bounds, what is beyond them is clipped, in between it is linear."""
    pool, bare = envs.make(env_id, 1, seed=11), gymnasium.make(env_id)
    low, high = bare.action_space.low, bare.action_space.high
    assert pool.obs.dtype == np.float32
    rng = np.random.default_rng(0)
    expected, _ = bare.reset(seed=int(np.random.SeedSequence((11, 0, 0)).generate_state(1)[0]))
    for _ in range(40):
        np.testing.assert_array_equal(pool.obs[0], expected.astype(np.float32))
        action = moves(pool, rng)
        pool.step(action)
        inside = (np.clip(action[0], -1, 1) + 1) / 2 * (high - low) + low
        # Halfway through, the simulator must be at the very same state, so its own input is used.
        sent = pool.scale(action)[0]
        np.testing.assert_allclose(sent, inside, rtol=0, atol=1e-6 * float((high - low).max()))
        assert bare.action_space.contains(sent)
        expected, reward, terminated, truncated, _ = bare.step(sent)
        assert pool.reward[0] == np.float32(reward)
        if terminated or truncated:
            break
        pool.advance()


@pytest.mark.parametrize("env_id", CONTINUOUS)
@pytest.mark.parametrize("steps", [1, 70, 260])
def test_restored_continuous_episode_goes_on_bit_equal(env_id: str, steps: int) -> None:
    """Through JSON and back, the seed and the actions lead to the same bits."""
    rng = np.random.default_rng(steps)
    one, two = (envs.make(env_id, 2, seed=5, first_stream=4) for _ in range(2))
    for _ in range(steps):
        one.step(moves(one, rng))
        one.advance()
    assert two.restore(json.loads(json.dumps(one.state()))) == []
    for _ in range(30):
        np.testing.assert_array_equal(one.obs, two.obs)
        actions = moves(one, rng)
        one.step(actions)
        two.step(actions)
        np.testing.assert_array_equal(one.next_obs, two.next_obs)
        np.testing.assert_array_equal(one.reward, two.reward)
        one.advance()
        two.advance()


class Keeps(Spaces):
    """Writes into its action, and keeps the first one it got."""

    first: Any = None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.first is None:
            self.first = action
        obs = np.array([self.first.ravel()[0], action.ravel()[1]], np.float32)
        action[...] = 7
        return obs, 0.0, False, False, {}


def box(low: float, high: float, shape: tuple[int, ...] = (2, 3), dtype: Any = np.float32) -> Any:
    return gymnasium.spaces.Box(low, high, shape, dtype)


def test_an_action_belongs_to_the_environment() -> None:
    """It may be written to and kept: neither the next action nor what is recorded changes."""
    pool = made(Keeps, action=box(-4, 2))
    for value in (0.0, 0.5):
        pool.step(np.full((1, 6), value, np.float32))
        assert pool.next_obs[0, 1] == -1 + 3 * value
        pool.advance()
    assert pool.obs[0, 0] == 7, "the environment's own doing"
    recorded = np.array(pool.state()[0]["actions"])
    np.testing.assert_array_equal(recorded, np.stack([np.full((2, 3), v) for v in (-1, 0.5)]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_of_the_range_are_exactly_the_bounds(dtype: Any) -> None:
    """Whatever the bounds, tiny or huge."""
    rng = np.random.default_rng(0)
    for size in (1e-30, 1.0, 1e30, float(np.finfo(dtype).max) / 16):
        low, high = np.sort(rng.uniform(-size, size, (2, 5)).astype(dtype), axis=0)
        scale = Scale(Actions.of(gymnasium.spaces.Box(low, high, dtype=dtype)))
        ends = scale(np.array([[-1] * 5, [1] * 5, [-9] * 5, [9] * 5], np.float32))
        assert ends.dtype == dtype
        assert ((ends >= low) & (ends <= high)).all()
        np.testing.assert_allclose(ends, [low, high, low, high], rtol=0, atol=1e-6 * size)


def test_actions_round_trip_as_json() -> None:
    """Of every kind."""
    for space in (
        box(-1, 3, dtype=np.float64),
        gymnasium.spaces.Discrete(4, start=-2),
        gymnasium.spaces.MultiBinary(3),
    ):
        actions = Actions.of(space)
        assert Actions.from_dict(json.loads(json.dumps(actions.to_dict()))) == actions


@pytest.mark.parametrize(("low", "high"), [(-np.inf, 1), (0, np.inf)])
def test_actions_without_bounds_are_refused(low: float, high: float) -> None:
    """[-1, 1] cannot be scaled to them."""
    with pytest.raises(ConfigError, match="finite bounds"):
        made(Spaces, action=box(low, high))


class Screen(Spaces):
    """Bytes [2, 3] that count the steps."""

    def __init__(self) -> None:
        super().__init__(gymnasium.spaces.Box(0, 255, (2, 3), np.uint8))
        self.steps = 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.full((2, 3), 9, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        self.steps += 1
        return np.full((2, 3), 10 * self.steps, np.uint8), 1.0, self.steps == 3, False, {}


def test_images_stay_bytes() -> None:
    """Also when an episode is restored."""
    pool = made(Screen)
    assert (pool.obs.dtype, pool.obs.shape) == (np.uint8, (1, 2, 3))
    pool.step(zeros(1))
    assert (pool.next_obs == 10).all()
    pool.advance()
    again = envs.make("Odd-v0", 1, seed=0)
    assert again.restore(json.loads(json.dumps(pool.state()))) == []
    np.testing.assert_array_equal(again.obs, pool.obs)


@pytest.mark.parametrize("env_id", ["Odd-v0", "Counting-v0"])
def test_stacked_observations_are_the_newest_ones(env_id: str) -> None:
    """Along a first axis, oldest first; an episode begins with copies of its first one."""
    made(Screen)
    plain, stacked = envs.make(env_id, 1, seed=3), envs.make(env_id, 1, seed=3, frame_stack=3)
    assert stacked.obs.dtype == plain.obs.dtype
    frames = [plain.obs[0].copy()] * 3
    for _ in range(9):
        np.testing.assert_array_equal(stacked.obs[0], np.stack(frames[-3:]))
        plain.step(zeros(1))
        stacked.step(zeros(1))
        ended = bool(plain.terminated[0])
        plain.advance()
        stacked.advance()
        frames = [plain.obs[0].copy()] * 3 if ended else [*frames, plain.obs[0].copy()]


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_envpool_takes_continuous_actions(env_id: str) -> None:
    """Whatever float its own bindings ask for; larger actions have larger effects."""
    pytest.importorskip("envpool", exc_type=ImportError)
    rewards = []
    for value in (0.0, 1.0):
        pool = envs.make(env_id, 2, seed=3, vectorization="envpool")
        total = np.zeros(2)
        for _ in range(5):
            pool.step(np.full((2, pool.actions.width), value, np.float32))
            total += pool.reward
            pool.advance()
        assert np.isfinite(total).all()
        rewards.append(total)
        pool.close()
    assert (rewards[0] != rewards[1]).all()


@pytest.mark.parametrize(
    ("message", "extra"),
    [
        ('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`', "mujoco"),
        ('Box2D is not installed, run `pip install "gymnasium[box2d]"`', "envs"),
        ('pygame is not installed, run `pip install "gymnasium[classic-control]"`', "envs"),
    ],
)
def test_missing_package_names_one_command(
    message: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra of copal that has it, instead of Gymnasium's own."""

    def make(*args: Any, **options: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled(message)

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(ConfigError) as caught:
        envs.make("CartPole-v1", 1, seed=0)
    assert caught.value.hint == f"pip install 'copal-rl[{extra}]'"
    assert str(caught.value).count("pip install") == 1
