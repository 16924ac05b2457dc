# SPDX-License-Identifier: MIT
"""The allocation equation: the vectorised solver against a search of all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from copal.codesign.solve import OBJECTIVES, Allocation, closest, solve
from copal.errors import ConfigError, PlanError


def oracle(f_a: list[float], f_l: list[float], cores: int, u: float, objective: str) -> Allocation:
    """The best of all pairs, compared one by one."""
    best, best_key = None, None
    for x_a in range(1, len(f_a) + 1):
        for x_l in range(1, len(f_l) + 1):
            if x_a + x_l > cores:
                continue
            a, wanted = f_a[x_a - 1], u * f_l[x_l - 1]
            through = min(a, wanted)
            fewer = (x_a + x_l, x_a)
            key = {
                "throughput": (-through, max(a / wanted, 1 / (a / wanted)), *fewer),
                "latency": (x_a / a + 1 / f_l[x_l - 1], -through, *fewer),
                "energy-proxy": (x_a / a + x_l / wanted, -through, *fewer),
            }[objective]
            if best_key is None or key < best_key:
                best, best_key = Allocation(x_a, x_l, a, f_l[x_l - 1], u), key
    assert best is not None
    return best


def curve(rng: np.random.Generator, length: int, kind: str) -> list[float]:
    """Rates of a random curve, some of them equal."""
    steps = rng.integers(0, 5, length) * rng.uniform(1, 100)
    if kind == "monotone":
        return list(np.cumsum(steps) + rng.uniform(1, 10))
    if kind == "saturating":
        return list(np.minimum(np.cumsum(steps) + 1.0, steps.sum() / 3 + 1))
    return list(steps + rng.uniform(0.1, 10))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", ["monotone", "saturating", "ragged"])
def test_solver_equals_brute_force(objective: str, kind: str) -> None:
    """For random curves of any shape, lengths and intervals up to 128 cores."""
    rng = np.random.default_rng()
    for cores in (2, 3, 5, 17, 56, 128):
        for _ in range(4):
            f_a = curve(rng, int(rng.integers(1, cores + 1)), kind)
            f_l = curve(rng, int(rng.integers(1, cores + 1)), kind)
            u = float(rng.choice([0.25, 1.0, 3.0, rng.uniform(0.01, 100)]))
            found = solve(f_a, f_l, cores=cores, update_interval=u, objective=objective)[0]
            assert found == oracle(f_a, f_l, cores, u, objective)


def test_runner_up_is_the_best_of_the_others() -> None:
    """The second one is what the search finds once the first one is taken away."""
    rng = np.random.default_rng()
    f_a, f_l = curve(rng, 6, "ragged"), curve(rng, 6, "ragged")
    first, second, *_ = solve(f_a, f_l, cores=7, best=40)
    pairs = solve(f_a, f_l, cores=7, best=40)
    assert len({(p.actors, p.learners) for p in pairs}) == len(pairs) == 21
    assert first.env_steps_per_s >= second.env_steps_per_s
    assert second.env_steps_per_s == max(p.env_steps_per_s for p in pairs[1:])


def test_linear_curves_are_split_as_the_equation_says() -> None:
    """With f_a = 100 x and f_l = 300 x, 56 cores at u = 1 go 42 to 14."""
    f_a, f_l = ([k * x for x in range(1, 57)] for k in (100.0, 300.0))
    found = solve(f_a, f_l, cores=56)[0]
    assert (found.actors, found.learners) == (42, 14)
    assert found.balance == 1
    assert found.bottleneck == "neither"


def test_ties_take_the_better_balance_then_fewer_cores() -> None:
    """Learners beyond what the actors can feed are left out."""
    found = solve([100.0, 100.0], [100.0, 200.0, 300.0], cores=4)[0]
    assert (found.actors, found.learners) == (1, 1)


def test_a_larger_interval_moves_cores_to_the_actors() -> None:
    """Ten env steps an update leave the learner one core."""
    f_a, f_l = ([100.0 * x for x in range(1, 17)] for _ in range(2))
    few = solve(f_a, f_l, cores=16, update_interval=1.0)[0]
    many = solve(f_a, f_l, cores=16, update_interval=10.0)[0]
    assert (few.actors, few.learners) == (8, 8)
    assert many.learners == 2
    assert many.bottleneck == "actors"


def test_latency_and_energy_leave_cores_idle_where_those_cost() -> None:
    """With sublinear curves both prefer single threads that throughput would not."""
    f_a = [100.0 * math.sqrt(x) for x in range(1, 9)]
    f_l = [100.0 * math.sqrt(x) for x in range(1, 9)]
    assert solve(f_a, f_l, cores=8)[0].cores == 8
    energy = solve(f_a, f_l, cores=8, objective="energy-proxy")[0]
    assert (energy.actors, energy.learners) == (1, 1)
    latency = solve(f_a, f_l, cores=8, objective="latency")[0]
    assert (latency.actors, latency.learners) == (1, 7)


@pytest.mark.parametrize("rates", [[], [1.0, 0.0], [1.0, float("nan")], [-1.0], [[1.0]]])
def test_bad_rates_are_refused(rates: list[float]) -> None:
    """A curve has to be positive and finite."""
    with pytest.raises(ConfigError, match="f_l"):
        solve([1.0], rates, cores=2)


@pytest.mark.parametrize("u", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_interval_is_refused(u: float) -> None:
    """As TrainConfig refuses it."""
    with pytest.raises(ConfigError, match="update_interval"):
        solve([1.0], [1.0], cores=2, update_interval=u)


def test_a_single_core_is_refused() -> None:
    """With what to do instead."""
    with pytest.raises(PlanError, match="--actors 1 --learners 1"):
        solve([1.0], [1.0], cores=1)


def test_unknown_objective_is_refused() -> None:
    """The known ones are listed."""
    with pytest.raises(ConfigError, match="energy-proxy"):
        solve([1.0], [1.0], cores=2, objective="speed")


def test_closest_equals_a_search_of_all_pairs() -> None:
    """The best balance, whatever the throughput."""
    rng = np.random.default_rng()
    for cores in (2, 3, 9, 40):
        f_a, f_l = (curve(rng, int(rng.integers(1, cores + 1)), "ragged") for _ in range(2))
        u = float(rng.uniform(0.05, 20))
        pairs = [
            max(a / (u * b), (u * b) / a)
            for x_a, a in enumerate(f_a, 1)
            for x_l, b in enumerate(f_l, 1)
            if x_a + x_l <= cores
        ]
        found = closest(f_a, f_l, cores=cores, update_interval=u)
        assert found.cores <= cores
        assert max(found.balance, 1 / found.balance) == pytest.approx(min(pairs))
