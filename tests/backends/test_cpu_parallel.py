# SPDX-License-Identifier: MIT
"""Parallel learners that share a batch, over the replay: equal to one learner."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_cases import batch, dqn_update, learner, parameters, relative

from copal.native import native
from copal.replay import PrioritizedReplay, UniformReplay

SIZES = (4, 16, 3)
BATCH = 32
COLUMNS = {
    "obs": ((4,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "next_obs": ((4,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def replay_of(kind, seed, rows=300, **options):
    """A replay with random rows of one stream."""
    replay = kind(capacity=512, columns=COLUMNS, seed=seed, gamma=0.97, **options)
    given = batch(SIZES, rows, np.random.default_rng(seed))
    keep = {k: given[k] for k in ("obs", "action", "reward", "next_obs", "terminated")}
    replay.add(**keep, truncated=np.zeros(rows, bool))
    return replay


def run(replay, updates, seed, **options):
    """The learner's state and the replay after `updates` iterations of the loop."""
    update = dqn_update(SIZES, max_grad_norm=1.0)
    start = parameters(update, np.random.default_rng(seed))
    cpu = learner(update, start, BATCH, **options)
    loop = native.LearnerLoop(cpu.native, replay, None, beta_updates=updates)
    for _ in range(updates):
        loop.run_once()
    return cpu.state(), replay


CASES = [
    (PrioritizedReplay, {}),
    (PrioritizedReplay, {"n_step": 3}),
    (PrioritizedReplay, {"n_step": 3, "share_next_obs": True}),
    (UniformReplay, {}),
]


@pytest.mark.parametrize("learners", [2, 3, 5, 32])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_learners_draw_the_batch_that_one_draws(kind, options, learners):
    """The same parameters to 1e-6 and the same priorities, whether L divides the batch or not."""
    seed = learners
    alone, one = run(replay_of(kind, seed, **options), 20, seed)
    shared, many = run(replay_of(kind, seed, **options), 20, seed, learners=learners)
    for name, vector in alone.parameters.items():
        assert relative(shared.parameters[name], vector) < 1e-6, name
    np.testing.assert_allclose(many._leaves(), one._leaves(), rtol=1e-4, atol=1e-6)
    assert one.stats()["sampled"] == many.stats()["sampled"] == 20 * BATCH


@pytest.mark.parametrize("kind", [PrioritizedReplay, UniformReplay])
def test_threads_change_no_bit(kind):
    """Five learners on one, two and five threads."""
    expected, replay = run(replay_of(kind, 7), 30, 7, learners=5, threads=1)
    for threads in (2, 5):
        got, other = run(replay_of(kind, 7), 30, 7, learners=5, threads=threads)
        for name, vector in expected.parameters.items():
            np.testing.assert_array_equal(got.parameters[name], vector)
        assert other.total_priority == replay.total_priority
