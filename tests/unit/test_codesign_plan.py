# SPDX-License-Identifier: MIT
"""Plans: the choice over backends, the prediction, the notes, and files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from copal.codesign import mapping
from copal.codesign.plan import Plan, allocate
from copal.codesign.plot import draw, frontier
from copal.codesign.profile import Cost, Curve, Overlap, Point, Profile
from copal.codesign.verbs import plan_text
from copal.errors import ConfigError, PlanError

SETTINGS = {"algo": "dqn", "env": "CartPole-v1", "num_envs": 1, "batch_size": 64}


def curve(backend: str, rates: list[float], **more: Any) -> Curve:
    """A curve that was measured once."""
    points = [Point(x, (rate,), {}) for x, rate in enumerate(rates, 1)]
    return Curve(backend, tuple(points), **more)


def make(cores: int, f_a: list[float], learners: list[Curve], **more: Any) -> Profile:
    """A profile of this machine's kind."""
    return Profile(SETTINGS, {}, cores, curve("", f_a), tuple(learners), **more)


def test_the_faster_backend_wins_and_the_other_is_told_of() -> None:
    """With the sentence why it lost."""
    slow = curve("torch", [400.0], largest=1)
    plan = allocate(make(2, [3000.0, 5000.0], [slow, curve("cpu", [2000.0, 3500.0])]))
    assert plan.chosen.name == "1 + 1 on cpu"
    assert plan.runner_up is not None
    assert plan.runner_up.backend == "torch"
    assert "80.0% fewer env steps/s, limited by its learners" in plan.why
    assert plan.chosen.predicted.env_steps_per_s == pytest.approx(2000, rel=0.03)


def test_the_runner_up_of_one_backend_is_its_next_allocation() -> None:
    """On three cores there are three of them."""
    plan = allocate(make(3, [100.0, 200.0, 250.0], [curve("cpu", [150.0, 160.0, 170.0])]))
    assert (plan.chosen.allocation.actors, plan.chosen.allocation.learners) == (2, 1)
    assert plan.runner_up is not None
    assert plan.runner_up.allocation.actors == 1
    assert plan.why.startswith("1 + 2 on cpu") or plan.why.startswith("1 + 1 on cpu")


def test_as_fast_but_further_off_balance() -> None:
    """Ties are explained as such."""
    plan = allocate(make(3, [100.0, 100.0, 100.0], [curve("cpu", [200.0, 900.0, 900.0])]))
    assert plan.chosen.allocation.cores == 2
    assert "off balance" in plan.why or "cores instead of" in plan.why


def test_simulated_backends_are_compared_but_not_chosen() -> None:
    """Unless asked for; then a note says so."""
    source = "simulated: 1,000 cycles at 100 MHz"
    fpga = curve("fpga", [9000.0], source=source, largest=1)
    profile = make(2, [9000.0, 9000.0], [curve("cpu", [500.0, 800.0]), fpga])
    plan = allocate(profile)
    assert plan.chosen.backend == "cpu"
    assert [c.backend for c in plan.others] == ["fpga"]
    assert "simulated" in plan_text(plan)
    forced = allocate(profile, simulated=True)
    assert forced.chosen.backend == "fpga"
    assert any(source in note for note in forced.notes)


def test_absent_backends_keep_their_reason() -> None:
    """Also in the text."""
    gpu = Curve("gpu", (), absent="no GPU here")
    plan = allocate(make(2, [10.0, 10.0], [curve("cpu", [10.0, 10.0]), gpu]))
    assert plan.absent == {"gpu": "no GPU here"}
    assert "not compared: gpu: no GPU here" in plan_text(plan)
    with pytest.raises(PlanError, match="no GPU here"):
        allocate(make(2, [10.0, 10.0], [gpu]))


def test_an_interval_that_nothing_reaches_has_a_note() -> None:
    """The nearest allocation, and what would have to change, in both directions."""
    profile = make(2, [4000.0, 8000.0], [curve("cpu", [1000.0, 2000.0])])
    (note,) = (n for n in allocate(profile).notes if "balances" in n)
    assert "the nearest, 1 + 1, has f_a / f_l = 4" in note
    assert "updates 4.0 times as fast" in note
    (note,) = (n for n in allocate(profile, update_interval=16.0).notes if "balances" in n)
    assert "env steps 4.0 times as fast" in note
    assert not [n for n in allocate(profile, update_interval=4.0).notes if "balances" in n]


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    """With everything in it, also with a runner-up and mappings."""
    costs = (
        Cost("insert", "", (1.0,)),
        *(Cost(stage, "cpu", (5.0,)) for stage in ("sample", "priority", "update")),
    )
    learners = [curve("cpu", [9.0, 9.5, 9.7]), Curve("gpu", (), absent="none")]
    plan = allocate(make(3, [10.0, 20.0, 30.0], learners, costs=costs))
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert plan.devices


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(copal_plan=7),
        lambda d: d.pop("chosen"),
        lambda d: d["chosen"]["allocation"].update(colour=1),
        lambda d: d.update(cores="many"),
        lambda d: d.update(update_interval=float("nan")),
        lambda d: d["machine"].update(versions=[]),
        lambda d: d["chosen"]["allocation"].update(actors=2),
        lambda d: d["chosen"]["allocation"].update(learners=0),
        lambda d: d["chosen"]["allocation"].update(actor_rate="fast"),
        lambda d: d["chosen"]["predicted"].update(env_steps_per_s=0.0),
        lambda d: d["chosen"]["predicted"].update(updates_per_s="many"),
        lambda d: d["chosen"]["predicted"].update(stages={"env": float("nan")}),
        lambda d: d["chosen"].update(options=None),
    ],
)
def test_damaged_plans_are_refused(tmp_path: Path, change: Any) -> None:
    """With the verb that writes a good one."""
    plan = allocate(make(2, [10.0, 10.0], [curve("cpu", [10.0, 10.0])]))
    data = json.loads(json.dumps(plan.to_dict()))
    change(data)
    with pytest.raises(PlanError, match="copal allocate"):
        Plan.from_dict(data)


def test_gaps_and_short_curves_are_refused() -> None:
    """A curve has to reach the cores that are shared out."""
    profile = make(4, [1.0, 2.0, 3.0, 4.0], [curve("cpu", [1.0, 2.0, 3.0, 4.0])])
    with pytest.raises(PlanError, match="nothing is extrapolated"):
        allocate(profile, cores=56)
    points = (profile.actors.points[0], *profile.actors.points[2:])
    gap = dataclasses.replace(profile, actors=Curve("", points))
    with pytest.raises(PlanError, match="x = 2"):
        allocate(gap)
    with pytest.raises(PlanError, match="single core"):
        allocate(profile, cores=1)
    with pytest.raises(ConfigError, match="update_interval"):
        allocate(profile, update_interval=0.0)


@pytest.mark.parametrize("interval", [1e-12, 1e-8, 1e8, 1e12])
def test_intervals_that_nothing_comes_near(tmp_path: Path, interval: float) -> None:
    """Are answered at once, with the nearest and what would have to change, in short numbers."""
    points = [Overlap("cpu", 1, 1, (900.0,), (900.0,), interval=1.0, held_steps_per_s=(700.0,))]
    profile = make(2, [1000.0, 2000.0], [curve("cpu", [1000.0, 2000.0])], overlaps=tuple(points))
    plan = allocate(profile, update_interval=interval)
    told = plan.chosen.predicted
    side = "updates" if interval < 1 else "env steps"
    assert any(
        f"{side} 1e+" in note and "times as fast" in note and len(note) < 400 for note in plan.notes
    )
    assert told.bottleneck == ("learners" if interval < 1 else "actors")
    limit = told.updates_per_s if interval < 1 else told.env_steps_per_s
    assert 800 < limit < 1100
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


def test_more_cores_than_the_search_takes_are_refused() -> None:
    """Before memory is taken for them; a curve's gap is found without counting to its end."""
    profile = make(2, [1.0, 2.0], [curve("cpu", [1.0, 2.0])])
    with pytest.raises(PlanError, match="2,048"):
        allocate(profile, cores=10**9)
    with pytest.raises(PlanError, match="x = 3, 4, 5, 6, 7"):
        profile.actors.rates(10**12)


def test_fixed_sides_are_kept() -> None:
    """As `--actors auto --learners 1` asks."""
    profile = make(4, [1.0, 2.0, 3.0, 4.0], [curve("cpu", [9.0, 9.0, 9.0, 9.0])])
    assert allocate(profile, actors=1).chosen.allocation.actors == 1
    assert allocate(profile, learners=2).chosen.allocation.learners == 2
    with pytest.raises(PlanError, match="actors = 4"):
        allocate(profile, actors=4)


def test_56_cores_on_paper() -> None:
    """Given curves: actors scale to 40, learners to 12 threads; the split is the solver's."""
    f_a = [150.0 * min(x, 40) for x in range(1, 57)]
    f_l = [500.0 * min(x, 12) ** 0.8 for x in range(1, 57)]
    data = {"env_steps_per_s": f_a, "updates_per_s": {"cpu": f_l, "gpu": [5_200.0]}}
    plan = allocate(Profile.from_dict(data), cores=56)
    pairs = [(a, s) for a in range(1, 56) for s in range(1, 57 - a)]
    best = max(min(f_a[a - 1], f_l[s - 1]) for a, s in pairs)
    # The device's single thread leaves 55 cores to the actors.
    assert best < 5_200.0
    assert plan.chosen.backend == "gpu"
    assert plan.chosen.allocation.learners == 1
    assert plan.chosen.allocation.env_steps_per_s == 5_200.0
    assert plan.others[0].allocation.env_steps_per_s == best
    assert any("both at once not measured" in note for note in plan.notes)


def test_the_curves_of_the_documents_give_the_documents_plan() -> None:
    """The what-if that docs/codesign.md prints."""
    folder = Path(__file__).resolve().parents[2] / "docs"
    plan = allocate(Profile.load(folder / "results" / "curves-56-cores.json"), cores=56)
    lines = (folder / "codesign.md").read_text().splitlines()
    printed = [line for line in plan_text(plan).splitlines() if "predicted" not in line]
    assert [line for line in printed if f"    {line}" not in lines] == []


def test_the_prediction_knows_what_both_at_once_costs() -> None:
    """Measured slowdowns bring the prediction below the curves."""
    learners = [curve("cpu", [1000.0, 1500.0])]
    alone = allocate(make(2, [1000.0, 1500.0], learners))
    overlap = Overlap("cpu", 1, 1, (500.0,), (600.0,))
    both = allocate(make(2, [1000.0, 1500.0], learners, overlaps=(overlap,)))
    assert alone.chosen.predicted.env_steps_per_s == pytest.approx(1000, rel=0.05)
    # Neither rate alone: while one side waits the other one is faster.
    assert 480 < both.chosen.predicted.env_steps_per_s < 620
    assert not both.chosen.predicted.assumed


def test_stages_are_those_of_the_run_with_a_gate() -> None:
    """At its interval; elsewhere a mixture of alone and both at once."""
    alone, both = {"update": (100.0,)}, {"update": (200.0,)}
    cpu = Curve("cpu", tuple(Point(x, (5000.0,), alone) for x in (1, 2)))
    held = {"update": (150.0, 170.0, 160.0), "wait": (9.0,)}
    overlap = Overlap("cpu", 1, 1, (5000.0,), (5000.0,), both, 1.0, (5000.0,), held)
    profile = make(2, [50_000.0, 50_000.0], [cpu], overlaps=(overlap,))
    assert allocate(profile).chosen.predicted.stages == {"update": 160.0}
    told = allocate(profile, update_interval=2.0).chosen.predicted
    assert told.stages["update"] == pytest.approx(100 + 100 * told.actor_busy)


def test_what_waking_costs_is_taken_from_the_run_with_a_gate() -> None:
    """At its interval the prediction is what was measured; at others it costs less or more."""
    learners = [curve("cpu", [5000.0, 5000.0])]
    overlap = Overlap("cpu", 1, 1, (20_000.0,), (5000.0,), {}, 1.0, (4000.0,))
    profile = make(2, [20_000.0, 30_000.0], learners, overlaps=(overlap,))
    assert allocate(profile).chosen.predicted.env_steps_per_s == pytest.approx(4000, rel=0.03)
    rare = allocate(profile, update_interval=0.125).chosen.predicted
    # An actor is woken for half the slack, so for more updates at once.
    assert 4000 < rare.updates_per_s <= 5050


def test_slowdowns_between_two_measurements_are_interpolated() -> None:
    """In proportion to the actors; equal rates of both sides make it visible."""
    f_a, f_l = [100.0 * x for x in range(1, 10)], [500.0] * 9
    overlaps = (
        Overlap("cpu", 1, 9, (100.0,), (500.0,)),
        Overlap("cpu", 9, 1, (300.0,), (500.0,)),
    )
    profile = make(10, [*f_a, 1000.0], [curve("cpu", [*f_l, 500.0])], overlaps=overlaps)
    plan = allocate(profile, actors=5, learners=1)
    # Half way between no slowdown (500) and a threefold one (250): steps take 1 + t / 500 times as
    # long, where t / 500 is the share of the time in which the learner works.
    assert plan.chosen.predicted.env_steps_per_s == pytest.approx(309, rel=0.1)


def test_mapping_is_the_fastest_iteration_of_what_was_measured() -> None:
    """Checked against the formula by hand; a device without measured transfers is left out."""
    costs = (
        Cost("insert", "", (1.0,)),
        Cost("sample", "cpu", (5.0,)),
        Cost("priority", "cpu", (4.0,)),
        Cost("update", "cpu", (100.0,)),
        Cost("update", "gpu", (20.0,)),
        Cost("update", "fpga", (1.0,)),
        Cost("transfer_weights", "gpu", (30.0,)),
    )
    learners = [curve(name, [1.0]) for name in ("cpu", "gpu", "fpga")]
    found = mapping.mappings(make(2, [1.0, 1.0], learners, costs=costs))
    assert [(m.learner, m.iteration_us) for m in found] == [("gpu", 55.0), ("cpu", 105.0)]
    assert found[0].transfer_us == 30.0
    assert found[1].samples_per_s == pytest.approx(64 / 105e-6)


def test_replay_upkeep_can_hide_behind_learning() -> None:
    """T_sample + max(T_update + T_insert, T_learn)."""
    stages = {"sample": 2.0, "priority": 3.0, "insert": 4.0}
    assert mapping.iteration_us(stages, 100.0, 0.0, 1) == 102.0
    assert mapping.iteration_us(stages, 1.0, 0.0, 5) == 25.0


def test_the_frontier_is_the_best_of_what_is_left() -> None:
    """For each number of actors."""
    profile = make(4, [10.0, 20.0, 30.0, 40.0], [curve("cpu", [15.0, 25.0, 22.0, 9.0])])
    plan = allocate(profile)
    assert frontier(profile, profile.learners[0], plan) == [(1, 10.0), (2, 20.0), (3, 15.0)]


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    """As a picture that is not empty; an unknown format is a typed error."""
    pytest.importorskip("matplotlib")
    profile = make(4, [10.0, 20.0, 30.0, 40.0], [curve("cpu", [15.0, 25.0, 22.0, 9.0])])
    plan = allocate(profile)
    draw(profile, plan, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert text.count("<path") > 10
    with pytest.raises(ConfigError, match="plot"):
        draw(profile, plan, tmp_path / "curves.nonsense")
