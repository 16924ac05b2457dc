# SPDX-License-Identifier: MIT
"""Running an algorithm: actors, learners, checkpoints, evaluation."""

from __future__ import annotations

from copal.runtime.evaluation import Score, evaluate
from copal.runtime.policy import Policy
from copal.runtime.result import TrainResult
from copal.runtime.trainer import train

__all__ = ["Policy", "Score", "TrainResult", "evaluate", "train"]
