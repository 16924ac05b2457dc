# SPDX-License-Identifier: MIT
"""A learner of the `gpu` backend that is given its batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import Learner, LearnerState
from copal.errors import SchemaError
from copal.gpu.learner import GpuLearner

PUBLISH_INTERVAL = 8
"""Updates between two reads of the acting weights, which have to wait for the update that runs."""


class KernelLearner(Learner):
    """A learner of one agent on a device, behind the face of a backend's learner.

    Threads may ask for metrics while another one runs updates.

    Args:
        inner: The device's learner.
        state: Where to start.
    """

    ahead = True
    publish_interval = PUBLISH_INTERVAL

    def __init__(self, inner: GpuLearner, state: LearnerState) -> None:
        self._inner = inner
        self._one = threading.RLock()
        self._waiting = False
        self._others: dict[str, NDArray[np.float32]] = {}
        self._mean_abs_td = float("nan")
        self.load_state(state)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._inner.updates

    @property
    def metrics(self) -> dict[str, float]:
        """Means of the Programs' outputs over the last batch, and `td_error_abs`."""
        with self._one:
            outputs = self._inner.outputs()
        means = {role: float(values.mean()) for (_, role), values in outputs.items()}
        return {**means, "td_error_abs": self._mean_abs_td}

    def step(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs one update; see `copal.backends.base.Learner`.

        Raises:
            SchemaError: A column is missing, or has another shape; nothing is changed.
            LearnerFailedError: A value became NaN or infinite; nothing is changed.
            GpuError: The device failed.
        """
        with self._one:
            return self._counted(self._inner.run([[batch]]))

    def submit(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32] | None:
        """Starts an update; see `copal.backends.base.Learner`.

        Raises:
            As `step`, also for the update submitted before.
        """
        with self._one:
            waiting, self._waiting = self._waiting, False
            self._inner.submit([[batch]])
            self._waiting = True
            return self._counted(self._inner.finished()) if waiting else None

    def flush(self) -> NDArray[np.float32] | None:
        """Waits for the update that was submitted; see `copal.backends.base.Learner`.

        Raises:
            As `step`.
        """
        with self._one:
            waiting, self._waiting = self._waiting, False
            return self._counted(self._inner.collect()) if waiting else None

    def _counted(self, td_errors: NDArray[np.float32]) -> NDArray[np.float32]:
        td_error: NDArray[np.float32] = td_errors[0, 0]
        self._mean_abs_td = float(np.abs(td_error).mean())
        return td_error

    def parameters(self, network: str) -> NDArray[np.float32]:
        """A copy of one network's parameters, flat."""
        if network in self._others:
            return self._others[network].copy()
        with self._one:
            return self._inner.vector("parameters", network)

    def state(self) -> LearnerState:
        """A copy of the whole state."""
        inner, update = self._inner, self._inner.plan.update
        return LearnerState(
            {name: self.parameters(name) for name in update.networks()},
            {name: inner.vector("first", name) for name in update.trained()},
            {name: inner.vector("second", name) for name in update.trained()},
            dict(inner.optimiser_steps),
            inner.updates,
        )

    def load_state(self, state: LearnerState) -> None:
        """Goes on from `state`.

        Raises:
            SchemaError: A vector is missing or has the wrong size; nothing is changed.
        """
        plan = self._inner.plan
        others = {}
        for name, size in plan.update.networks().items():
            if name in plan.layouts:
                continue
            shape = np.shape(state.parameters[name]) if name in state.parameters else None
            if shape != (size,):
                got = "none" if shape is None else f"shape {shape}"
                raise SchemaError(f"parameters[{name!r}]", f"float32 [{size}]", got)
            others[name] = np.array(state.parameters[name], np.float32)
        self._inner.load(
            0,
            state.parameters,
            state.first_moment,
            state.second_moment,
            state.optimiser_steps,
            state.updates,
        )
        self._others = others

    def close(self) -> None:
        """Frees the device. More calls are harmless."""
        self._inner.close()
