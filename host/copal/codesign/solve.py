# SPDX-License-Identifier: MIT
"""The allocation equation over whole numbers of cores.

Find x_a, x_l >= 1 with x_a + x_l <= M and f_a(x_a) / f_l(x_l) = update_interval: equation V-D of
C. Zhang, S. R. Kuppannagari, V. K. Prasanna, *Parallel Actors and Learners*, HiPC 2021. Over whole
numbers it has no exact solution in general, so the throughput of the slower side is maximised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.codesign.values import LARGEST
from copal.errors import ConfigError, PlanError

OBJECTIVES = ("throughput", "latency", "energy-proxy")
MOST_CORES = 2_048
"""What the search of all pairs takes: memory grows with the square."""

Grid = NDArray[Any]


@dataclass(frozen=True)
class Allocation:
    """Cores for each side, and what the curves promise, each side alone on its cores."""

    actors: int
    """x_a, actor threads."""
    learners: int
    """x_l, learner threads."""
    actor_rate: float
    """f_a(x_a), env steps a second."""
    learner_rate: float
    """f_l(x_l), updates a second."""
    update_interval: float
    """Env steps an update."""

    @property
    def env_steps_per_s(self) -> float:
        """What the slower side allows."""
        return min(self.actor_rate, self.update_interval * self.learner_rate)

    @property
    def cores(self) -> int:
        """Cores in use."""
        return self.actors + self.learners

    @property
    def balance(self) -> float:
        """f_a / (u f_l): above 1 the actors wait, below 1 the learners do."""
        return self.actor_rate / (self.update_interval * self.learner_rate)

    @property
    def bottleneck(self) -> str:
        """`actors`, `learners`, or `neither`."""
        if self.balance == 1:
            return "neither"
        return "learners" if self.balance > 1 else "actors"

    @property
    def core_s_per_step(self) -> float:
        """Core-seconds of work an env step, a stand-in for energy; who waits sleeps."""
        return self.actors / self.actor_rate + self.learners / (
            self.update_interval * self.learner_rate
        )

    @property
    def latency_s(self) -> float:
        """Seconds of one actor's step and of the update that learns from it."""
        return self.actors / self.actor_rate + 1 / self.learner_rate


def solve(
    actor_rates: Sequence[float],
    learner_rates: Sequence[float],
    *,
    cores: int,
    update_interval: float = 1.0,
    objective: str = "throughput",
    best: int = 1,
    actors: int | None = None,
    learners: int | None = None,
) -> list[Allocation]:
    """The best allocations, the best one first.

    `throughput` maximises min(f_a, u f_l); ties go to the better balance |log(f_a / (u f_l))|, then
    to fewer cores, then to fewer actors. `latency` minimises the seconds of an actor's step plus
    those of an update, `energy-proxy` the core-seconds an env step; their ties go to the higher
    throughput, then to fewer cores, then to fewer actors.

    Time O(M^2), vectorised. The curves need not be monotone.

    Args:
        actor_rates: f_a(1), f_a(2), ... env steps a second.
        learner_rates: f_l(1), f_l(2), ... updates a second.
        cores: M.
        update_interval: u, env steps an update.
        objective: One of `OBJECTIVES`.
        best: How many are wanted.
        actors: x_a, where it is decided already.
        learners: x_l, where it is decided already.

    Raises:
        ConfigError: A rate or a setting is out of range.
        PlanError: There are fewer than 2 cores, or none has `actors` and `learners`.
    """
    check(cores, update_interval, objective)
    f_a, f_l = _checked("f_a", actor_rates), _checked("f_l", learner_rates)
    x_a = np.arange(1, min(len(f_a), cores - 1) + 1)
    x_l = np.arange(1, min(len(f_l), cores - 1) + 1)
    fits = x_a[:, None] + x_l[None, :] <= cores
    if actors is not None:
        fits &= (x_a == actors)[:, None]
    if learners is not None:
        fits &= (x_l == learners)[None, :]
    row, column = np.nonzero(fits)
    if not len(row):
        got = f"actors = {actors}, learners = {learners}"
        raise PlanError("cores", f"an allocation within {cores} cores and the curves", got)
    keys = _keys(objective, f_a[row], f_l[column], x_a[row], x_l[column], update_interval)
    keys += [x_a[row] + x_l[column], x_a[row]]
    left, found = np.arange(len(row)), []
    for _ in range(min(best, len(row))):
        at = _first(keys, left)
        found.append(
            Allocation(
                int(x_a[row[at]]),
                int(x_l[column[at]]),
                float(f_a[row[at]]),
                float(f_l[column[at]]),
                update_interval,
            )
        )
        left = left[left != at]
    return found


def closest(
    actor_rates: Sequence[float],
    learner_rates: Sequence[float],
    *,
    cores: int,
    update_interval: float = 1.0,
) -> Allocation:
    """The allocation whose f_a / f_l comes closest to the interval, whatever its throughput.

    Args:
        actor_rates: As `solve` takes them.
        learner_rates: As `solve` takes them.
        cores: M.
        update_interval: u, env steps an update.

    Raises:
        ConfigError: A rate or a setting is out of range.
        PlanError: There are fewer than 2 cores.
    """
    check(cores, update_interval, OBJECTIVES[0])
    f_a, f_l = _checked("f_a", actor_rates), _checked("f_l", learner_rates)
    balance = f_a[:, None] / (update_interval * f_l[None, :])
    off = np.maximum(balance, 1 / balance)
    x_a, x_l = np.arange(1, len(f_a) + 1), np.arange(1, len(f_l) + 1)
    off[x_a[:, None] + x_l[None, :] > cores] = np.inf
    row, column = np.unravel_index(int(np.argmin(off)), off.shape)
    return Allocation(
        int(row) + 1, int(column) + 1, float(f_a[row]), float(f_l[column]), update_interval
    )


def check(cores: int, update_interval: float, objective: str) -> None:
    """Refuses settings that no allocation has.

    Raises:
        ConfigError: The interval or the objective is out of range.
        PlanError: There are fewer than 2 cores.
    """
    if not (1 / LARGEST <= update_interval <= LARGEST):
        expected = f"a finite number above 0, {1 / LARGEST:g} to {LARGEST:g}"
        raise ConfigError("update_interval", expected, repr(update_interval))
    if objective not in OBJECTIVES:
        raise ConfigError("objective", f"one of {', '.join(OBJECTIVES)}", f"`{objective}`")
    check_cores(cores)


def check_cores(cores: int) -> None:
    """Refuses a machine on which there is nothing to allocate.

    Raises:
        PlanError: There are fewer than 2 cores, or more than `MOST_CORES`.
    """
    if cores > MOST_CORES:
        raise PlanError("cores", f"2 to {MOST_CORES:,}", str(cores), "give fewer --cores")
    if cores < 2:
        raise PlanError(
            "cores",
            "2 or more: one for an actor and one for a learner",
            str(cores),
            "on a single core there is nothing to allocate: copal train --actors 1 --learners 1",
        )


def _keys(
    objective: str, f_a: Grid, f_l: Grid, x_a: Grid, x_l: Grid, update_interval: float
) -> list[Grid]:
    """What is minimised, the most important first."""
    wanted = update_interval * f_l
    throughput, balance = np.minimum(f_a, wanted), f_a / wanted
    if objective == "throughput":
        return [-throughput, np.maximum(balance, 1 / balance)]
    if objective == "latency":
        return [x_a / f_a + 1 / f_l, -throughput]
    return [x_a / f_a + x_l / wanted, -throughput]


def _first(keys: Sequence[Grid], left: NDArray[np.intp]) -> int:
    """The one of `left` with the smallest keys, the first key counting most."""
    for key in keys:
        values = key[left]
        left = left[values == values.min()]
    return int(left[0])


def _checked(name: str, rates: Sequence[float]) -> Grid:
    found = np.asarray(rates, float)
    if found.ndim != 1 or not len(found) or not (np.isfinite(found) & (found > 0)).all():
        raise ConfigError(name, "positive finite rates for x = 1, 2, ...", repr(list(rates))[:80])
    return found
