# SPDX-License-Identifier: MIT
"""The K-ary sum and maximum tree, on every instruction set, against a cumulative sum in float64."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_native import FANOUTS, Tree, build, isa_flags, load, power


@pytest.fixture(scope="module", params=sorted(isa_flags()))
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("tree") / "tree.so"
    flags = isa_flags()[request.param]
    return load(build("ctypes/sum_tree.cpp", target, "-O1", "-shared", "-fPIC", *flags))


def capacities(fanout: int) -> list[int]:
    """Sizes around every boundary of a tree of this fanout."""
    around = [fanout - 1, fanout, fanout + 1, fanout**2 - 1, fanout**2, fanout**2 + 1]
    return sorted({1, 2, 3, 231, *around} - {0})


@st.composite
def trees(draw: st.DrawFn) -> tuple[int, int, np.random.Generator]:
    """Fanout, capacity and random numbers of a case."""
    fanout = draw(st.sampled_from(FANOUTS))
    capacity = draw(st.sampled_from(capacities(fanout)))
    return fanout, capacity, np.random.default_rng(draw(st.integers(0, 2**32)))


def priorities(g: np.random.Generator, n: int, zeros: float, decades: float) -> np.ndarray:
    """Priorities >= 0 over some decades, a share of them zero, but never all."""
    p = 10 ** g.uniform(-decades / 2, decades / 2, n) * (g.random(n) >= zeros)
    p[g.integers(n)] = 1.0
    return p.astype(np.float32)


def edge_masses(total: float) -> list[float]:
    """Masses at the ends of [0, total], and beyond them as far as rounding could lead."""
    return [0.0, total, np.nextafter(total, 0), np.nextafter(total, np.inf), total * (1 + 1e-6)]


@settings(max_examples=150, deadline=None)
@given(case=trees(), zeros=st.sampled_from([0.0, 0.5, 0.98]), decades=st.sampled_from([0, 2, 12]))
def test_any_mass_finds_the_slot_of_the_cumulative_sum(
    library: ctypes.CDLL, case: tuple, zeros: float, decades: float
) -> None:
    """A draw is a positive leaf of the filled part, the one that the oracle's prefix sums name."""
    fanout, capacity, g = case
    tree = Tree(library, fanout, capacity)
    p = priorities(g, capacity, zeros, decades)
    tree.update(np.arange(capacity), p)
    masses = np.array([*(g.random(300) * tree.total), *edge_masses(tree.total)])
    slots, found = tree.descend(masses)
    assert (slots < capacity).all()
    assert (p[slots] > 0).all(), "a zero leaf was drawn"
    np.testing.assert_array_equal(found, p[slots])
    above = np.cumsum(p, dtype=np.float64)
    tolerance = 4e-6 * above[-1]  # float32 prefixes
    assert (masses <= above[slots] + tolerance).all()
    assert (masses >= above[slots] - p[slots] - tolerance).all()


@settings(max_examples=60, deadline=None)
@given(case=trees())
def test_integer_priorities_are_found_exactly(library: ctypes.CDLL, case: tuple) -> None:
    """Where float32 sums are exact, so is every choice, at and between the boundaries."""
    fanout, capacity, g = case
    p = g.integers(0, 4, capacity).astype(np.float32)
    p[g.integers(capacity)] = 1
    tree = Tree(library, fanout, capacity)
    tree.update(np.arange(capacity), p)
    above = np.cumsum(p, dtype=np.float64)
    masses = np.concatenate([above[:-1], above[:-1] - 0.5, [0.25]])
    masses = masses[masses >= 0]
    masses = masses[masses < above[-1]]
    slots, _ = tree.descend(masses)
    np.testing.assert_array_equal(slots, np.searchsorted(above, masses, side="right"))


@settings(max_examples=60, deadline=None)
@given(case=trees())
def test_updates_and_fills_leave_the_tree_that_fresh_leaves_would(
    library: ctypes.CDLL, case: tuple
) -> None:
    """After any history the root and the maximum are, bit by bit, those of a new tree."""
    fanout, capacity, g = case
    tree, oracle = Tree(library, fanout, capacity), np.zeros(capacity, np.float32)
    for _ in range(30):
        if g.random() < 0.5:
            slots = g.integers(0, capacity, g.integers(1, 200))
            values = priorities(g, len(slots), 0.2, 8)
            tree.update(slots, values)
            oracle[slots] = values  # NumPy too lets the last of equal slots win
        else:
            first = int(g.integers(capacity))
            n = int(g.integers(1, capacity - first + 1))
            value = np.float32(g.random())
            tree.fill(first, n, value)
            oracle[first : first + n] = value
        np.testing.assert_array_equal(tree.leaves, oracle)
        assert tree.maximum == oracle.max()
    fresh = Tree(library, fanout, capacity)
    fresh.update(np.arange(capacity), oracle)
    assert (tree.total, tree.maximum) == (fresh.total, fresh.maximum)
    assert tree.total == pytest.approx(math.fsum(oracle.astype(float)), rel=1e-6)


@pytest.mark.parametrize("fanout", FANOUTS)
def test_root_does_not_drift(library: ctypes.CDLL, fanout: int) -> None:
    """2e5 updates over twelve decades leave the root at the sum of the leaves."""
    capacity, g = 5000, np.random.default_rng(fanout)
    tree = Tree(library, fanout, capacity)
    for _ in range(200):
        tree.update(g.integers(0, capacity, 1000), priorities(g, 1000, 0, 12))
    tree.update(np.arange(capacity), priorities(g, capacity, 0, 1))
    assert tree.total == pytest.approx(math.fsum(tree.leaves.astype(float)), rel=1e-6)


@pytest.mark.parametrize("fanout", FANOUTS)
def test_all_zero_tree_stays_inside(library: ctypes.CDLL, fanout: int) -> None:
    """With no positive leaf there is no right answer, but never one outside the leaves."""
    tree = Tree(library, fanout, 100)
    slots, found = tree.descend(np.array([0.0, 1.0]))
    assert (slots < 100).all()
    assert (found == 0).all()
    assert (tree.total, tree.maximum) == (0, 0)


@pytest.mark.parametrize("fanout", FANOUTS)
def test_leaves_start_on_a_cache_line(library: ctypes.CDLL, fanout: int) -> None:
    """Groups are aligned to their own size when the array is, small or huge."""
    for capacity in (3, 1000, 1_000_000):
        assert Tree(library, fanout, capacity).address % 64 == 0


def test_a_million_rows_take_little_more_than_their_leaves(library: ctypes.CDLL) -> None:
    """Widths are rounded to the fanout a level, not the capacity to a power of it."""
    for fanout, overhead in ((16, 1.14), (64, 1.04), (8, 1.29)):
        assert Tree(library, fanout, 1_000_000).nbytes <= 4e6 * overhead


def test_power_is_exact_to_float32_accuracy(library: ctypes.CDLL) -> None:
    """x^y over the range of priorities and weights, and zero."""
    x = np.exp(np.random.default_rng(0).uniform(-16, 16, 20_000)).astype(np.float32)
    for y in (0.6, 1.0, -0.4, -1.0):
        np.testing.assert_allclose(power(library, x, y), x.astype(float) ** y, rtol=3e-6)
    assert power(library, np.zeros(1, np.float32), 0.6)[0] == 0
