# SPDX-License-Identifier: MIT
"""Budget and parking of actor threads."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from copal.runtime.control import NEVER, Control, StepBudget, next_multiple


def test_budget_hands_out_every_step_once() -> None:
    """Claims of four threads are disjoint and cover the total."""
    budget = StepBudget(10_000, 0, threading.Event())
    claims: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        while (before := budget.claim(2)) >= 0:
            mine.append(before)

    threads = [threading.Thread(target=work, args=(c,)) for c in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(itertools.chain(*claims)) == list(range(0, 10_000, 2))
    assert budget.claim(1) == -1


def test_refunded_steps_are_handed_out_again() -> None:
    """A lost step does not shorten the run."""
    budget = StepBudget(3, 1, threading.Event())
    assert [budget.claim(1), budget.claim(1), budget.claim(1)] == [1, 2, -1]
    budget.refund(1)
    assert [budget.claim(1), budget.claim(1)] == [2, -1]


def test_alarm_wakes_when_it_is_reached() -> None:
    """Not before, and also if the claim steps over it."""
    wake = threading.Event()
    budget = StepBudget(100, 0, wake)
    budget.alarm = 5
    budget.claim(4)
    assert not wake.is_set()
    budget.claim(4)
    assert wake.is_set()


@pytest.mark.parametrize(
    ("after", "every", "expected"), [(0, 10, 10), (9, 10, 10), (10, 10, 20), (5, 0, NEVER)]
)
def test_next_multiple(after: int, every: int, expected: int) -> None:
    """Always beyond `after`."""
    assert next_multiple(after, every) == expected


def worker(control: Control, counts: list[int], index: int) -> threading.Thread:
    """A thread that counts as an actor steps."""

    def work() -> None:
        while True:
            if control.hold and not control.park():
                break
            counts[index] += 1
            time.sleep(0)
        control.leave()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_nobody_moves_while_parked_and_all_go_on() -> None:
    """Counters stand still inside the context, move outside, and stop for good at the end."""
    control, counts = Control(3), [0, 0, 0]
    threads = [worker(control, counts, i) for i in range(3)]
    for _ in range(5):
        with control.parked(lambda: None):
            before = list(counts)
            time.sleep(0.01)
            assert counts == before
        limit = time.monotonic() + 30
        while any(a <= b for a, b in zip(counts, before, strict=True)):
            assert time.monotonic() < limit
            time.sleep(0.001)
    control.dismiss()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert control.running == 0


def test_parking_ends_if_somebody_failed() -> None:
    """The check's error comes out instead of an endless wait, and the others go on."""
    control, counts = Control(2), [0]
    thread = worker(control, counts, 0)

    def check() -> None:
        raise RuntimeError("the other one is stuck")

    with pytest.raises(RuntimeError, match="stuck"), control.parked(check):
        pass
    assert not control.hold
    control.dismiss()
    thread.join(30)
    assert not thread.is_alive()


def test_first_reason_to_stop_stands() -> None:
    """A signal after the wanted return does not change why the run ended."""
    control = Control(1)
    control.stop("return")
    control.stop("SIGTERM")
    assert control.stop_reason == "return"
    assert control.wake.is_set()
