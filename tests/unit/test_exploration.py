# SPDX-License-Identifier: MIT
"""Exploration noise that is a function of its counter."""

from __future__ import annotations

import numpy as np
import pytest

from copal.runtime.actors import BLOCK, Exploration


@pytest.mark.parametrize("draws", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_restored_exploration_goes_on(draws: int) -> None:
    """After n draws a new object restored to n gives the same numbers."""
    one, two = Exploration(7, 1, 3, 4), Exploration(7, 1, 3, 4)
    for _ in range(draws):
        one.next()
    two.restore(one.draws)
    for _ in range(BLOCK + 5):
        for a, b in zip(one.next(), two.next(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_exploration_is_uniform_and_apart_by_actor() -> None:
    """Numbers in [0, 1), all actions alike, and other numbers for another actor or seed."""
    drawn = {}
    for key in [(1, 0), (1, 1), (2, 0)]:
        source = Exploration(*key, 2, 3)
        pairs = [tuple(x.copy() for x in source.next()) for _ in range(2 * BLOCK)]
        uniform = np.array([u for u, _ in pairs])
        actions = np.array([a for _, a in pairs])
        assert 0 <= uniform.min() < 0.01
        assert 0.99 < uniform.max() < 1
        counts = np.bincount(actions.ravel(), minlength=3)
        assert (abs(counts - actions.size / 3) < 6 * np.sqrt(actions.size * 2 / 9)).all()
        drawn[key] = uniform
    assert not np.array_equal(drawn[1, 0], drawn[1, 1])
    assert not np.array_equal(drawn[1, 0], drawn[2, 0])
