# SPDX-License-Identifier: MIT
"""A learner whose batches are drawn on the device: rows go in once, TD errors stay there.

one launch:   draw -> gather -> weights -> gradient, reduce -> priorities      K times
(GpuReplay)                  (GpuLearner)        (GpuReplay)

head of the batches   [ number of the launch | beta of update 0 | beta of update 1 | ... ]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import ConfigError, EmptyReplayError, LearnerFailedError
from copal.gpu.device import GpuDevice, Pointer
from copal.gpu.learner import GpuLearner, Submitted
from copal.gpu.plan import FLOAT_BYTES, GpuPlan
from copal.gpu.replay import GpuReplay
from copal.gpu.sequence import HEAD_BYTES
from copal.gpu.sequence import Sequence as Kernels
from copal.gpu.staging import Slot

_WEIGHT = "weight"
_MOST = HEAD_BYTES // FLOAT_BYTES - 1
_HINT = "`--replay-device cpu` has no such limit"


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
        raise ConfigError(
            "replay_device",
            "`cpu` for an Update that does not weigh its rows",
            plan.update.name,
            _HINT,
        )
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
        updates: Most updates of one launch, up to 63.

    Attributes:
        replay: From `hold`, or from `replay_for` with the same device and plan.
    """

    replay: GpuReplay

    def __init__(self, device: GpuDevice, plan: GpuPlan, *, updates: int = 1) -> None:
        if updates > _MOST:
            raise ConfigError("updates", f"up to {_MOST} a launch", str(updates))
        super().__init__(device, plan, updates=updates)
        self._draws = device.allocate("replay draws", 4 * plan.batch_size * updates)
        self._inserted = self._drawn_number = 0

    def hold(self, capacity: int, **settings: Any) -> None:
        """Makes `replay` on the learner's device; `replay_for` tells arguments and errors."""
        self.replay = replay_for(self._device, self.plan, capacity, **settings)

    def run_drawn(
        self, count: int = 1, betas: Sequence[float] | None = None
    ) -> NDArray[np.float32]:
        """Draws a batch, updates, sets its priorities; all of that `count` times in one launch.

        Args:
            count: Updates.
            betas: Exponents of the importance weights, one an update; None: the replay's `beta`.

        Returns:
            TD errors, float32 [count, 1, B].

        Raises:
            EmptyReplayError: The replay has no row.
            LearnerFailedError: A value became NaN or infinite; the state is that before its update.
                Rows are named with the replay's ids.
            GpuError: The device failed.
        """
        self.submit_drawn(count, betas)
        return self.collect()

    def submit_drawn(self, count: int = 1, betas: Sequence[float] | None = None) -> None:
        """Starts what `run_drawn` does and does not wait for it.

        Raises:
            As `run_drawn`, also for what was submitted before.
        """
        if not 1 <= count <= self._most:
            raise ConfigError("count", f"1 to {self._most} updates", str(count))
        if not len(self.replay):
            raise EmptyReplayError("replay", "at least one row", "no row", "add rows first")
        self._finish()
        slot = self._slots[(self._number + 1) % len(self._slots)]
        given = [self.replay.beta] * count if betas is None else betas
        slot.upload[4 : 4 * (1 + count)].view(np.float32)[:] = given
        self._start(slot, count, 0, lambda k: self._enqueue_drawn(slot, k, count), "drawn")
        self._inserted, self._drawn_number = self.replay.inserted, self._number

    def _enqueue_drawn(self, slot: Slot, kernels: Kernels, count: int) -> None:
        batch, results = self._buffers.batch, self._buffers.results
        self._device.upload(Pointer(batch), slot.upload[:HEAD_BYTES])
        for k in range(count):
            drawn = self._drawn(k)
            self.replay.enqueue_sample(
                Pointer(batch, self._sequencer.batch_offset(k)),
                beta=Pointer(batch, FLOAT_BYTES * (1 + k)),
                drawn=drawn,
            )
            mine = zip(kernels.launches, kernels.owners, strict=True)
            self._device.launch([launch for launch, (update, _) in mine if update == k])
            td = Pointer(results, self._sequencer.td_offset(k))
            self.replay.enqueue_update(td, drawn=drawn)
        self._device.download(slot.download, Pointer(results))

    def _drawn(self, k: int) -> Pointer:
        """Slots that the k-th update of a launch draws."""
        return Pointer(self._draws, 4 * k * self.plan.batch_size)

    def _failure(self, launch: Submitted, k: int, phase: int) -> LearnerFailedError:
        """As the base, which looks at the batch: here it never was on the host."""
        if launch.number != self._drawn_number:
            return super()._failure(launch, k, phase)
        slots = np.empty(self.plan.batch_size, np.int32)
        self._device.download(
            launch.slot.upload[HEAD_BYTES:], Pointer(self._buffers.batch, HEAD_BYTES)
        )
        self._device.download(slots, self._drawn(k))
        self._device.mark().wait()
        self.replay.clear()
        error = super()._failure(launch, k, phase)
        return error.with_ids(self.replay.ids(slots, self._inserted).tolist())
