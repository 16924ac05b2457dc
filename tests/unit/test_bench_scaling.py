# SPDX-License-Identifier: MIT
"""The benchmark of actors and learners: what is measured, and the rows that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from copal.bench import learner_build, scaling_report
from copal.bench.config import ScalingBench
from copal.bench.runner import Cell, Measured
from copal.bench.scaling_learner import LoopRate
from copal.errors import ConfigError, UnknownNameError
from copal.runtime.machine import allowed_cpus


def test_one_learner_is_measured_once() -> None:
    """Both modes are the same with one learner; every number of actors has all of them."""
    config = ScalingBench(actors=(1, 3), learners=(1, 2))
    assert scaling_report.setups(config) == [
        ("sync", 1, 1),
        ("sync", 1, 2),
        ("async", 1, 2),
        ("sync", 3, 1),
        ("sync", 3, 2),
        ("async", 3, 2),
    ]


def test_goes_up_to_the_number_of_cores() -> None:
    """Unless numbers are given."""
    config = ScalingBench()
    expected = tuple(range(1, len(allowed_cpus()) + 1))
    assert config.actors_or_cores() == config.learners_or_cores() == expected


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_learner_alone_updates_on_a_filled_replay(mode: str) -> None:
    """It can be let run again and again, and to its first update at the least."""
    rate = LoopRate(learner_build.build("dqn", (8,)), 16, 2, mode, rows=200)
    assert rate.per_second(0.02) > 0
    assert rate.per_second(0.0) > 0


def test_speedups_are_taken_within_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians over rounds; what is absent has a row with the reason."""
    config = ScalingBench(actors=(1,), learners=(1, 2), modes=("sync",))

    def fake(drivers: list[Any], cells: list[Cell], rounds: int) -> Measured:
        assert rounds == config.rounds
        measured = Measured()
        for driver, rates in zip(drivers, ([100.0, 10.0, 50.0], [150.0, 30.0, 100.0]), strict=True):
            measured.values[driver.name, cells[0]] = [
                {"env_steps_per_s": 2 * r, "updates_per_s": r} for r in rates
            ]
        measured.absent["lost"] = "no reason"
        return measured

    monkeypatch.setattr(scaling_report, "interleave", fake)
    monkeypatch.setattr(scaling_report, "_learner_rows", lambda _: [])
    one, two, lost = scaling_report.measure(config).rows
    assert (one["speedup"], two["speedup"]) == (1.0, 2.0)
    assert (one["updates_per_s"], two["updates_per_s"]) == (50.0, 100.0)
    assert two["env_steps_per_s"] == 200.0
    assert (two["mode"], two["actors"], two["learners"], two["op"]) == ("sync", 1, 2, "train")
    assert lost == {"name": "lost", "op": "train", "absent": "no reason"}


def test_without_the_first_row_there_is_no_speedup() -> None:
    """Nothing else takes its place as what the others are compared with."""
    assert scaling_report.speedup([1.0, 2.0], []) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"actors": ()}, "actors"),
        ({"learners": (0,)}, "learners"),
        ({"learners": (65,)}, "learners"),
        ({"modes": ()}, "modes"),
        ({"seconds": 0}, "seconds"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_setting_out_of_range(changes: dict[str, Any], field: str) -> None:
    """Said before anything is measured."""
    with pytest.raises(ConfigError, match=field):
        ScalingBench(**changes)


def test_unknown_mode_lists_the_known_ones() -> None:
    """With near matches."""
    with pytest.raises(UnknownNameError, match="async"):
        ScalingBench(modes=("asynch",))
