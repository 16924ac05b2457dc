# SPDX-License-Identifier: MIT
"""The `gpu` backend: the whole update as CUDA kernels, on a GPU or played by the CPU."""

from __future__ import annotations

from copal.backends.base import DeviceBackend, LearnerState
from copal.backends.gpu_drawing import DrawingLearner
from copal.backends.gpu_learner import PUBLISH_INTERVAL, KernelLearner
from copal.config import DEVICES
from copal.errors import BackendUnavailableError
from copal.gpu import open as devices
from copal.gpu.learner import GpuLearner
from copal.gpu.plan import PlanOptions, plan
from copal.gpu.resident import ResidentLearner
from copal.program import Program, Update

__all__ = ["PUBLISH_INTERVAL", "GpuBackend", "KernelLearner"]


class GpuBackend(DeviceBackend):
    """Runs every Program on one GPU.

    Args:
        device: `cuda` or `emulate`; None: `cuda`.
        replay_device: `gpu`: learners draw their batches on the device; `cpu` or None: they are
            given them.

    Attributes:
        hint: What to do where it cannot be used.

    Raises:
        UnknownNameError: There is no such device.
    """

    name = "gpu"

    def __init__(self, device: str | None = None, replay_device: str | None = None) -> None:
        self._draws = replay_device == "gpu"
        super().__init__(devices.TABLE, device or DEVICES[self.name][0])
        self.hint = devices.TABLE.hint(self.device)

    def supports(self, program: Program) -> str | None:
        """None if there is a device function for every operation, else the kind that lacks one."""
        return "opaque" if program.opaque() is not None else None

    def learner(
        self, update: Update, state: LearnerState, *, batch_size: int, learners: int
    ) -> KernelLearner:
        """See `copal.backends.base.Backend`. A parallel learner is a block with its rows.

        Raises:
            GpuCompileError: The kernels do not compile.
            GpuMemoryError: The device has not enough memory.
        """
        reason = self.unavailable()
        if reason is not None:
            raise BackendUnavailableError("backend", "`gpu` usable here", reason, self.hint)
        device = devices.open_device(self.device)
        try:
            options = PlanOptions(learners=learners, shared_bytes=device.limits.shared_bytes)
            planned = plan(update, batch_size, options)
            if self._draws:
                return DrawingLearner(ResidentLearner(device, planned), state)
            return KernelLearner(GpuLearner(device, planned), state)
        except BaseException:
            device.close()
            raise
