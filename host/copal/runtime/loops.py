# SPDX-License-Identifier: MIT
"""What drives the learner: the native loop of the `cpu` backend, or one of those in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from copal.backends.base import Learner
from copal.backends.cpu import CpuLearner
from copal.backends.gpu_drawing import DrawingLearner
from copal.native import native
from copal.replay import LinearSchedule
from copal.runtime.drawing_loop import DrawingLoop
from copal.runtime.host_loop import HostLoop


class Loop(Protocol):
    """Runs updates whenever the gate lets it."""

    @property
    def updates(self) -> int:
        """Updates done."""

    @property
    def running(self) -> bool:
        """Whether its thread still works."""

    def start(self) -> None:
        """Starts the thread; it ends once the gate is closed or drained."""

    def pause(self) -> None:
        """Holds it between two updates."""

    def resume(self) -> None:
        """Ends `pause`."""

    def stop(self) -> None:
        """Ends the thread after the update under way."""

    def run_once(self) -> None:
        """One update on the calling thread, weights published."""

    def publish(self) -> None:
        """Publishes the weights as they are; the loop must not run."""

    def write_back(self) -> dict[str, int]:
        """Puts priorities that only a device has into the replay; the loop must not run.

        Returns:
            Counters for the checkpoint.
        """

    def raise_if_failed(self) -> None:
        """Raises the error that ended the thread."""

    def metrics(self) -> dict[str, Any]:
        """Figures of the newest update, and the seconds spent by stage."""

    def messages(self) -> list[str]:
        """Warnings of the learner since the last call, each to be shown once."""

    def report(self) -> str:
        """What the learner says about the whole run; empty: nothing."""


class NativeLoop:
    """The loop in C++, with no Python between two updates.

    Args:
        learner: The learner of the `cpu` backend.
        replay: Where batches come from.
        gate: Says when an update is due.
        store: Where the policy's networks are published, one behind another.
        beta: Exponent of the importance weights by update.
        async_learners: Threads that each update on batches of their own; 0: the learner does.

    Raises:
        ConfigError: The learner shares out its batches, and `async_learners` is above 0.
    """

    def __init__(
        self,
        learner: CpuLearner,
        replay: Any,
        gate: Any,
        store: Any,
        beta: LinearSchedule,
        async_learners: int = 0,
    ) -> None:
        self._learner, self._gate, self._async = learner, gate, async_learners > 0
        self._loop = native.LearnerLoop(
            learner.native,
            replay,
            store,
            beta_start=beta.start,
            beta_end=beta.end,
            beta_updates=max(1, beta.steps),
            async_learners=async_learners,
        )
        self.pause = self._loop.pause
        self.resume = self._loop.resume
        self.stop = self._loop.stop
        self.publish = self._loop.publish
        self.raise_if_failed = self._loop.raise_if_failed

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._learner.updates

    @property
    def running(self) -> bool:
        """Whether its thread still works."""
        return bool(self._loop.running)

    def start(self) -> None:
        """Starts the threads."""
        self._loop.start(self._gate)

    def run_once(self) -> None:
        """One update on the calling thread.

        Raises:
            LearnerFailedError: A value became NaN or infinite.
        """
        self._loop.run_once()
        # The loop's thread publishes only what an actor is going to read; here, where the next
        # weights an actor reads must not depend on when it read the last ones, always.
        self._loop.publish()

    def write_back(self) -> dict[str, int]:
        """Nothing: the replay has all priorities."""
        return {}

    def metrics(self) -> dict[str, Any]:
        """Figures of the newest update, and the seconds spent by stage, over all threads.

        Asynchronous learners add the staleness of their gradients, the number of updates that
        others applied while one was computed: `staleness_mean`, `staleness_max`, and `staleness`,
        the number of updates whose staleness was 0, 1, ... 7, and 8 or more.
        """
        counters = self._loop.counters()
        figures = {k: v for k, v in counters.items() if k.endswith("_s")}
        if self._async:
            mean = counters["staleness_sum"] / max(1, counters["updates"])
            figures |= {"staleness_mean": mean, "staleness_max": counters["staleness_max"]}
            figures["staleness"] = list(counters["staleness"])
        return {**self._learner.metrics, **figures}

    def messages(self) -> list[str]:
        """None: its failures are errors."""
        return []

    def report(self) -> str:
        """Nothing beyond its metrics."""
        return ""


def make(
    learner: Learner,
    replay: Any,
    gate: Any,
    store: Any,
    *,
    acting: Sequence[str],
    batch_size: int,
    beta: LinearSchedule,
    async_learners: int = 0,
    device_rows: int | None = None,
) -> Loop:
    """The native loop for a native learner, else one of those in Python.

    Args:
        learner: Runs the updates.
        replay: Where batches come from.
        gate: Says when an update is due.
        store: Where the policy's networks are published, one behind another.
        acting: Names of the policy's networks, in its order.
        batch_size: Rows of a batch.
        beta: Exponent of the importance weights by update.
        async_learners: Learners of the `cpu` backend that work asynchronously; 0: none.
        device_rows: What `write_back` counted when the replay was kept; None: nothing.

    Raises:
        ConfigError: The learner draws its batches, and cannot do so for its Update.
        GpuMemoryError: The replay does not fit onto the device.
    """
    if isinstance(learner, CpuLearner):
        return NativeLoop(learner, replay, gate, store, beta, async_learners)
    parts = (replay, gate, store, acting, batch_size, beta)
    if isinstance(learner, DrawingLearner):
        learner.attach(replay, device_rows)
        return DrawingLoop(learner, *parts)
    return HostLoop(learner, *parts)
