# SPDX-License-Identifier: MIT
"""Replays, learners and loops of every algorithm, for the tests of parallel learners."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from copal import algorithms
from copal.algorithms import Built
from copal.backends.base import LearnerState
from copal.backends.cpu import CpuLearner
from copal.native import native
from copal.replay import PrioritizedReplay

ALGORITHMS = ("dqn", "ddpg", "td3", "sac")
BATCH = 32
ACTIONS = 3


@cache
def build(algo: str) -> Built:
    """An algorithm on four observations and three actions, with small networks, captured once."""
    discrete = algo == "dqn"
    one = np.ones(ACTIONS, np.float32)
    actions = gym.spaces.Discrete(ACTIONS) if discrete else gym.spaces.Box(-one, one)
    algorithm = algorithms.get(algo)
    config = algorithm.config(hidden=(16, 16))
    return algorithm.build(gym.spaces.Box(-1, 1, (4,)), actions, config, seed=1)


def replay_of(
    built: Built, seed: int, kind: Any = PrioritizedReplay, rows: int = 300, **options: Any
) -> Any:
    """A replay that holds random rows of one stream."""
    rng = np.random.default_rng(seed)
    replay = kind(capacity=512, columns=built.columns, seed=seed, gamma=0.97, **options)
    given = {}
    for name, (shape, dtype) in built.columns.items():
        type_ = np.dtype(dtype)
        if type_.kind == "b":
            given[name] = rng.random((rows, *shape)) < (0.1 if name == "terminated" else 0)
        elif type_.kind == "i":
            given[name] = rng.integers(0, ACTIONS, (rows, *shape)).astype(type_)
        else:
            given[name] = rng.uniform(-1, 1, (rows, *shape)).astype(type_)
    replay.add(**given)
    return replay


def learner_of(built: Built, **options: Any) -> CpuLearner:
    """A learner at its first update."""
    state = LearnerState.initial(built.update, built.parameters)
    return CpuLearner(built.update, state, batch_size=BATCH, **options)


def run(
    built: Built, replay: Any, updates: int, *, async_learners: int = 0, **options: Any
) -> CpuLearner:
    """The learner after `updates` iterations of the loop over `replay`, on this thread."""
    cpu = learner_of(built, **options)
    loop = native.LearnerLoop(
        cpu.native, replay, None, beta_updates=updates, async_learners=async_learners
    )
    for _ in range(updates):
        loop.run_once()
    return cpu
