# SPDX-License-Identifier: MIT
"""Draws follow the priorities: chi-square tests with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from copal.replay import PrioritizedReplay, UniformReplay

COLUMNS = {"x": ((), "int64")}


def p_value(r: PrioritizedReplay, weights: np.ndarray, draws: int) -> float:
    """Of `draws` rows against probabilities in proportion to `weights`, by row."""
    counts = np.zeros(len(weights), np.int64)
    for _ in range(draws // 4096):
        counts += np.bincount(r.sample(4096)["x"], minlength=len(weights))
    assert (counts[weights == 0] == 0).all()
    positive = weights > 0
    expected = weights[positive] / weights.sum() * counts.sum()
    return float(chisquare(counts[positive], expected).pvalue)


@pytest.mark.parametrize("fanout", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["even", "exponential", "six decades", "half zero"])
def test_rows_are_drawn_in_proportion_to_priority(fanout: int, kind: str) -> None:
    """Every fanout, in a ring whose size is no power of anything."""
    n, g = 231, np.random.default_rng(7)
    raw = {
        "even": np.ones(n),
        "exponential": g.exponential(size=n),
        "six decades": 10 ** g.uniform(-3, 3, n),
        "half zero": g.exponential(size=n) * (g.random(n) < 0.5),
    }[kind]
    raw[raw / raw.sum() * 200_000 < 5] = 0  # cells too rare for the test's approximation
    r = PrioritizedReplay(n, COLUMNS, alpha=1.0, eps=0.0, fanout=fanout, seed=11)
    r.add(x=np.arange(n), priority=raw)
    assert p_value(r, raw, 200_000) > 1e-4


def test_alpha_shapes_the_draws() -> None:
    """Probabilities go by the transformed priority."""
    raw = np.arange(1, 51, dtype=float)
    r = PrioritizedReplay(64, COLUMNS, alpha=0.5, eps=0.0, seed=2)
    r.add(x=np.arange(50), priority=raw)
    assert p_value(r, raw**0.5, 100_000) > 1e-4


def test_uniform_draws() -> None:
    """Whatever the TD errors, every row is equally likely."""
    r = UniformReplay(100, COLUMNS, seed=3)
    ids = r.add(x=np.arange(70))
    r.update_priorities(ids, np.random.default_rng(0).exponential(size=70).astype(np.float32))
    assert p_value(r, np.ones(70), 100_000) > 1e-4


def test_4096_equal_priorities_are_all_in_reach() -> None:
    """A power of the fanout, where a prefix mass may reach the root's value."""
    r = PrioritizedReplay(4096, COLUMNS, seed=1)
    r.add(x=np.arange(4096))
    assert p_value(r, np.ones(4096), 400_000) > 1e-4


def test_draws_after_many_updates_still_fit() -> None:
    """The tree that updates leave is the one that draws go by."""
    g = np.random.default_rng(5)
    r = PrioritizedReplay(300, COLUMNS, alpha=1.0, eps=0.0, seed=5)
    r.add(x=np.arange(300))
    raw = np.ones(300)
    for _ in range(300):
        ids = g.permutation(300)[:64]
        td = (g.exponential(size=64) + 0.05).astype(np.float32)
        r.update_priorities(ids.astype(np.uint64), td)
        raw[ids] = td
    assert p_value(r, raw, 400_000) > 1e-4
