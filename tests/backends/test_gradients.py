# SPDX-License-Identifier: MIT
"""Every algorithm on every executor: gradients against autograd, whole updates, noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from algorithm_cases import NAMES, Case, autograd, batch, make, parameters

from copal import backends
from copal.backends import LearnerState
from copal.backends.cpu import CpuLearner
from copal.errors import LearnerFailedError
from copal.program.noise import normal
from copal.program.reference import ReferenceLearner

SETTINGS = (
    {"huber": True},
    {"huber": False, "normalize_observations": True, "reward_scale": 0.3},
)


def relative(actual: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference over the norm of what was expected."""
    scale = np.linalg.norm(expected)
    return float(np.linalg.norm(actual - expected) / (scale if scale > 0 else 1.0))


def gradient(
    backend: str,
    case: Case,
    phase: int,
    vectors: dict[str, np.ndarray],
    columns: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the mean loss and TD errors of one phase."""
    alone = replace(case.built.update.phases[phase], every=1)
    update = replace(case.built.update, phases=(alone,), targets=())
    if backend == "reference":
        return ReferenceLearner(update, vectors).gradient(columns)[:2]
    state = LearnerState.initial(update, vectors)
    return CpuLearner(update, state, batch_size=case.rows).gradient(columns)[:2]


@pytest.mark.parametrize("settings", SETTINGS, ids=("huber", "squared-normalized"))
@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_autograd(
    name: str, settings: dict[str, object], rng: np.random.Generator
) -> None:
    """Gradient and TD errors of each phase, in float64 and in float32."""
    case = make(name, rng, **settings)
    for trial in range(3):
        vectors, columns = parameters(case, rng), batch(case, rng)
        for phase, spec in enumerate(case.built.update.phases):
            expected = autograd(case, phase, vectors, columns)
            for backend, limit in (("reference", 1e-11), ("cpu", 1e-5)):
                found = gradient(backend, case, phase, vectors, columns)
                for what, x, y in zip(("gradient", "td_error"), found, expected, strict=True):
                    error = relative(x, y)
                    assert error < limit, (backend, spec.program.name, what, trial, error)


def test_gradient_of_a_saturated_actor_equals_autograd(rng: np.random.Generator) -> None:
    """Actions that round to -1 and 1, deviations beyond their bounds: no NaN, no lost digit."""
    case = make("sac", rng)
    vectors, columns = parameters(case, rng), batch(case, rng)
    means = rng.choice([-300.0, -30.0, 30.0, 300.0], case.actions)
    vectors["actor"][-2 * case.actions :] = [*means, *rng.choice([-40.0, 9.0], case.actions)]
    for phase, spec in enumerate(case.built.update.phases):
        expected, _ = autograd(case, phase, vectors, columns)
        for backend, limit in (("reference", 1e-11), ("cpu", 1e-5)):
            found, _ = gradient(backend, case, phase, vectors, columns)
            assert relative(found, expected) < limit, (backend, spec.program.name)


@pytest.mark.parametrize("name", NAMES)
def test_ten_updates_agree_on_every_backend(name: str, rng: np.random.Generator) -> None:
    """Losses, clipping, Adam, delays and targets together; n-step discounts, moved targets.

    A large eps keeps Adam from turning the rounding of tiny gradients into whole steps.
    """
    case = make(name, rng, adam_eps=1e-2, max_grad_norm=1.0, target_tau=0.1)
    state = LearnerState.initial(case.built.update, parameters(case, rng))
    learners = {
        n: backends.learner(backends.require(n), case.built, state, batch_size=case.rows)
        for n in ("reference", "cpu", "torch")
    }
    for _ in range(10):
        columns = batch(case, rng)
        td = {n: learner.step(columns) for n, learner in learners.items()}
        for n in ("cpu", "torch"):
            np.testing.assert_allclose(td[n], td["reference"], rtol=1e-4, atol=2e-4, err_msg=n)
    expected = learners["reference"].state()
    for n in ("cpu", "torch"):
        found = learners[n].state()
        assert found.optimiser_steps == expected.optimiser_steps
        for network, vector in expected.parameters.items():
            np.testing.assert_allclose(
                found.parameters[network], vector, rtol=1e-5, atol=1e-4, err_msg=f"{n} {network}"
            )
            moved = not np.array_equal(vector, state.parameters[network])
            assert moved == (network != "observation_scale")


@pytest.mark.parametrize("name", ["td3", "sac"])
def test_learners_make_the_noise_that_a_batch_lacks(name: str, rng: np.random.Generator) -> None:
    """Three updates without noise columns equal three with those of `copal.program.noise`."""
    case = make(name, rng)
    update = case.built.update
    for backend, limit in (("reference", 0.0), ("torch", 0.0), ("cpu", 1e-5)):
        making, given = (
            backends.learner(backends.require(backend), case.built, batch_size=case.rows)
            for _ in range(2)
        )
        for number in range(3):
            columns = batch(case, rng, noise=False)
            noise = {
                n: normal(case.rows, case.actions, seed=update.seed, stream=i, update=number)
                for i, n in enumerate(update.noises())
            }
            td_error, expected = making.step(columns), given.step({**columns, **noise})
            np.testing.assert_allclose(td_error, expected, rtol=limit, atol=limit)
        for network in case.built.parameters:
            found, expected = making.parameters(network), given.parameters(network)
            np.testing.assert_allclose(found, expected, rtol=limit, atol=limit)


def test_failure_in_any_phase_changes_nothing(rng: np.random.Generator) -> None:
    """A bad number met by the first phase of SAC, or by the second one after the first's step."""
    case = make("sac", rng)
    for backend in ("reference", "torch", "cpu"):
        learner = backends.learner(backends.require(backend), case.built, batch_size=case.rows)
        learner.step(batch(case, rng))
        for column in ("weight", "noise"):
            before, bad = learner.state(), batch(case, rng)
            bad[column][case.rows // 2] = np.nan
            with pytest.raises(LearnerFailedError):
                learner.step(bad)
            assert_same(learner.state(), before)
        learner.step(batch(case, rng))
        assert learner.updates == 2


def assert_same(found: LearnerState, expected: LearnerState) -> None:
    """Bit for bit."""
    for part in ("parameters", "first_moment", "second_moment"):
        for network, vector in getattr(expected, part).items():
            np.testing.assert_array_equal(getattr(found, part)[network], vector)
    assert found.optimiser_steps == expected.optimiser_steps
    assert found.updates == expected.updates
