# SPDX-License-Identifier: MIT
"""Runs updates under AddressSanitizer, which has to be loaded before Python: a process of its own.

    python gpu_sanitized.py jobs.npz [fault]

`jobs.npz` holds an Update as JSON and its parameters and batches for each job. With `fault`, a
kernel writes one number behind its share of the gradient.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
from gpu_cases import bits, start

from copal.gpu.device import Unit
from copal.gpu.emulate import EmulatedDevice
from copal.program import Update

FLAGS = ("-fsanitize=address", "-O0", "-fno-omit-frame-pointer")


class Sanitized(EmulatedDevice):
    """A device whose kernels are checked, with threads in a random order.

    Args:
        fault: Whether the last block writes one number behind its share.
    """

    def __init__(self, fault: bool) -> None:
        super().__init__(seed=3, flags=FLAGS)
        self._fault = fault

    def load(self, unit: Unit) -> None:
        share = re.search(r"float\* const share = .*\* (\d+);", unit.source)
        assert share is not None
        if self._fault:
            write = f"if (blockIdx.x + 1 == gridDim.x) share[{share[1]}] = 0.f;"
            unit = replace(unit, source=unit.source.replace(share[0], share[0] + write, 1))
        super().load(unit)


def main(path: str, fault: bool) -> None:
    """Runs every job and prints that it did."""
    jobs = np.load(path)
    for job in range(int(jobs["jobs"])):
        update = Update.from_json(str(jobs[f"{job}/update"]))
        vectors = {n: jobs[f"{job}/parameters/{n}"] for n in update.networks()}
        head = f"{job}/batch/"
        batch = {n.removeprefix(head): jobs[n] for n in jobs.files if n.startswith(head)}
        rows = len(batch["obs"])
        learner = start(
            update, vectors, rows, device=Sanitized(fault), updates=2, shared_bytes=4096
        )
        learner.run([[batch], [batch]])
        assert bits(learner)
        learner.close()
        print(update.name, "ran")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["fault"])
