# SPDX-License-Identifier: MIT
"""The learner loop in Python, for backends without a loop of their own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import Learner
from copal.errors import LearnerFailedError
from copal.replay import LinearSchedule


class HostLoop:
    """Samples, updates, writes priorities back and publishes weights.

    Args:
        learner: Runs the updates.
        replay: Where batches come from.
        gate: Says when an update is due.
        store: Where the policy's networks are published, one behind another.
        acting: Names of the policy's networks, in its order.
        batch_size: Rows of a batch.
        beta: Exponent of the importance weights by update.
    """

    def __init__(
        self,
        learner: Learner,
        replay: Any,
        gate: Any,
        store: Any,
        acting: Sequence[str],
        batch_size: int,
        beta: LinearSchedule,
    ) -> None:
        self._learner, self._replay, self._gate, self._store = learner, replay, gate, store
        self._acting, self._batch_size, self._beta = tuple(acting), batch_size, beta
        self._batch: Any = None
        self._pending: Any = None
        self._updates = learner.updates
        self._between = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._mean_td = float("nan")
        self._seconds = dict.fromkeys(
            ("sample_s", "step_s", "priority_s", "publish_s", "wait_s"), 0.0
        )

    @property
    def updates(self) -> int:
        """Updates done, or started."""
        return self._updates

    def start(self) -> None:
        """Starts the thread; it ends once the gate is closed or drained."""
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Waits for the end of the update that is running and holds the next one.

        Raises:
            LearnerFailedError: It has failed.
        """
        self._between.acquire()
        try:
            self._flush()
        except BaseException:
            self._between.release()
            raise

    def resume(self) -> None:
        """Ends `pause`."""
        self._between.release()

    def stop(self) -> None:
        """Waits for the thread, whose gate has been closed."""
        if self._thread is not None:
            self._thread.join(60.0)

    @property
    def running(self) -> bool:
        """Whether the thread still works."""
        return self._thread is not None and self._thread.is_alive()

    def raise_if_failed(self) -> None:
        """Raises the error that ended the thread."""
        if self._error is not None:
            raise self._error

    def run_once(self) -> None:
        """One update on the calling thread, weights published.

        Raises:
            LearnerFailedError: A value became NaN or infinite.
        """
        self._step()
        self.publish()

    def _step(self) -> None:
        began = time.perf_counter()
        seconds, replay, learner = self._seconds, self._replay, self._learner
        beta = self._beta(learner.updates)
        batch = replay.sample(self._batch_size, beta=beta, out=self._batch)
        self._batch = batch
        sampled = time.perf_counter()
        try:
            td = learner.step(dict(batch.items()))
        except LearnerFailedError as e:
            raise e.with_ids(batch.ids) from e
        stepped = time.perf_counter()
        replay.update_priorities(batch.ids, td)
        self._mean_td = float(abs(td).mean(dtype=np.float64))
        self._updates = learner.updates
        seconds["sample_s"] += sampled - began
        seconds["step_s"] += stepped - sampled
        seconds["priority_s"] += time.perf_counter() - stepped

    def _step_ahead(self) -> None:
        """Draws a batch while the update before still runs, and starts the next one."""
        began = time.perf_counter()
        seconds, learner = self._seconds, self._learner
        beta = self._beta(self._updates)
        batch = self._replay.sample(self._batch_size, beta=beta, out=self._batch)
        sampled = time.perf_counter()
        with self._naming_rows():
            td = learner.submit(dict(batch.items()))
        stepped = time.perf_counter()
        if td is not None:
            self._write_back(td)
        self._batch, self._pending = self._pending, batch
        self._updates += 1
        seconds["sample_s"] += sampled - began
        seconds["step_s"] += stepped - sampled
        seconds["priority_s"] += time.perf_counter() - stepped

    def _flush(self) -> None:
        """Waits for the update that was started ahead, if there is one."""
        if self._pending is None:
            return
        with self._naming_rows():
            td = self._learner.flush()
        if td is not None:
            self._write_back(td)
        self._batch, self._pending = self._pending, None

    def _write_back(self, td: NDArray[np.float32]) -> None:
        self._replay.update_priorities(self._pending.ids, td)
        self._mean_td = float(abs(td).mean(dtype=np.float64))

    @contextlib.contextmanager
    def _naming_rows(self) -> Iterator[None]:
        """Adds the replay's ids to a failure of the update that was started ahead."""
        try:
            yield
        except LearnerFailedError as e:
            pending, self._pending = self._pending, None
            raise (e if pending is None else e.with_ids(pending.ids)) from e

    def publish(self) -> None:
        """Publishes the weights as they are."""
        learner, began = self._learner, time.perf_counter()
        with self._naming_rows():
            vectors = [learner.parameters(name) for name in self._acting]
        self._store.publish(np.concatenate(vectors), learner.updates)
        self._seconds["publish_s"] += time.perf_counter() - began

    def write_back(self) -> dict[str, int]:
        """Nothing: the replay has all priorities."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Figures of the newest update, and the seconds spent by stage."""
        seconds = self._seconds
        busy = seconds["sample_s"] + seconds["step_s"] + seconds["priority_s"]
        own = {"mean_abs_td": self._mean_td, "learner_busy_s": busy}
        return {**own, **seconds, **self._learner.metrics}

    def messages(self) -> list[str]:
        """Warnings of the learner since the last call, each to be shown once."""
        return self._learner.messages()

    def report(self) -> str:
        """What the learner says about the whole run; empty: nothing."""
        return self._learner.report()

    def _acquire(self) -> bool:
        began = time.perf_counter()
        due: bool = self._gate.acquire_update()
        self._seconds["wait_s"] += time.perf_counter() - began
        return due

    def _run(self) -> None:
        step = self._step_ahead if self._learner.ahead else self._step
        try:
            while self._acquire():
                with self._between:
                    step()
                    if self._updates % self._learner.publish_interval == 0:
                        self.publish()
                    self._gate.complete_update()
            with self._between:
                self._flush()
        except BaseException as e:  # noqa: BLE001 - the main thread raises it again
            self._error = e
            self._gate.close()
