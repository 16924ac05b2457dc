# SPDX-License-Identifier: MIT
"""Says what made an update fail, by doing it once more in NumPy with every value checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import LearnerFailedError
from copal.program.diagnosis import Finding, failure
from copal.program.reference import ReferenceLearner
from copal.program.update import Update

Vectors = Mapping[str, NDArray[np.float32]]


def diagnose(
    update: Update,
    number: int,
    phase: int,
    batch: Mapping[str, NDArray[Any]],
    parameters: Vectors,
    first: Vectors,
    second: Vectors,
    steps: Mapping[str, int],
) -> LearnerFailedError | None:
    """The error of update `number`, from 0.

    Args:
        update: What was run.
        number: The update.
        phase: Where the device met a number that is not finite.
        batch: Its columns, noise included if the learner does not make it.
        parameters: As before the update.
        first: First moments.
        second: Second moments.
        steps: Adam steps taken.

    Returns:
        None if NumPy meets nothing but finite numbers.
    """
    learner = ReferenceLearner(update, parameters, np.float32)
    learner.first_moment = {n: np.array(v) for n, v in first.items()}
    learner.second_moment = {n: np.array(v) for n, v in second.items()}
    learner.optimiser_steps, learner.updates = dict(steps), number
    try:
        with np.errstate(all="ignore"):
            learner.step(batch)
    except LearnerFailedError as error:
        return error
    except IndexError as error:
        finding = Finding(f"an index that its row does not have ({error})")
        return failure(update, update.phases[phase], number, finding)
    return None


def unexplained(update: Update, number: int, phase: int) -> LearnerFailedError:
    """The error of a failure that only the device has."""
    finding = Finding(f"the kernels of phase {phase}, on the GPU alone")
    return failure(update, update.phases[phase], number, finding)
