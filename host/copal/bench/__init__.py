# SPDX-License-Identifier: MIT
"""What `copal bench` measures: replay, one learner update, training, learning curves."""

from copal.bench.config import CurveBench, LearnerBench, ReplayBench, TrainBench
from copal.bench.verbs import BENCHES, Bench, run_curve, run_learner, run_replay, run_train

__all__ = [
    "BENCHES",
    "Bench",
    "CurveBench",
    "LearnerBench",
    "ReplayBench",
    "TrainBench",
    "run_curve",
    "run_learner",
    "run_replay",
    "run_train",
]
