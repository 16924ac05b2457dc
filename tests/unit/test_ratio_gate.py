# SPDX-License-Identifier: MIT
"""The gate that holds the ratio of environment steps to updates."""

from __future__ import annotations

import threading

import pytest

from copal.errors import ConfigError
from copal.native import native

WAIT_S = 60.0


def start(function, *args):
    """A started thread."""
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def finish(*threads):
    """Joins, and fails where a thread hangs."""
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the gate never let this thread go on"


def actor(gate, n, total):
    """Steps n at a time until `total` are taken or the gate refuses."""
    for _ in range(0, total, n):
        if not gate.acquire_steps(n):
            return
        gate.inserted(n)


def learn(gate, seen=None):
    """Updates for as long as the gate lets it."""
    while gate.acquire_update():
        gate.complete_update()
        if seen is not None:
            counters = gate.counters()
            seen.append((counters["env_steps"], counters["updates"]))


@pytest.mark.parametrize("interval", [0.5, 1, 4, 0.3])
@pytest.mark.parametrize(("actors", "n", "slack"), [(1, 1, 1), (2, 3, 8), (3, 4, 4)])
def test_ratio_holds_in_both_directions(interval, actors, n, slack):
    """At every moment the steps are within slack and interval of what the updates allow."""
    starts, total = 50, 3000
    gate, seen = native.RatioGate(interval, starts, slack), []
    threads = [start(actor, gate, n, total) for _ in range(actors)]
    learner = start(learn, gate, seen)
    finish(*threads)
    gate.drain()
    finish(learner)
    counters = gate.counters()
    assert counters["env_steps"] == counters["inserted"] == actors * total
    ahead = slack + 2 * interval + 1e-6
    for steps, updates in seen:
        assert -1e-6 <= steps - starts - updates * interval <= ahead
    assert counters["updates"] == int((actors * total - starts) / interval + 1e-9)
    ratio = (counters["env_steps"] - starts) / counters["updates"]
    assert ratio == pytest.approx(interval, rel=0.02)


def test_no_update_before_learning_starts():
    """The first update needs learning_starts rows and one interval more."""
    gate = native.RatioGate(2, 10, 100)
    assert gate.acquire_steps(11)
    gate.inserted(11)
    assert gate.updates_due() == 0
    assert gate.acquire_steps(1)
    assert gate.updates_due() == 0, "the row is not in the replay yet"
    gate.inserted(1)
    assert gate.updates_due() == 1
    assert gate.acquire_update()
    gate.complete_update()
    assert gate.updates_due() == 0


def test_actor_waits_for_the_learner():
    """Beyond the slack an actor sleeps until an update is done."""
    gate = native.RatioGate(4, 0, 2)
    assert gate.acquire_steps(2)
    assert gate.acquire_steps(2)
    assert gate.acquire_steps(2)
    gate.inserted(6)
    passed = threading.Event()
    thread = start(lambda: gate.acquire_steps(1) and passed.set())
    assert not passed.wait(0.05)
    gate.complete_update()
    assert passed.wait(WAIT_S)
    finish(thread)


def test_closing_wakes_everyone():
    """Actors and learner get False, at once and ever after."""
    gate, answers = native.RatioGate(1, 5, 1), []
    assert [gate.acquire_steps() for _ in range(7)] == [True] * 7
    threads = [start(lambda: answers.append(gate.acquire_steps(1))) for _ in range(3)]
    learner = start(lambda: answers.append(gate.acquire_update()))
    gate.close()
    finish(*threads, learner)
    assert answers == [False] * 4
    assert not gate.acquire_steps(1)
    assert not gate.acquire_update()
    assert gate.closed


def test_draining_finishes_what_is_due():
    """Steps are refused; a row under way still counts once it is reported."""
    gate = native.RatioGate(1, 0, 10)
    assert gate.acquire_steps(5)
    gate.inserted(4)
    gate.drain()
    assert not gate.acquire_steps(1)
    learner = start(learn, gate)
    gate.inserted(1)
    finish(learner)
    assert gate.updates == 5


def test_cancelled_steps_are_free_again():
    """An actor that could not step gives its steps back, and draining does not wait for them."""
    gate = native.RatioGate(1, 0, 4)
    assert gate.acquire_steps(4)
    gate.inserted(1)
    gate.cancel_steps(3)
    assert gate.env_steps == 1
    gate.drain()
    learner = start(learn, gate)
    finish(learner)
    assert gate.updates == 1


def test_counters_resume():
    """A gate set to a checkpoint's counters goes on from there."""
    gate = native.RatioGate(2, 10, 4)
    gate.set_counters(110, 49)
    assert gate.counters() == {"env_steps": 110, "inserted": 110, "updates": 49}
    assert gate.updates_due() == 1
    assert gate.acquire_steps(4)
    with pytest.raises(ConfigError, match="env_steps"):
        gate.set_counters(0, 0)


@pytest.mark.parametrize(
    "arguments", [(0, 0, 1), (-1, 0, 1), (float("nan"), 0, 1), (float("inf"), 0, 1), (1, 0, 0)]
)
def test_setting_out_of_range(arguments):
    """The interval is a positive number and the slack at least one step."""
    with pytest.raises(ConfigError):
        native.RatioGate(*arguments)


def test_more_steps_than_slack_are_refused_before_they_deadlock():
    """An n has to fit the slack; reporting more than was reserved is an error too."""
    gate = native.RatioGate(1, 100, 4)
    for n in (0, 5):
        with pytest.raises(ConfigError, match="n"):
            gate.acquire_steps(n)
    with pytest.raises(ConfigError, match="acquire_steps"):
        gate.inserted(1)
    with pytest.raises(ConfigError, match="acquire_steps"):
        gate.cancel_steps(1)
    assert gate.env_steps == 0
