# SPDX-License-Identifier: MIT
"""Parallel learners that share each batch, over the replay: equal to one learner."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_cases import relative
from parallel_cases import ALGORITHMS, BATCH, build, replay_of, run

from copal.replay import PrioritizedReplay, UniformReplay

UPDATES = 12
CASES = [
    ("dqn", PrioritizedReplay, {}),
    ("dqn", PrioritizedReplay, {"n_step": 3}),
    ("dqn", PrioritizedReplay, {"n_step": 3, "share_next_obs": True}),
    ("dqn", UniformReplay, {}),
    ("ddpg", PrioritizedReplay, {}),
    ("td3", PrioritizedReplay, {}),
    ("sac", PrioritizedReplay, {"n_step": 2}),
]


@pytest.mark.parametrize("learners", [2, 3, 5, BATCH])
@pytest.mark.parametrize(("algo", "kind", "options"), CASES)
def test_learners_draw_the_batch_that_one_draws(algo, kind, options, learners):
    """The same parameters to 1e-6 and the same priorities, whether L divides the batch or not."""
    built = build(algo)
    one, many = (replay_of(built, learners, kind, **options) for _ in range(2))
    alone = run(built, one, UPDATES).state()
    shared = run(built, many, UPDATES, learners=learners).state()
    for name, vector in alone.parameters.items():
        assert relative(shared.parameters[name], vector) < 1e-6, name
    np.testing.assert_allclose(many._leaves(), one._leaves(), rtol=1e-4, atol=1e-6)
    assert one.stats()["sampled"] == many.stats()["sampled"] == UPDATES * BATCH


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_threads_change_no_bit(algo):
    """Five learners on one, two and five threads."""
    built = build(algo)
    replay = replay_of(built, 7)
    expected = run(built, replay, UPDATES, learners=5, threads=1).state()
    for threads in (2, 5):
        other = replay_of(built, 7)
        got = run(built, other, UPDATES, learners=5, threads=threads).state()
        for name, vector in expected.parameters.items():
            np.testing.assert_array_equal(got.parameters[name], vector)
        assert other.total_priority == replay.total_priority
