# SPDX-License-Identifier: MIT
"""The `reference` backend: plain NumPy in float64. Slow; made to check the other ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import Backend, Learner, LearnerState, one_learner
from copal.program import Program, Update
from copal.program.reference import ReferenceLearner


class ReferenceBackend(Backend):
    """Runs every Program, on every machine."""

    name = "reference"

    def unavailable(self) -> str | None:
        """None: it needs NumPy alone."""
        return None

    def supports(self, program: Program) -> str | None:  # noqa: ARG002
        """None: it has every operation."""
        return None

    def learner(
        self, update: Update, state: LearnerState, *, batch_size: int, learners: int
    ) -> Learner:
        """See `copal.backends.base.Backend`.

        Raises:
            ConfigError: `learners` is not 1.
        """
        one_learner(self.name, learners)
        return _Learner(update, state, batch_size)


class _Learner(Learner):
    """A ReferenceLearner behind the face of a backend's learner."""

    def __init__(self, update: Update, state: LearnerState, batch_size: int) -> None:
        self._update, self._batch_size = update, batch_size
        self._inner = ReferenceLearner(update, state.parameters)
        self.load_state(state)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._inner.updates

    def step(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs one update; see `copal.backends.base.Learner`."""
        return self._inner.step(batch).astype(np.float32)

    def parameters(self, network: str) -> NDArray[np.float32]:
        """A copy of one network's parameters, rounded to float32."""
        return self._inner.parameters[network].astype(np.float32)

    def state(self) -> LearnerState:
        """A copy of the whole state, rounded to float32."""
        inner = self._inner
        return LearnerState(
            _rounded(inner.parameters),
            _rounded(inner.first_moment),
            _rounded(inner.second_moment),
            dict(inner.optimiser_steps),
            inner.updates,
        )

    def load_state(self, state: LearnerState) -> None:
        """Goes on from `state`."""
        inner = self._inner
        inner.parameters = _widened(state.parameters)
        inner.first_moment = _widened(state.first_moment)
        inner.second_moment = _widened(state.second_moment)
        inner.optimiser_steps = dict(state.optimiser_steps)
        inner.updates = state.updates


def _rounded(vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    return {name: v.astype(np.float32) for name, v in vectors.items()}


def _widened(vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: np.array(v, np.float64) for name, v in vectors.items()}
