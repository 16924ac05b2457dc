# SPDX-License-Identifier: MIT
"""Groups of seeds, their mean curves, and the axes that hold them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import report_runs as made
from hypothesis import given
from hypothesis import strategies as st

from copal.codesign.report import curves, figures, groups, scale
from copal.codesign.report.curves import Trace
from copal.codesign.report.folder import load, names
from copal.codesign.report.groups import Group, grouped

FLOATS = st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-9)


def runs_of(folder: Path, *settings: dict) -> list[Group]:
    """The groups of runs with these settings."""
    return grouped([load(made.made(folder / str(i), **s), str(i)) for i, s in enumerate(settings)])


def test_seeds_of_the_same_settings_are_one_group(tmp_path: Path) -> None:
    """Neither the seed nor the folder tells runs apart; everything else does."""
    found = runs_of(
        tmp_path,
        {"seed": 2, "out": tmp_path / "0"},
        {"seed": 1, "quiet": True, "checkpoint_interval": 7},
        {"seed": 1, "learning_rate": 1e-4},
    )
    assert [[run.name for run in group.runs] for group in found] == [["1", "0"], ["2"]]
    assert found[0].seeds == "1, 2"


def test_groups_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    """As few settings as do, those that people name first; always unique."""
    several = runs_of(
        tmp_path,
        {"learners": 1, "learning_rate": 1e-3},
        {"learners": 2, "learning_rate": 1e-4},
        {"learners": 2, "learning_rate": 1e-3, "backend": "torch"},
    )
    labels = [group.label for group in several]
    assert labels == ["cpu, learners 1", "cpu, learners 2", "torch, learners 2"]
    assert groups.differences(several) == ["backend", "learners", "learning_rate"]
    assert runs_of(tmp_path / "one", {})[0].label == "dqn on CartPole-v1"


def test_labels_of_many_groups_name_what_is_special(tmp_path: Path) -> None:
    """Settings that most groups share are left out once there would be many."""
    special = [{}, {"gamma": 0.9}, {"n_step": 3}, {"actors": 4}, {"backend": "torch"}]
    found = runs_of(tmp_path, *special, {"gamma": 0.9, "n_step": 3})
    wanted = ["base settings", "gamma 0.9", "n step 3", "actors 4", "torch", "gamma 0.9, n step 3"]
    assert [group.label for group in found] == wanted


def test_labels_are_unique(tmp_path: Path, rng: np.random.Generator) -> None:
    """Whatever the settings differ in."""
    draws = [
        {
            "gamma": float(rng.choice([0.9, 0.99])),
            "n_step": int(rng.integers(1, 4)),
            "actors": int(rng.integers(1, 3)),
            "hidden": [int(rng.integers(1, 3))] * 2,
        }
        for _ in range(12)
    ]
    found = runs_of(tmp_path, *draws)
    assert len({group.label for group in found}) == len(found)


def test_names_are_as_short_as_they_may_be() -> None:
    """The last part of the path where that tells the runs apart."""
    assert names([Path("x/a"), Path("y/b")]) == ["a", "b"]
    assert names([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]


def test_thinning_takes_means_of_equal_ranges(rng: np.random.Generator) -> None:
    """Against a loop over the ranges."""
    x = np.sort(rng.uniform(0, 100, 5000))
    y = rng.normal(size=5000)
    found = curves.thinned(Trace(x, y), 60)
    edges = np.linspace(x[0], x[-1], 61)
    edges[-1] = np.inf
    wanted = [y[(x >= a) & (x < b)].mean() for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(found.y, wanted, atol=1e-9)
    assert (np.diff(found.x) > 0).all()


def test_mean_and_range_of_seeds(rng: np.random.Generator) -> None:
    """Lines through other points: interpolation gives the mean of the lines exactly."""
    slopes = rng.uniform(1, 3, 5)
    traces = [Trace(x, m * x) for m in slopes if (x := np.sort(rng.uniform(0, 9, 40))) is not None]
    found = curves.average(traces, 5)
    assert len(found.x)
    inside = (found.x >= max(t.x[0] for t in traces)) & (found.x <= min(t.x[-1] for t in traces))
    np.testing.assert_allclose(found.mean[inside], slopes.mean() * found.x[inside])
    np.testing.assert_allclose(found.low[inside], slopes.min() * found.x[inside])
    np.testing.assert_allclose(found.high[inside], slopes.max() * found.x[inside])


def test_the_mean_ends_where_half_of_the_seeds_have_ended() -> None:
    """One long run of three is no mean; two of three are."""
    x = np.arange(11.0)
    traces = [Trace(x[:4], x[:4]), Trace(x[:7], x[:7]), Trace(x, x)]
    assert curves.average(traces, 3).x[-1] == pytest.approx(6)
    assert not len(curves.average(traces[:1] * 2, 5).x)


def test_evaluations_of_seeds_meet_by_their_interval(tmp_path: Path) -> None:
    """A few steps apart, one missing: means are those of the same evaluation."""
    records = [
        [made.evaluation(s, 10.0 * s) for s in (1, 2, 3)],
        [made.evaluation(s, 20.0 * s) | {"env_steps": 1000 * s + 500} for s in (1, 3)],
    ]
    found = grouped(
        [load(made.made(tmp_path / str(i), rows, seed=i), str(i)) for i, rows in enumerate(records)]
    )
    curve = curves.of_evaluations(found[0], "env_steps")
    np.testing.assert_array_equal(curve.mean, [15.0, 45.0])
    np.testing.assert_array_equal(curve.x, [1251.5, 3251.5])
    np.testing.assert_array_equal((curve.low, curve.high), [[10.0, 30.0], [20.0, 60.0]])


def test_stage_times_are_microseconds_an_update(tmp_path: Path) -> None:
    """Seconds by updates, means over seeds; a counter that is missing counts as 0."""
    timed = [
        made.train(s, timed_steps=10 * s, env_s=1e-3 * s, gate_s=2e-3 * s) for s in range(1, 5)
    ]
    found = grouped([load(made.made(tmp_path / "a", timed, num_envs=4), "a")])
    bars = figures.learner_stages(found)
    assert bars is not None
    assert bars.rows[0].parts == pytest.approx((200.0, 1000.0, 0.0, 0.0, 600.0))
    bars = figures.actor_stages(found)
    assert bars is not None
    assert dict(zip(bars.parts, bars.rows[0].parts, strict=True)) == pytest.approx(
        {"inference": 0.0, "environment": 25.0, "insert": 0.0, "wait for updates": 50.0}
    )


def test_runs_without_figures_have_no_charts(tmp_path: Path) -> None:
    """A run that has just begun."""
    found = grouped([load(made.made(tmp_path / "a", []), "a")])
    assert figures.learning(found) == figures.throughput(found) == figures.replay(found) == []
    assert figures.learner_stages(found) is figures.actor_stages(found) is None


@given(FLOATS, FLOATS)
def test_axes_hold_their_range(a: float, b: float) -> None:
    """With a few round ticks whose labels differ."""
    low, high = min(a, b), max(a, b)
    found = scale.scale(low, high)
    slack = 1e-9 * (found.high - found.low)
    assert found.low <= low + slack
    assert found.high >= high - slack
    assert 2 <= len(found.ticks) <= 9
    if high - low > 1e-4 * max(abs(low), abs(high)):
        assert len(set(found.labels())) == len(found.ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 12_000, ["0", "2.5k", "5.0k", "7.5k", "10.0k", "12.5k"]),
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-200, 200, ["-200", "-100", "0", "100", "200"]),
        (0, 3e6, ["0", "1M", "2M", "3M"]),
        (0, 4000, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (5, 5, ["2", "3", "4", "5", "6", "7", "8"]),
    ],
)
def test_ticks_read_well(low: float, high: float, labels: list[str]) -> None:
    """One unit, no more digits than the steps need."""
    assert scale.scale(low, high).labels() == labels
