# SPDX-License-Identifier: MIT
"""The `fpga` backend: the learner engine, as simulated RTL, as a bit-exact model, or on a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import DeviceBackend, Learner, LearnerState, one_learner
from copal.config import DEVICES
from copal.errors import BackendUnavailableError
from copal.fpga import open as devices
from copal.fpga.driver import EngineDriver
from copal.fpga.engine import open_engine
from copal.program import Program, Update

PUBLISH_INTERVAL = 8
"""Updates between two reads of the acting weights: each costs about as much as an update."""


class EngineLearner(Learner):
    """An engine behind the face of a backend's learner.

    Args:
        driver: The engine, with the Update on it.
        state: Where to start.
    """

    publish_interval = PUBLISH_INTERVAL

    def __init__(self, driver: EngineDriver, state: LearnerState) -> None:
        self._driver = driver
        self._read: dict[str, tuple[int, NDArray[np.float32]]] = {}
        self._mean_abs_td = float("nan")
        # A simulated engine takes minutes for large networks, and stops by its own limit.
        self.update_limit_s = 2 * driver.timeout_s
        self.load_state(state)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._driver.updates

    @property
    def metrics(self) -> dict[str, float]:
        """The newest losses, and means of what an update took."""
        losses = self._driver.losses
        named = {"loss": losses[max(losses)]} if losses else {}
        return {**named, "td_error_abs": self._mean_abs_td, **self._driver.report.figures()}

    def step(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs one update; see `copal.backends.base.Learner`.

        Raises:
            SchemaError: A column is missing, or has another shape; nothing is changed.
            LearnerFailedError: A value became NaN or infinite.
            FpgaError: The engine reports an error.
            FpgaTimeoutError: The device stopped answering; it has been reset.
        """
        td_error = self._driver.step(batch)
        self._mean_abs_td = float(np.abs(td_error).mean(dtype=np.float64))
        return td_error

    def parameters(self, network: str) -> NDArray[np.float32]:
        """A copy of one network's parameters, flat; read back once an update."""
        known = self._read.get(network)
        if known is None or known[0] != self.updates:
            found = self._driver.parameters([network])[network]
            known = self._read[network] = (self.updates, found)
        return known[1].copy()

    def state(self) -> LearnerState:
        """A copy of the whole state."""
        driver = self._driver
        first, second = driver.moments()
        return LearnerState(
            driver.parameters(tuple(driver.plan.layout.sizes)),
            first,
            second,
            dict(driver.optimiser_steps),
            driver.updates,
            driver.notes(),
        )

    def load_state(self, state: LearnerState) -> None:
        """Goes on from `state`.

        Raises:
            SchemaError: A vector is missing or has the wrong size; nothing is changed.
        """
        self._read.clear()
        self._driver.load(
            state.parameters,
            state.first_moment,
            state.second_moment,
            state.optimiser_steps,
            state.updates,
            state.notes,
        )

    def messages(self) -> list[str]:
        """Warnings since the last call."""
        return self._driver.report.take_messages()

    def report(self) -> str:
        """What the engine took, in words."""
        return self._driver.report.text()

    def close(self) -> None:
        """Frees the device. More calls are harmless."""
        self._driver.close()


class FpgaBackend(DeviceBackend):
    """Runs Programs on one engine.

    Args:
        device: `sim`, `model` or `pynq`; None: `sim`.
        lanes: Multipliers of the engine, P x P; None: 64, or what the board has.
        clock_mhz: Clock that reports turn cycles into times with; None: 100, or the board's.

    Raises:
        UnknownNameError: There is no such device.
    """

    name = "fpga"

    def __init__(
        self,
        device: str | None = None,
        lanes: int | None = None,
        clock_mhz: float | None = None,
    ) -> None:
        super().__init__(devices.TABLE, device or DEVICES[self.name][0])
        self._lanes, self._clock_mhz = lanes, clock_mhz

    def supports(self, program: Program) -> str | None:
        """None if the engine has microcode for every operation, else the first kind it lacks."""
        from copal.fpga import compiler

        return compiler.supports(program)

    def learner(
        self, update: Update, state: LearnerState, *, batch_size: int, learners: int
    ) -> EngineLearner:
        """See `copal.backends.base.Backend`.

        Raises:
            FpgaError: The device is no engine, fails its self-test, or its engine is too small.
        """
        reason = self.unavailable()
        if reason is not None:
            raise BackendUnavailableError("backend", "`fpga` usable here", reason)
        one_learner(self.name, learners)
        driver = open_engine(
            self.device,
            update,
            batch_size=batch_size,
            lanes=self._lanes,
            clock_mhz=self._clock_mhz,
        )
        try:
            return EngineLearner(driver, state)
        except BaseException:
            driver.close()
            raise
