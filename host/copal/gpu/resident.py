# SPDX-License-Identifier: MIT
"""A learner whose batches are drawn on the device: rows go in once, TD errors stay there.

one launch:   draw -> gather -> weights -> gradient, reduce -> priorities      K times
(GpuReplay)                  (GpuLearner)        (GpuReplay)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import ConfigError, EmptyReplayError, LearnerFailedError
from copal.gpu.device import GpuDevice, Pointer
from copal.gpu.learner import GpuLearner, Submitted
from copal.gpu.plan import GpuPlan
from copal.gpu.replay import GpuReplay
from copal.gpu.sequence import HEAD_BYTES
from copal.gpu.sequence import Sequence as Kernels
from copal.gpu.staging import Slot

_WEIGHT = "weight"


def replay_for(device: GpuDevice, plan: GpuPlan, capacity: int, **settings: Any) -> GpuReplay:
    """A replay with the columns that an Update reads, in the places where its kernels read them.

    Args:
        device: Holds it.
        plan: The Update; of one agent.
        capacity: Rows.
        settings: Of `GpuReplay`: `alpha`, `eps`, `seed`.

    Raises:
        ConfigError: The Update weighs no rows, or the plan is of several agents.
    """
    if plan.agents != 1:
        raise ConfigError("agents", "1 with a replay on the device", str(plan.agents))
    if _WEIGHT not in plan.columns:
        raise ConfigError(_WEIGHT, "an Update that weighs its rows", plan.update.name)
    kept = {n: c for n, c in plan.columns.items() if c.stream is None and n != _WEIGHT}
    places = {name: column.offset for name, column in kept.items()}
    return GpuReplay(
        device,
        capacity,
        {n: (c.buffer.width, c.buffer.dtype) for n, c in kept.items()},
        plan.batch_size,
        places={**places, _WEIGHT: plan.columns[_WEIGHT].offset},
        **settings,
    )


class ResidentLearner(GpuLearner):
    """A `GpuLearner` that also runs on batches of a replay on its device.

    Args:
        device: Runs the kernels; closed with this object.
        plan: What runs, for one agent.
        replay: From `replay_for` with the same device and plan.
        updates: Most updates of one launch.
    """

    def __init__(
        self, device: GpuDevice, plan: GpuPlan, replay: GpuReplay, *, updates: int = 1
    ) -> None:
        super().__init__(device, plan, updates=updates)
        self.replay = replay

    def run_drawn(self, count: int = 1) -> NDArray[np.float32]:
        """Draws a batch, updates, sets its priorities; all of that `count` times in one launch.

        Returns:
            TD errors, float32 [count, 1, B].

        Raises:
            EmptyReplayError: The replay has no row.
            LearnerFailedError: A value became NaN or infinite; the state is that before its update.
            GpuError: The device failed.
        """
        if not 1 <= count <= self._most:
            raise ConfigError("count", f"1 to {self._most} updates", str(count))
        if not len(self.replay):
            raise EmptyReplayError("replay", "at least one row", "no row", "add rows first")
        self._finish()
        slot = self._slots[(self._number + 1) % len(self._slots)]
        self._start(slot, count, 0, lambda k: self._enqueue_drawn(slot, k, count), "drawn")
        return self.collect()

    def _enqueue_drawn(self, slot: Slot, kernels: Kernels, count: int) -> None:
        batch, results = self._buffers.batch, self._buffers.results
        self._device.upload(Pointer(batch), slot.upload[:HEAD_BYTES])
        for k in range(count):
            self.replay.enqueue_sample(Pointer(batch, self._sequencer.batch_offset(k)))
            mine = zip(kernels.launches, kernels.owners, strict=True)
            self._device.launch([launch for launch, (update, _) in mine if update == k])
            self.replay.enqueue_update(Pointer(results, self._sequencer.td_offset(k)))
        self._device.download(slot.download, Pointer(results))

    def _failure(self, launch: Submitted, k: int, phase: int) -> LearnerFailedError:
        """As the base, which looks at the batch: here it never was on the host."""
        self._device.download(
            launch.slot.upload[HEAD_BYTES:], Pointer(self._buffers.batch, HEAD_BYTES)
        )
        self._device.mark().wait()
        self.replay.clear()
        return super()._failure(launch, k, phase)
