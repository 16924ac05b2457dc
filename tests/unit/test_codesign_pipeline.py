# SPDX-License-Identifier: MIT
"""The queue simulator against what can be said on paper."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np
import pytest

from copal.codesign.pipeline import SLACK_STEPS, Outcome, Pipeline, _Run, simulate
from copal.errors import ConfigError
from copal.native import native


def run(**values: Any) -> Outcome:
    """The outcome of a pipeline of one actor of 100 us and one learner of 100 us, but `values`."""
    return simulate(Pipeline(**{"actors": 1, "step_s": 1e-4, "update_s": 1e-4, **values}))


def test_the_slower_side_decides() -> None:
    """Without slowdowns the rate is min(f_a, u f_l), for random machines."""
    rng = np.random.default_rng()
    for _ in range(12):
        p = Pipeline(
            actors=int(rng.integers(1, 9)),
            step_s=float(rng.uniform(1e-5, 1e-3)),
            update_s=float(rng.uniform(1e-5, 1e-3)),
            learners=int(rng.integers(1, 5)),
            num_envs=int(rng.integers(1, 9)),
            update_interval=float(rng.choice([0.25, 1.0, 4.0])),
            wake_s=0.0,
        )
        f_a = p.actors * p.num_envs / p.step_s
        wanted = p.update_interval * p.learners / p.update_s
        if not 0.8 < f_a / wanted < 1.25:  # else randomness makes both wait now and then
            found = simulate(p)
            assert found.env_steps_per_s == pytest.approx(min(f_a, wanted), rel=0.05)
            assert found.bottleneck == ("actors" if f_a < wanted else "learners")


def test_the_ratio_is_held() -> None:
    """Env steps to updates, whoever is slower."""
    for u, step_s in ((1.0, 1e-5), (1.0, 1e-3), (0.5, 1e-4), (7.0, 1e-4)):
        found = run(update_interval=u, step_s=step_s)
        assert found.env_steps_per_s / found.updates_per_s == pytest.approx(u, rel=0.01)


@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize("interval", [1 / 100, 100.0])
def test_long_and_short_intervals_are_cut_short(interval: float, learners: int) -> None:
    """What is run instead of every single step or update gives what running them all gives."""
    rng = np.random.default_rng()
    for actors in (1, 2):
        step_s = float(rng.uniform(1e-5, 1e-3))
        p = Pipeline(
            actors=actors,
            step_s=step_s,
            update_s=step_s * interval * learners / actors * float(rng.choice([0.3, 0.7, 1.5, 3])),
            learners=learners,
            update_interval=interval,
            actor_slowdown=float(rng.uniform(1, 2)),
            learner_slowdown=float(rng.uniform(1, 2)),
            wake_s=0.0,
        )
        found, whole = simulate(p), _Run(p, seed=1).run(10_000)
        for name, value in dataclasses.asdict(whole).items():
            assert getattr(found, name) == pytest.approx(value, rel=0.05, abs=0.02), name


def test_busy_shares_are_those_of_the_rates() -> None:
    """A learner half as fast as the actor lets it sleep half of the time."""
    found = run(update_s=2e-4, wake_s=0.0)
    assert found.learner_busy == pytest.approx(1.0, abs=0.01)
    assert found.actor_busy == pytest.approx(0.5, abs=0.03)
    assert found.step_s == pytest.approx(1e-4, rel=0.03)


def test_a_side_that_waits_leaves_the_machine_to_the_other() -> None:
    """The slowdown counts for the share of the time that the other side works, solved by hand."""
    # The learner always works, so a step takes 2 x 10 us; the actor works 20 us of each update,
    # which so takes 100 us + 20 us * (1 - 1/3): two thirds of those 20 us are lost.
    found = run(step_s=1e-5, actor_slowdown=2.0, learner_slowdown=3.0, wake_s=0.0)
    assert found.update_s == pytest.approx(100e-6 + 20e-6 * 2 / 3, rel=0.03)
    assert found.step_s == pytest.approx(20e-6, rel=0.05)


def test_both_always_at_work_run_at_the_slowed_rates() -> None:
    """Balanced sides, half as fast together."""
    found = run(actor_slowdown=2.0, learner_slowdown=2.0, wake_s=0.0)
    assert found.env_steps_per_s == pytest.approx(5_000, rel=0.05)


def test_waking_costs_only_the_side_that_has_no_other_work() -> None:
    """A balanced pipeline loses by slow wakes, a lopsided one does not."""
    lopsided = run(update_s=1e-3, wake_s=2e-4).env_steps_per_s
    assert lopsided == pytest.approx(1_000, rel=0.02)
    assert run(wake_s=4e-4).env_steps_per_s < 0.97 * run(wake_s=0.0).env_steps_per_s


def test_asynchronous_learners_are_servers_of_their_own() -> None:
    """Four of them make four times the updates."""
    found = run(actors=8, step_s=1e-4, update_s=4e-4, learners=4)
    assert found.updates_per_s == pytest.approx(10_000, rel=0.03)


def test_same_seed_gives_the_same_outcome() -> None:
    """And another seed one close to it."""
    p = Pipeline(3, 1e-4, 5e-5)
    assert simulate(p) == simulate(p)
    assert simulate(p).env_steps_per_s == pytest.approx(
        simulate(p, seed=1).env_steps_per_s, rel=0.03
    )


def test_many_actors_end_in_time() -> None:
    """56 cores are simulated event by event as well."""
    found = run(actors=55, step_s=1e-3, update_s=1e-5)
    assert found.env_steps_per_s == pytest.approx(55_000, rel=0.03)


@pytest.mark.parametrize("interval", [0.5, 1.0, 3.0])
def test_gate_rules_are_those_of_the_native_gate(interval: float) -> None:
    """An actor on paper sleeps after as many steps as the gate lets a thread take."""
    # One learner that never ends an update: all that the actor does is what the gate allows.
    paper = _Run(Pipeline(1, 1e-6, 1e6, update_interval=interval), 0)
    paper._ask(0)
    paper._look(0)
    while not paper._asleep:
        paper._event()
    gate = native.RatioGate(interval, 0, SLACK_STEPS)
    taken: list[bool] = []

    def act() -> None:
        while gate.acquire_steps(1):
            taken.append(True)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    limit = time.monotonic() + 20
    while len(taken) < paper._steps and time.monotonic() < limit:
        time.sleep(0.001)
    thread.join(0.2)
    found = len(taken)
    gate.close()
    thread.join(20)
    assert found == paper._steps


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actors", 0),
        ("learners", 0),
        ("num_envs", 0),
        ("step_s", 0.0),
        ("update_s", float("nan")),
        ("update_interval", -1.0),
        ("actor_slowdown", 0.5),
        ("learner_slowdown", float("inf")),
        ("wake_s", -1.0),
    ],
)
def test_bad_machines_are_refused(name: str, value: float) -> None:
    """By name."""
    with pytest.raises(ConfigError, match=name):
        dataclasses.replace(Pipeline(1, 1e-4, 1e-4), **{name: value})
