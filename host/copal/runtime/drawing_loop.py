# SPDX-License-Identifier: MIT
"""The loop of learners that draw their batches on their device."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.backends.gpu_drawing import DrawingLearner
from copal.runtime.host_loop import HostLoop

ROWS = "device_rows"
"""Counter of a checkpoint: the id of the first row that was not on the device."""


class DrawingLoop(HostLoop):
    """Copies new rows to the device, lets it draw and update, and publishes weights.

    Args:
        learner: Runs the updates; attached to `replay`.
        replay: Where actors insert.
        parts: The others of `HostLoop`.
    """

    def __init__(self, learner: DrawingLearner, replay: Any, *parts: Any) -> None:
        super().__init__(learner, replay, *parts)
        self._drawing = learner

    def write_back(self) -> dict[str, int]:
        """Sets the priorities of the replay, which a checkpoint holds."""
        return {ROWS: self._drawing.write_back()}

    def _step(self) -> None:
        fed = self._feed()
        self._note(self._drawing.step_drawn(self._beta(self._updates)), fed)
        self._updates = self._drawing.updates

    def _step_ahead(self) -> None:
        """Copies rows while the update before still runs, and starts the next one."""
        fed = self._feed()
        self._note(self._drawing.submit_drawn(self._beta(self._updates)), fed)
        self._updates += 1

    def _flush(self) -> None:
        td = self._drawing.flush()
        if td is not None:
            self._mean_td = float(abs(td).mean(dtype=np.float64))

    def _feed(self) -> float:
        began = time.perf_counter()
        self._drawing.feed()
        fed = time.perf_counter()
        self._seconds["sample_s"] += fed - began
        return fed

    def _note(self, td: NDArray[np.float32] | None, fed: float) -> None:
        if td is not None:
            self._mean_td = float(abs(td).mean(dtype=np.float64))
        self._seconds["step_s"] += time.perf_counter() - fed
