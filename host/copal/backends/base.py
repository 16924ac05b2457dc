# SPDX-License-Identifier: MIT
"""What a backend is: something that runs Updates, or says why it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from copal.devices import DeviceTable
from copal.errors import ConfigError
from copal.program import Program, Update


@dataclass
class LearnerState:
    """All that a learner carries from one update to the next, as flat float32 vectors."""

    parameters: dict[str, NDArray[np.float32]]
    """Network name to parameter vector, targets included."""
    first_moment: dict[str, NDArray[np.float32]]
    """Trained network name to Adam's first moment."""
    second_moment: dict[str, NDArray[np.float32]]
    """Trained network name to Adam's second moment."""
    optimiser_steps: dict[str, int]
    """Trained network name to the number of Adam steps taken."""
    updates: int
    """Updates done."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that a backend needs beside the vectors to go on with the same bits, exponents
    of fixed-point numbers for instance; another backend ignores them."""

    @classmethod
    def initial(cls, update: Update, parameters: Mapping[str, NDArray[np.float32]]) -> LearnerState:
        """The state before the first update, with zero moments."""
        trained = update.trained()
        return cls(
            {name: np.array(v, np.float32) for name, v in parameters.items()},
            {name: np.zeros_like(parameters[name], np.float32) for name in trained},
            {name: np.zeros_like(parameters[name], np.float32) for name in trained},
            dict.fromkeys(trained, 0),
            0,
        )


class Learner(Protocol):
    """Runs one Update again and again. What has a body here is the same for most learners."""

    ahead: bool = False
    """Whether `submit` and `flush` can be used, so that the next batch is drawn and copied while an
    update runs."""
    publish_interval: int = 1
    """Updates after which a loop reads the weights for the actors again; it reads them anyway
    before they are evaluated or kept."""
    update_limit_s: float = 0.0
    """Longest time that an update may take, where it is long; the end of a run waits for it."""

    @property
    def updates(self) -> int:
        """Updates done."""

    def step(self, batch: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32]:
        """Runs one update.

        Args:
            batch: A column for every Program input, each with B rows: `obs`, `action`, `reward`,
                `next_obs`, `terminated`, `discount`, `weight` for DQN. Inputs of source "normal"
                may be left out: the learner makes their noise.

        Returns:
            TD error of each row, float32 [B].

        Raises:
            LearnerFailedError: A value became NaN or infinite.
        """

    def submit(
        self,
        batch: Mapping[str, NDArray[np.generic]],  # noqa: ARG002  what learners have that go ahead
    ) -> NDArray[np.float32] | None:
        """Starts an update and does not wait for it.

        Args:
            batch: As `step` takes it; copied before this returns.

        Returns:
            TD errors of the update submitted before, float32 [B]; None if there is none.

        Raises:
            LearnerFailedError: In the update submitted before.
        """
        raise RuntimeError("`ahead` says whether there is a `submit`")

    def flush(self) -> NDArray[np.float32] | None:
        """Waits for the update that was submitted; returns and raises as `submit`."""
        raise RuntimeError("`ahead` says whether there is a `flush`")

    def parameters(self, network: str) -> NDArray[np.float32]:
        """A copy of one network's parameters, flat float32: what actors need after each update."""

    def state(self) -> LearnerState:
        """A copy of the whole state."""

    def load_state(self, state: LearnerState) -> None:
        """Goes on from `state`."""

    @property
    def metrics(self) -> dict[str, float]:
        """Figures of the newest update, for the record of metrics."""
        return {}

    def messages(self) -> list[str]:
        """Warnings since the last call, each to be shown once."""
        return []

    def report(self) -> str:
        """What there is to say about the whole run; empty: nothing."""
        return ""

    def close(self) -> None:
        """Frees what it holds beside memory. More calls are harmless."""
        return


class Backend(Protocol):
    """One file of `copal.backends`, registered by name. What has a body is the same for most."""

    hint: str = "`copal devices` lists the backends that can be used here"
    """What to do where it cannot be used, beside what the reason says."""

    @property
    def name(self) -> str:
        """What the user types after `--backend`."""

    def unavailable(self) -> str | None:
        """None if it can be used here, else the reason and what to do."""

    def devices(self) -> list[tuple[str, str | None]]:
        """Every device's name with None, or the reason why it cannot be used."""
        return []

    def supports(self, program: Program) -> str | None:
        """None if it has every operation of `program`, else the first kind that it lacks."""

    def learner(
        self, update: Update, state: LearnerState, *, batch_size: int, learners: int
    ) -> Learner:
        """Builds a learner that goes on from `state`.

        Args:
            update: What to run.
            state: Where to start.
            batch_size: Rows of a batch.
            learners: Parallel learners that share the batch.

        Raises:
            BackendUnavailableError: It cannot be used on this machine.
            ProgramError: It lacks an operation.
            ConfigError: `learners` does not fit `batch_size`.
        """


class DeviceBackend(Backend):
    """A backend that runs on one of several devices.

    Args:
        table: Its devices.
        device: Which one.

    Raises:
        UnknownNameError: There is no such device.
    """

    def __init__(self, table: DeviceTable[Any], device: str) -> None:
        table.check(device)
        self.device = device
        self._table = table

    def unavailable(self) -> str | None:
        """None if the device can be used here, else the reason and what to do."""
        reason = self._table.unavailable(self.device)
        return None if reason is None else f"device {self.device}: {reason}"

    def devices(self) -> list[tuple[str, str | None]]:
        """Every device's name with None, or the reason why it cannot be used."""
        return self._table.reasons()


def one_learner(backend: str, learners: int) -> None:
    """Refuses parallel learners.

    Raises:
        ConfigError: `learners` is not 1.
    """
    if learners != 1:
        raise ConfigError(
            "learners",
            f"1, all that backend `{backend}` has",
            str(learners),
            "parallel learners are a feature of `--backend cpu`",
        )
