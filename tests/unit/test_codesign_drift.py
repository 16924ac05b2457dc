# SPDX-License-Identifier: MIT
"""A run beside its plan: what is said when a stage drifts, and what is achieved."""

from __future__ import annotations

from typing import Any

import pytest

from copal.codesign import compare
from copal.codesign.drift import WINDOW, Watch, drifted
from copal.codesign.plan import Choice, Plan
from copal.codesign.predict import Predicted
from copal.codesign.solve import Allocation

STAGES = {"env": 50.0, "inference": 5.0, "insert": 2.0, "sample": 5.0, "update": 1900.0}
PREDICTED = Predicted(1000.0, 500.0, 0.5, 1.0, "learners", STAGES)


class Run:
    """Makes records of metrics, one a second."""

    def __init__(self) -> None:
        self.watch = Watch(PREDICTED, update_interval=2.0, num_envs=4, learning_starts=100)
        self.figures: dict[str, Any] = dict.fromkeys(
            ("updates", "timed_steps", "beside_s", "env_s", "inference_s", "insert_s", "sample_s"),
            0.0,
        )
        self.figures["step_s"] = 0.0
        self.steps = 0
        self.said: list[str] = []

    def second(self, steps: float = 1000.0, *, beside_s: float = 0.0, **stages: float) -> None:
        """One record with so many env steps, half as many updates, and stages in microseconds."""
        us = {**STAGES, **stages}
        updates = steps / 2
        timed = 10
        self.steps += int(steps)
        f = dict(self.figures)
        f["updates"] += updates
        f["timed_steps"] += timed
        f["beside_s"] += beside_s
        for name in ("env", "inference", "insert"):
            f[f"{name}_s"] += us[name] * timed * 4 * 1e-6
        f["sample_s"] += us["sample"] * updates * 1e-6
        f["step_s"] += us["update"] * updates * 1e-6
        f["env_steps_per_s"], f["updates_per_s"] = steps, updates
        self.figures = f
        self.said += self.watch(self.steps, f)


def test_a_run_by_the_plan_is_quiet() -> None:
    """Within 20 %, up or down."""
    run = Run()
    for rate in (1000, 900, 1100, 1150, 850) * 4:
        run.second(rate)
    assert run.said == []
    achieved = run.watch.achieved()
    assert achieved is not None
    assert achieved.env_steps_per_s == pytest.approx(1000)
    assert achieved.stages["env"] == pytest.approx(50)
    assert achieved.stages["update"] == pytest.approx(1900)
    assert achieved.windows == 19  # the first record has nothing before it


def test_the_stage_that_drifted_is_named_once() -> None:
    """And again when another one does."""
    run = Run()
    run.second()
    for _ in range(3 * WINDOW):
        run.second(600, update=3200.0)
    (said,) = run.said
    assert "600 env steps/s where the plan says 1,000 (-40%)" in said
    assert "stage `update`: 3,200.0 us an update, predicted 1,900.0" in said
    for _ in range(3 * WINDOW):
        run.second(300, env=3300.0)
    assert len(run.said) == 2
    assert "stage `env`: 3,300.0 us an env step, predicted 50.0" in run.said[1]


def test_a_run_that_comes_back_says_so() -> None:
    """Once."""
    run = Run()
    for _ in range(2 * WINDOW):
        run.second(600, update=3200.0)
    for _ in range(3 * WINDOW):
        run.second(1000)
    assert len(run.said) == 2
    assert run.said[1].startswith("back within 20% of the plan")


def test_short_disturbances_are_not_drift() -> None:
    """Two slow seconds of five change no median."""
    run = Run()
    for _ in range(6):
        for rate in (1000, 1000, 300, 1000, 300):
            run.second(rate)
    assert run.said == []


def test_drift_without_a_slower_stage_is_the_gate() -> None:
    """Both sides wait, for each other or for the machine."""
    run = Run()
    for _ in range(2 * WINDOW):
        run.second(500)
    assert len(run.said) == 1
    assert "no stage alone" in run.said[0]


def test_faster_than_predicted_is_drift_too() -> None:
    """With the stage that takes less."""
    run = Run()
    for _ in range(2 * WINDOW):
        run.second(1500, update=1280.0)
    assert len(run.said) == 1
    assert "(+50%)" in run.said[0]
    assert "`update`: 1,280.0 us" in run.said[0]


def test_a_stage_counts_by_its_time_an_env_step() -> None:
    """With two env steps an update, 300 us more of an env step outweigh 400 us of an update."""
    now = {**STAGES, "env": 350.0, "update": 2300.0}
    slow = 1e6 / 1500
    assert drifted(PREDICTED, now, slow, update_interval=2.0) == "env"
    assert drifted(PREDICTED, now, slow, update_interval=1.0) == "update"
    assert drifted(PREDICTED, now, slow, update_interval=1.0, actors=4) == "update"
    assert drifted(PREDICTED, dict(STAGES), slow, update_interval=1.0) == "gate"


def test_a_stage_that_explains_little_is_not_named() -> None:
    """Inference takes twice as long where a thread has slept, and loses nobody a millisecond."""
    now = {**STAGES, "inference": 10.0}
    assert drifted(PREDICTED, now, 500.0, update_interval=2.0) == "gate"


def test_records_before_learning_do_not_count() -> None:
    """Steps are much faster then."""
    watch = Watch(PREDICTED, update_interval=1.0, num_envs=1, learning_starts=10_000)
    for second in range(1, 9):
        record = {"updates": 0, "env_steps_per_s": 1000.0, "updates_per_s": 0.0}
        assert list(watch(1000 * second, record)) == []
    assert watch.achieved() is None


def test_evaluations_are_left_out_where_enough_remains() -> None:
    """They take the cores from actors and learners."""
    run = Run()
    for turn in range(20):
        disturbed = turn % 2 == 1
        run.second(300 if disturbed else 1000, beside_s=0.7 if disturbed else 0.0)
    achieved = run.watch.achieved()
    assert achieved is not None
    assert achieved.env_steps_per_s == pytest.approx(1000)
    assert achieved.disturbed == 10
    assert run.said == []


def test_a_run_of_evaluations_alone_still_has_figures() -> None:
    """Better disturbed ones than none."""
    run = Run()
    for _ in range(6):
        run.second(300, beside_s=0.7)
    achieved = run.watch.achieved()
    assert achieved is not None
    assert achieved.disturbed == 0
    assert achieved.env_steps_per_s == pytest.approx(300)


def test_the_comparison_lists_rates_and_stages() -> None:
    """As a table, and as JSON values."""
    run = Run()
    for _ in range(6):
        run.second(900, update=2090.0)
    achieved = run.watch.achieved()
    assert achieved is not None
    choice = Choice("cpu", Allocation(1, 1, 2000.0, 500.0, 2.0), PREDICTED)
    plan = Plan({}, {}, 2, 2.0, "throughput", choice)
    found = {line.name: line for line in compare.lines(plan, achieved)}
    assert found["env steps/s"].off == pytest.approx(-0.1)
    assert found["ratio"].achieved == pytest.approx(2.0)
    assert found["update, us an update"].off == pytest.approx(0.1)
    text = compare.table(list(found.values()))
    assert "| env steps/s" in text
    assert "-10%" in text
    data = compare.to_dict(plan, achieved, ["drift: x"])
    assert data["lines"][0]["predicted"] == 1000.0
    assert data["drift"] == ["drift: x"]
    assert compare.to_dict(plan, None, [])["achieved"] is None
