# SPDX-License-Identifier: MIT
"""Rows by their ids and priorities as they are: what a copy of the buffer elsewhere asks for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from copal import PrioritizedReplay, UniformReplay
from copal.errors import ConfigError, PriorityError

COLUMNS = {
    "obs": ((2,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "next_obs": ((2,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def _rows(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """One stream, whose observations follow each other."""
    obs = rng.standard_normal((n + 1, 2)).astype(np.float32)
    return {
        "obs": obs[:-1],
        "action": rng.integers(0, 9, n),
        "reward": rng.standard_normal(n).astype(np.float32),
        "next_obs": obs[1:],
        "terminated": np.zeros(n, bool),
        "truncated": np.zeros(n, bool),
    }


@pytest.mark.parametrize("n_step", [1, 3])
def test_every_row_comes_once_and_whole(rng: np.random.Generator, n_step: int) -> None:
    """In order, with discounts, in parts, over two laps of the ring."""
    replay = PrioritizedReplay(20, COLUMNS, n_step=n_step, gamma=0.9)
    rows, taken, nxt = _rows(rng, 45), 0, 0
    for n in (1, 7, 12, 5, 20):
        part = {k: v[taken : taken + n] for k, v in rows.items()}
        taken += n
        replay.add(**part)
        while (batch := replay.rows_from(nxt, 6)) is not None:
            assert len(batch) <= 6
            np.testing.assert_array_equal(batch.ids, nxt + np.arange(len(batch)))
            steps = batch.ids.astype(int)[:, None] + np.arange(n_step)
            np.testing.assert_array_equal(batch["obs"], rows["obs"][steps[:, 0]])
            np.testing.assert_array_equal(batch["next_obs"], rows["next_obs"][steps[:, -1]])
            want = (rows["reward"][steps] * 0.9 ** np.arange(n_step)).sum(1)
            np.testing.assert_allclose(batch["reward"], want, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(batch["discount"], 0.9**n_step, rtol=1e-6)
            assert (batch.weights == 1).all()
            nxt += len(batch)
        assert nxt == replay.next_id == max(0, taken - n_step + 1)


def test_rows_that_are_gone_are_skipped(rng: np.random.Generator) -> None:
    """The first row then is the oldest one; of an empty buffer there is none."""
    replay = PrioritizedReplay(8, COLUMNS)
    assert replay.rows_from(0) is None
    for _ in range(3):
        replay.add(**_rows(rng, 5))
    batch = replay.rows_from(0)
    assert batch is not None
    np.testing.assert_array_equal(batch.ids, np.arange(7, 15))
    assert replay.rows_from(15) is None
    assert replay.rows_from(99) is None


def test_priorities_as_they_are(rng: np.random.Generator) -> None:
    """Exactly, in the tree, too: draws follow them, and new rows enter at their largest."""
    replay = PrioritizedReplay(40, COLUMNS, seed=int(rng.integers(2**31)))
    replay.add(**_rows(rng, 40))
    replay.add(**_rows(rng, 13))
    leaf = rng.random(40).astype(np.float32)
    replay.set_priorities(13, leaf)
    slots = np.arange(13, 53) % 40
    np.testing.assert_array_equal(replay.priorities()[slots], leaf)
    assert replay.total_priority == pytest.approx(leaf.sum(dtype=np.float64), rel=1e-6)
    ids = np.concatenate([replay.sample(4000).ids for _ in range(20)])
    found = np.bincount(ids.astype(int) - 13, minlength=40) / len(ids)
    np.testing.assert_allclose(found, leaf / leaf.sum(), atol=0.008)
    new = replay.add(**_rows(rng, 1))
    kept = np.delete(leaf, 0)
    assert replay.priorities()[int(new[0]) % 40] == kept.max()


def test_priorities_of_others_are_left_alone(rng: np.random.Generator) -> None:
    """Rows that are gone or not there yet, a bad value, uniform draws."""
    replay = PrioritizedReplay(10, COLUMNS)
    for _ in range(2):
        replay.add(**_rows(rng, 8))
    replay.set_priorities(4, np.arange(20, dtype=np.float32))
    before = replay.priorities().copy()
    np.testing.assert_array_equal(before[np.arange(6, 16) % 10], np.arange(2, 12))
    with pytest.raises(PriorityError, match="leaf"):
        replay.set_priorities(6, np.array([1, np.nan], np.float32))
    replay.set_priorities(0, np.ones(3, np.float32))
    replay.set_priorities(50, np.ones(3, np.float32))
    np.testing.assert_array_equal(replay.priorities(), before)
    uniform = UniformReplay(10, COLUMNS)
    uniform.add(**_rows(rng, 3))
    uniform.set_priorities(0, np.full(3, 7, np.float32))
    assert (uniform.priorities() == 1).all()


def test_shared_observations_are_refused(rng: np.random.Generator) -> None:
    """Typed, by name; nothing is changed."""
    replay = PrioritizedReplay(10, COLUMNS, share_next_obs=True)
    replay.add(**_rows(rng, 4))
    with pytest.raises(ConfigError, match="share_next_obs"):
        replay.rows_from(0)
    with pytest.raises(ConfigError, match="share_next_obs"):
        replay.set_priorities(0, np.ones(2, np.float32))


def test_inserters_never_tear_a_row() -> None:
    """Two threads insert lap after lap while rows are read; long rows are written unlocked."""
    replay = PrioritizedReplay(64, {"x": ((400,), "float32")})
    failed: list[BaseException] = []

    def insert(stream: int) -> None:
        try:
            for i in range(400):
                values = np.float32(1000 * stream + i + np.arange(4))
                replay.add(x=np.broadcast_to(values[:, None], (4, 400)).copy())
        except BaseException as e:  # noqa: BLE001 - the test raises it
            failed.append(e)

    threads = [threading.Thread(target=insert, args=(s,)) for s in (0, 1)]
    for thread in threads:
        thread.start()
    nxt, seen = 0, 0
    while any(t.is_alive() for t in threads) or replay.rows_from(nxt) is not None:
        batch = replay.rows_from(nxt)
        if batch is None:
            continue
        assert (batch["x"] == batch["x"][:, :1]).all()
        assert int(batch.ids[0]) >= nxt
        nxt, seen = int(batch.ids[-1]) + 1, seen + len(batch)
    for thread in threads:
        thread.join(60)
    assert not failed
    assert nxt == 3200
    assert seen >= 64
