# SPDX-License-Identifier: MIT
"""The linear schedule, and exploration noise that is a function of its counter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copal.runtime.actors import BLOCK, Exploration
from copal.runtime.schedule import Linear


def test_ends_and_middle() -> None:
    """Values by hand."""
    line = Linear(1.0, 0.5, 10)
    assert [line(0), line(5), line(10), line(99)] == [1.0, 0.75, 0.5, 0.5]


def test_no_duration_is_the_end_at_once() -> None:
    """Nothing is divided by zero."""
    assert Linear(1.0, 0.25, 0)(0) == 0.25


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e9), st.floats(0, 1e10))
def test_stays_between_its_ends(start: float, end: float, duration: float, at: float) -> None:
    """No value leaves the interval by more than rounding."""
    value = Linear(start, end, duration)(at)
    assert min(start, end) - 1e-12 <= value <= max(start, end) + 1e-12


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
