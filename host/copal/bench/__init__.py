# SPDX-License-Identifier: MIT
"""What `copal bench` measures: the replay buffer, one learner update, and training."""

from copal.bench.config import LearnerBench, ReplayBench, TrainBench
from copal.bench.verbs import BENCHES, Bench, run_learner, run_replay, run_train

__all__ = [
    "BENCHES",
    "Bench",
    "LearnerBench",
    "ReplayBench",
    "TrainBench",
    "run_learner",
    "run_replay",
    "run_train",
]
