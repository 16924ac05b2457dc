# SPDX-License-Identifier: MIT
"""n-step returns and shared observations, against a plain Python oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copal.replay import PrioritizedReplay

COLUMNS = {
    "obs": ((2,), "float32"),
    "action": ((), "int32"),
    "reward": ((), "float64"),
    "next_obs": ((2,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}
GAMMA = 0.9
Step = dict[str, Any]


def steps(seed: int, n: int, streams: int, end: float) -> list[tuple[int, Step]]:
    """A random interleaving of streams, each a chain of episodes with distinct observations."""
    g = np.random.default_rng(seed)
    now: dict[int, np.ndarray] = {}
    made = []
    for i in range(n):
        s = int(g.integers(streams))
        obs = now.get(s, g.standard_normal(2).astype(np.float32))
        following = g.standard_normal(2).astype(np.float32)
        kind = g.random()
        step = {
            "obs": obs,
            "action": i,
            "reward": float(g.standard_normal()),
            "next_obs": following,
            "terminated": bool(kind < end / 2),
            "truncated": bool(end / 2 <= kind < end),
        }
        if kind < end:
            now.pop(s, None)
        else:
            now[s] = following
        made.append((s, step))
    return made


def oracle(made: list[tuple[int, Step]], n: int, cuts: dict[int, int]) -> dict[int, Step]:
    """Action (its step's number) to the n-step row, for every row that is complete.

    `cuts` are steps after which a stream's episode was ended by hand.
    """
    episodes: dict[int, list[list[Step]]] = defaultdict(lambda: [[]])
    done: dict[tuple[int, int], bool] = {}
    for i, (s, step) in enumerate(made):
        episodes[s][-1].append(step)
        if step["terminated"] or step["truncated"] or cuts.get(i) == s:
            done[s, len(episodes[s]) - 1] = True
            episodes[s].append([])
    found = {}
    for s, parts in episodes.items():
        for e, part in enumerate(parts):
            for t, first in enumerate(part):
                window = part[t : t + n]
                if len(window) < n and not done.get((s, e)):
                    continue
                last = window[-1]
                found[first["action"]] = {
                    **first,
                    "reward": sum(GAMMA**k * w["reward"] for k, w in enumerate(window)),
                    "discount": GAMMA ** len(window),
                    **{k: last[k] for k in ("next_obs", "terminated", "truncated")},
                }
    return found


def ended(made: list[tuple[int, Step]], n: int) -> dict[int, Step]:
    """The oracle's rows if every stream's episode is ended after its last step."""
    last = {s: i for i, (s, _) in enumerate(made)}
    return oracle(made, n, {i: s for s, i in last.items()})


def batches(g: np.random.Generator, made: list[tuple[int, Step]]) -> Iterator[tuple[Any, Step]]:
    """The steps in calls of one row or several."""
    i = 0
    while i < len(made):
        part = made[i : i + int(g.integers(1, 9))]
        i += len(part)
        if len(part) == 1:
            yield part[0]
        else:
            columns = {k: np.array([step[k] for _, step in part], COLUMNS[k][1]) for k in COLUMNS}
            yield np.array([s for s, _ in part]), columns


def check_samples(r: PrioritizedReplay, expected: dict[int, Step], draws: int = 400) -> set[int]:
    """Every drawn row is the oracle's; returns the actions seen."""
    batch = r.sample(draws)
    for i, action in enumerate(batch["action"]):
        row = expected[int(action)]
        for name in ("obs", "next_obs", "terminated", "truncated"):
            np.testing.assert_array_equal(batch[name][i], row[name], err_msg=name)
        assert batch["reward"][i] == pytest.approx(row["reward"], rel=1e-12, abs=1e-12)
        assert batch["discount"][i] == pytest.approx(row["discount"], rel=1e-6)
    return {int(a) for a in batch["action"]}


CASE = {
    "seed": st.integers(0, 2**32),
    "n": st.integers(1, 6),
    "streams": st.integers(1, 4),
    "end": st.sampled_from([0.0, 0.1, 0.5]),
    "share": st.booleans(),
}


@settings(max_examples=80, deadline=None)
@given(**CASE)
def test_rows_are_those_of_the_oracle(
    seed: int, n: int, streams: int, end: float, share: bool
) -> None:
    """Returns never cross an episode or a stream; each row has its own discount and last state."""
    g = np.random.default_rng(seed + 1)
    made = steps(seed, 60, streams, end)
    r = PrioritizedReplay(500, COLUMNS, n_step=n, gamma=GAMMA, share_next_obs=share, seed=seed)
    written = []
    for s, columns in batches(g, made):
        written += list(r.add(**columns, stream=s))
    assert len(set(written)) == len(written) == len(oracle(made, n, {}))
    for s in range(streams):
        written += list(r.end_episode(s))
    everything = ended(made, n)
    assert len(written) == len(everything) == len(made) == len(r)
    assert r.stats()["pending"] == 0
    seen = check_samples(r, everything)
    assert len(seen) > 40


@settings(max_examples=40, deadline=None)
@given(**CASE)
def test_small_ring_keeps_the_newest_rows_exact(
    seed: int, n: int, streams: int, end: float, share: bool
) -> None:
    """Wrap-around, also within one call, also where a row dies before it can be linked."""
    g = np.random.default_rng(seed + 1)
    made = steps(seed, 150, streams, end)
    r = PrioritizedReplay(13, COLUMNS, n_step=n, gamma=GAMMA, share_next_obs=share, seed=seed)
    expected = ended(made, n)
    for s, columns in batches(g, made):
        r.add(**columns, stream=s)
        if len(r):
            check_samples(r, expected, 20)
            ids = r.sample(16).ids
            assert (ids + 13 >= r.next_id).all()
            assert r.update_priorities(ids, g.random(16).astype(np.float32)) == 0
    assert 0 <= len(r) <= 13


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 4), end=st.sampled_from([0.0, 0.2]))
def test_shared_rows_equal_stored_ones(seed: int, n: int, end: float) -> None:
    """Sharing changes where `next_obs` comes from, not what it is."""
    made = steps(seed, 80, 3, end)
    plain = PrioritizedReplay(200, COLUMNS, n_step=n, gamma=GAMMA)
    shared = PrioritizedReplay(200, COLUMNS, n_step=n, gamma=GAMMA, share_next_obs=True)
    content: list[dict[int, tuple[Any, ...]]] = []
    for r in (plain, shared):
        for s, step in made:
            r.add(**step, stream=s)
        for s in range(3):
            r.end_episode(s)
        batch = r.sample(3000)
        rows = zip(*(batch[k].tolist() for k in [*COLUMNS, "discount"]), strict=True)
        content.append({row[1]: row for row in map(tuple, rows)})
    for action in content[0].keys() & content[1].keys():
        assert content[0][action] == content[1][action]
    assert len(content[0].keys() & content[1].keys()) == 80


def test_ghost_rows_are_never_drawn_and_no_update_revives_them() -> None:
    """An episode's last observation takes a row of its own, which is nobody's to sample."""
    r = PrioritizedReplay(100, COLUMNS, share_next_obs=True, gamma=GAMMA)
    for s, step in steps(3, 60, 1, 0.5):
        r.add(**step, stream=s)
    ghosts = r.next_id - r.stats()["inserted"]
    assert ghosts > 10
    dropped = r.update_priorities(
        np.arange(r.next_id, dtype=np.uint64), np.full(r.next_id, 9, np.float32)
    )
    assert dropped == r.next_id - len(r)
    assert (r.sample(2000)["action"] >= 0).all()
    leaves = r._leaves()
    assert (leaves > 0).sum() == len(r) == r.stats()["inserted"] - r.stats()["pending"]


def test_a_jump_of_the_observation_cuts_a_shared_stream() -> None:
    """A reset without a flag: rows before it keep their true next observation, and bootstrap."""
    r = PrioritizedReplay(50, COLUMNS, n_step=2, gamma=GAMMA, share_next_obs=True)

    def add(obs: float, following: float, action: int) -> None:
        r.add(
            obs=[obs, obs], next_obs=[following, following], action=action, reward=1.0,
            terminated=False, truncated=False,
        )  # fmt: skip

    add(0, 1, 0)
    add(1, 2, 1)
    add(50, 51, 2)  # was 2
    batch = r.sample(200)
    for action, following, reward, discount in ((0, 2, 1 + GAMMA, GAMMA**2), (1, 2, 1, GAMMA)):
        rows = batch["action"] == action
        assert rows.any()
        assert (batch["next_obs"][rows] == following).all()
        assert batch["reward"][rows] == pytest.approx(reward)
        assert batch["discount"][rows] == pytest.approx(discount)
    assert not batch["terminated"].any()
    assert set(batch["action"]) == {0, 1}


@pytest.mark.parametrize("share", [False, True])
def test_priorities_given_at_add_stay_with_their_rows(share: bool) -> None:
    """A staged row is published with its own priority, however late."""
    r = PrioritizedReplay(
        50, COLUMNS, n_step=3, gamma=GAMMA, share_next_obs=share, alpha=1.0, eps=0.0
    )
    for i, (s, step) in enumerate(steps(5, 20, 1, 0.0)):
        r.add(**step, stream=s, priority=float(i + 1))
    r.end_episode()
    leaves, actions = r._leaves(), r.column("action")
    rows = leaves > 0
    assert rows.sum() == 20
    np.testing.assert_allclose(leaves[rows], actions[rows] + 1, rtol=1e-6)


def test_end_of_an_unknown_or_finished_stream_does_nothing() -> None:
    """There is nothing pending, and no ghost is written twice."""
    r = PrioritizedReplay(50, COLUMNS, n_step=2, share_next_obs=True)
    assert len(r.end_episode(7)) == 0
    (s, step), *_ = steps(0, 1, 1, 0.0)
    r.add(**step, stream=s)
    assert len(r.end_episode(s)) == 1
    after = r.next_id
    assert len(r.end_episode(s)) == 0
    assert r.next_id == after


def test_streams_are_ignored_where_rows_are_complete_at_once() -> None:
    """n_step=1 without sharing writes every row in the call that brings it."""
    r = PrioritizedReplay(50, COLUMNS)
    for s, columns in batches(np.random.default_rng(0), steps(0, 30, 3, 0.2)):
        n = np.size(columns["action"])
        assert len(r.add(**columns, stream=s)) == n
    assert r.stats()["streams"] == 0
    assert len(r.end_episode(1)) == 0


def test_n_step_beyond_the_capacity() -> None:
    """A window longer than the ring flushes in pieces."""
    r = PrioritizedReplay(3, COLUMNS, n_step=8, gamma=GAMMA)
    made = steps(1, 40, 1, 0.1)
    for s, step in made:
        r.add(**step, stream=s)
    r.end_episode()
    check_samples(r, ended(made, 8), 50)


def environments(seed: int, n: int, count: int) -> list[dict[str, np.ndarray]]:
    """Steps of `count` environments side by side, each a chain without an end; batched calls."""
    g = np.random.default_rng(seed)
    obs = g.standard_normal((n + 1, count, 2)).astype(np.float32)
    return [
        {
            "obs": obs[t],
            "action": np.arange(t * count, (t + 1) * count, dtype=np.int32),
            "reward": g.standard_normal(count),
            "next_obs": obs[t + 1],
            "terminated": np.zeros(count, bool),
            "truncated": np.zeros(count, bool),
        }
        for t in range(n)
    ]


def labelled(calls: list[dict[str, np.ndarray]]) -> list[tuple[int, Step]]:
    """The rows of batched calls, each with its environment as the stream."""
    return [
        (s, {k: v[s] for k, v in call.items()})
        for call in calls
        for s in range(len(call["action"]))
    ]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 5), share=st.booleans())
def test_environments_mixed_in_one_stream_give_exact_one_step_rows(
    seed: int, n: int, share: bool
) -> None:
    """Without `stream` no return sums over two environments, and the cuts are counted."""
    calls = environments(seed, 10, 4)
    r = PrioritizedReplay(200, COLUMNS, n_step=n, gamma=GAMMA, share_next_obs=share)
    for call in calls:
        r.add(**call)
    r.end_episode()
    assert len(r) == 40
    assert r.stats()["cuts"] == 39
    assert len(check_samples(r, ended(labelled(calls), 1))) > 35


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(2, 5),
    share=st.booleans(),
    streams=st.sampled_from([np.arange(4), [0, 1, 2, 3], (0, 1, 2, 3), np.arange(4, dtype="u1")]),
)
def test_environments_in_streams_of_their_own_give_n_step_rows(
    seed: int, n: int, share: bool, streams: Any
) -> None:
    """One number a row, in an array or a list, and nothing is cut."""
    calls = environments(seed, 10, 4)
    r = PrioritizedReplay(200, COLUMNS, n_step=n, gamma=GAMMA, share_next_obs=share)
    for call in calls:
        r.add(**call, stream=streams)
    for s in range(4):
        r.end_episode(s)
    assert len(r) == 40
    assert r.stats()["cuts"] == 0
    assert len(check_samples(r, ended(labelled(calls), n))) > 35


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(2, 5),
    at=st.integers(1, 18),
    share=st.booleans(),
)
def test_a_reset_without_a_flag_is_cut(seed: int, n: int, at: int, share: bool) -> None:
    """Rows before it are shortened and bootstrap from their own last observation."""
    made = steps(seed, 20, 1, 0.0)
    reset = steps(seed + 1, 20, 1, 0.0)
    made = made[:at] + [(0, {**step, "action": i}) for i, (_, step) in enumerate(reset, at)]
    r = PrioritizedReplay(200, COLUMNS, n_step=n, gamma=GAMMA, share_next_obs=share)
    for s, step in made:
        r.add(**step, stream=s)
    r.end_episode()
    assert r.stats()["cuts"] == 1
    assert len(r) == len(made)
    check_samples(r, oracle(made, n, {at - 1: 0, len(made) - 1: 0}))


def test_observations_that_cannot_be_compared_cut_nothing() -> None:
    """Where the schema has no `obs` of the kind of `next_obs`, streams are told apart by number."""
    columns = {**COLUMNS, "obs": ((3,), "float32")}
    r = PrioritizedReplay(50, columns, n_step=3, gamma=GAMMA)
    for s, step in steps(0, 10, 1, 0.0):
        r.add(**{**step, "obs": np.zeros(3, np.float32)}, stream=s)
    assert len(r) == 8
    assert r.stats()["cuts"] == 0
