# SPDX-License-Identifier: MIT
"""A learner of the `gpu` backend that draws its batches from a replay on its device.

actors -> native replay -- rows as they come --> storage and tree on the device -> updates
                        <-- priorities, when the run is kept --
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.base import LearnerState
from copal.backends.gpu_learner import KernelLearner
from copal.errors import GpuMemoryError, SchemaError
from copal.gpu.resident import ResidentLearner
from copal.replay import Batch, PrioritizedReplay

_CHUNK = 4096
_MEMORY_HINT = "lower `buffer_size`, or keep the replay in host memory: --replay-device cpu"


class DrawingLearner(KernelLearner):
    """A `KernelLearner` with a replay on its device that follows the native one.

    Args:
        inner: The device's learner.
        state: Where to start.
    """

    def __init__(self, inner: ResidentLearner, state: LearnerState) -> None:
        super().__init__(inner, state)
        self._resident = inner
        self._source: PrioritizedReplay | None = None

    def attach(self, source: PrioritizedReplay, rows: int | None = None) -> None:
        """Takes over the rows and priorities that there are, and follows `source` from here on.

        More calls with the same one change nothing.

        Args:
            source: Where actors insert; nobody may do so yet.
            rows: Ids from here on have no priority yet, as `write_back` said; None: all have.

        Raises:
            ConfigError: The Update does not weigh its rows, or next observations are shared.
            SchemaError: The Update reads a column that `source` has not.
            GpuMemoryError: The device has not enough memory.
        """
        if self._source is source:
            return
        settings, columns = source.settings, [name for name, *_ in source.settings["columns"]]
        try:
            self._resident.hold(
                source.capacity,
                alpha=settings.get("alpha", 0.0),
                eps=settings.get("eps", 0.0),
                seed=settings["seed"],
            )
        except GpuMemoryError as e:
            raise GpuMemoryError(e.field, e.expected, e.got, _MEMORY_HINT) from e
        replay = self._resident.replay
        unknown = set(replay.names) - {*columns, "discount"}
        if unknown:
            raise SchemaError(min(unknown), "a column of the replay", ", ".join(columns))
        replay.start(self.updates)
        self._source = source
        rows = source.next_id if rows is None else rows
        priorities, at = source.priorities(), 0
        while at < rows and (batch := source.rows_from(at, min(_CHUNK, rows - at))) is not None:
            ids = batch.ids[batch.ids < rows]
            if len(ids):
                slots = (ids % np.uint64(source.capacity)).astype(np.int64)
                replay.add(self._columns(batch, len(ids)), priorities[slots], first=int(ids[0]))
            at = int(batch.ids[-1]) + 1

    def feed(self) -> None:
        """Copies the rows that came since the last call to the device, with the highest priority.

        Raises:
            GpuError: The device failed.
        """
        replay = self._resident.replay
        batch = self._followed().rows_from(replay.inserted)
        if batch is not None:
            with self._one:
                replay.add(self._columns(batch, len(batch)), first=int(batch.ids[0]))

    def step_drawn(self, beta: float) -> NDArray[np.float32]:
        """Draws a batch, updates and sets its priorities.

        Args:
            beta: Exponent of the importance weights.

        Returns:
            TD error of each row, float32 [B].

        Raises:
            EmptyReplayError: The device has no row.
            LearnerFailedError: A value became NaN or infinite; rows have the replay's ids.
            GpuError: The device failed.
        """
        with self._one:
            return self._counted(self._resident.run_drawn(1, [beta]))

    def submit_drawn(self, beta: float) -> NDArray[np.float32] | None:
        """Starts what `step_drawn` does and does not wait for it.

        Returns:
            TD errors of the update submitted before, float32 [B]; None if there is none.

        Raises:
            As `step_drawn`, also for the update submitted before.
        """
        with self._one:
            waiting, self._waiting = self._waiting, False
            self._resident.submit_drawn(1, [beta])
            self._waiting = True
            return self._counted(self._resident.finished()) if waiting else None

    def write_back(self) -> int:
        """Sets the priorities of the native replay to those of the device.

        Rows that are not there yet get the highest one.

        Returns:
            The id of the first row that is not there yet, for `attach`.

        Raises:
            GpuError: The device failed.
        """
        replay, source = self._resident.replay, self._followed()
        with self._one:
            leaves = replay.priorities()
        first = replay.inserted - len(leaves)
        slots = np.arange(first, replay.inserted) % source.capacity
        highest = leaves.max(initial=0.0) or 1.0
        coming = np.full(source.next_id - replay.inserted, highest, np.float32)
        source.set_priorities(first, np.concatenate([leaves[slots], coming]))
        return replay.inserted

    def _followed(self) -> PrioritizedReplay:
        assert self._source is not None, "not attached"
        return self._source

    def _columns(self, batch: Batch, n: int) -> dict[str, NDArray[Any]]:
        """Columns of the first `n` rows, [n, width]."""
        return {name: batch[name][:n].reshape(n, -1) for name in self._resident.replay.names}
