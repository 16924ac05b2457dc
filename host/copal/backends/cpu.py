# SPDX-License-Identifier: MIT
"""The `cpu` backend: the native executor, with no Python and no GIL while an update runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import Backend, Learner, LearnerState
from copal.errors import SchemaError
from copal.native import native
from copal.program import Program, Update


class CpuLearner(Learner):
    """A native learner behind the face of a backend's learner.

    Args:
        update: What to run.
        state: Where to start.
        batch_size: Rows of a batch.
        learners: Parallel learners that share the batch.
        threads: Threads that play them, at most `learners`; None: as many. Results are the same.
        gemm: `auto`, `own` (needs AVX-512) or `eigen`.

    Attributes:
        native: The `native.Learner`, for a `native.LearnerLoop` that trains without Python.

    Raises:
        ProgramError: A Program is malformed.
        ConfigError: `learners`, `threads` or `gemm` does not fit.
    """

    def __init__(
        self,
        update: Update,
        state: LearnerState,
        *,
        batch_size: int,
        learners: int = 1,
        threads: int | None = None,
        gemm: str = "auto",
    ) -> None:
        plain = json.loads(update.to_json())
        self.native: Any = native.Learner(plain, batch_size, learners, threads or 0, gemm)
        self.load_state(state)

    @property
    def updates(self) -> int:
        """Updates done."""
        return int(self.native.updates)

    @property
    def metrics(self) -> dict[str, float]:
        """Means of the Program's outputs over the last batch, `td_error_abs` and `grad_norm`."""
        values: dict[str, float] = self.native.metrics()
        return values

    def step(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs one update; see `copal.backends.base.Learner`.

        Raises:
            SchemaError: A column is missing, or has another shape or dtype; nothing is changed.
            LearnerFailedError: A value became NaN or infinite; nothing is changed.
        """
        td_error: NDArray[np.float32] = self.native.step(batch)
        return td_error

    def gradient(
        self, batch: Mapping[str, NDArray[Any]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
        """What the first phase would see; changes nothing.

        Returns:
            Gradient of the mean loss, float32 [size]; TD errors, float32 [B]; mean loss.
        """
        gradient, td_error, loss = self.native.gradient(batch)
        return gradient, td_error, loss

    def parameters(self, network: str) -> NDArray[np.float32]:
        """A copy of one network's parameters, flat."""
        vector: NDArray[np.float32] = self.native.parameters(network)
        return vector

    def state(self) -> LearnerState:
        """A copy of the whole state."""
        moments = {name: self.native.optimiser(name) for name in self.native.trained()}
        return LearnerState(
            {name: self.parameters(name) for name in self.native.networks()},
            {name: first for name, (first, _, _) in moments.items()},
            {name: second for name, (_, second, _) in moments.items()},
            {name: int(steps) for name, (_, _, steps) in moments.items()},
            self.updates,
        )

    def load_state(self, state: LearnerState) -> None:
        """Goes on from `state`.

        Raises:
            SchemaError: A vector is missing or has the wrong size; nothing is changed.
        """
        sizes = self.native.networks()
        trained = {name: sizes[name] for name in self.native.trained()}
        parameters = _vectors("parameters", state.parameters, sizes)
        first = _vectors("first_moment", state.first_moment, trained)
        second = _vectors("second_moment", state.second_moment, trained)
        for name, vector in parameters.items():
            self.native.set_parameters(name, vector)
        for name in trained:
            steps = state.optimiser_steps[name]
            self.native.set_optimiser(name, first[name], second[name], steps)
        self.native.updates = state.updates


class CpuBackend(Backend):
    """Runs every Program, on every processor."""

    name = "cpu"

    def unavailable(self) -> str | None:
        """None: importing this file has loaded the extension."""
        return None

    def supports(self, program: Program) -> str | None:
        """None if the extension has every operation of `program`, else the first it lacks."""
        known = frozenset(native.op_kinds)
        return next((op.kind for op in program.ops if op.kind not in known), None)

    def learner(
        self, update: Update, state: LearnerState, *, batch_size: int, learners: int
    ) -> CpuLearner:
        """See `copal.backends.base.Backend`."""
        return CpuLearner(update, state, batch_size=batch_size, learners=learners)


def _vectors(
    field: str, given: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]
) -> dict[str, NDArray[np.float32]]:
    vectors = {}
    for name, size in sizes.items():
        shape = np.shape(given[name]) if name in given else None
        if shape != (size,):
            got = "none" if shape is None else f"shape {shape}"
            raise SchemaError(f"{field}[{name!r}]", f"float32 [{size}]", got)
        vectors[name] = np.ascontiguousarray(given[name], np.float32)
    return vectors
