# SPDX-License-Identifier: MIT
"""The memory of a learner on the device, and its state there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import SchemaError
from copal.gpu.device import DeviceBuffer, GpuDevice, Pointer
from copal.gpu.layout import pad
from copal.gpu.plan import FLOAT_BYTES, GpuPlan
from copal.gpu.sequence import CLOCK, HEAD_BYTES, Buffers, Key, Versions

Array = NDArray[Any]
_MOMENTS = ("first", "second")


def words(plan: GpuPlan, updates: int) -> int:
    """Words that the kernels of `updates` updates and the one before the first have."""
    kernels = 3 * len(plan.phases) + len(plan.update.targets)
    return pad(kernels * updates + 1, HEAD_BYTES // FLOAT_BYTES)


def buffers(device: GpuDevice, plan: GpuPlan, updates: int) -> Buffers:
    """Memory beside the state, for `updates` updates a launch.

    Raises:
        GpuMemoryError: There is not enough.
    """
    agents = plan.agents
    largest = max(plan.layouts[p.network].padded for p in plan.phases)
    blocks = max(plan.reduce_blocks(p.network) for p in plan.phases)
    settings = len(plan.phases) + len(plan.update.targets)

    def floats(name: str, count: int) -> DeviceBuffer:
        return device.allocate(name, FLOAT_BYTES * max(count, 4))

    return Buffers(
        batch=device.allocate("batches", HEAD_BYTES + FLOAT_BYTES * batch_floats(plan, updates)),
        results=floats("TD errors", words(plan, updates) + updates * agents * plan.batch_size),
        outputs=floats("outputs", updates * agents * plan.output_floats),
        shares=floats("shares of the gradient", plan.share_floats),
        mean=floats("gradient", agents * largest),
        norms=device.allocate("norms", 8 * agents * blocks),
        workspace=floats("rows beyond shared memory", plan.workspace_floats),
        seeds=floats("seeds", 2 * agents),
        settings=floats("settings", settings * agents),
    )


def batch_floats(plan: GpuPlan, updates: int) -> int:
    """Floats of the batches of `updates` updates."""
    return updates * plan.agents * plan.batch_floats


def versions(device: GpuDevice, plan: GpuPlan) -> Versions:
    """Two copies of the state, all zeros.

    Raises:
        GpuMemoryError: There is not enough.
    """
    sizes: dict[Key, int] = {CLOCK: 8}
    for name, layout in plan.layouts.items():
        sizes["parameters", name] = FLOAT_BYTES * layout.padded * plan.agents
    for name in plan.update.trained():
        for moment in _MOMENTS:
            sizes[moment, name] = FLOAT_BYTES * plan.layouts[name].padded * plan.agents
        sizes["powers", name] = 32 * plan.agents
    pairs = {
        key: (
            device.allocate(" of ".join(filter(None, key)), size),
            device.allocate(" of ".join(filter(None, key)), size),
        )
        for key, size in sizes.items()
    }
    return Versions(pairs, dict.fromkeys(pairs, 0))


class StateIO:
    """Writes and reads the newest copy of the state, an agent at a time.

    Args:
        device: Where it is.
        plan: Its layout.
        state: The copies.
    """

    def __init__(self, device: GpuDevice, plan: GpuPlan, state: Versions) -> None:
        self._device, self._plan, self._state = device, plan, state

    def check(self, what: str, vectors: Mapping[str, Array], networks: Sequence[str]) -> None:
        """Checks vectors before any is written.

        Raises:
            SchemaError: One is missing or has the wrong size.
        """
        for name in networks:
            shape = np.shape(vectors[name]) if name in vectors else None
            size = self._plan.layouts[name].size
            if shape != (size,):
                got = "none" if shape is None else f"shape {shape}"
                raise SchemaError(f"{what}[{name!r}]", f"float32 [{size}]", got)

    def write(self, what: str, network: str, agent: int, flat: NDArray[np.float32]) -> None:
        """Puts a flat float32 vector on the device.

        Args:
            what: `parameters`, `first` or `second`.
            network: Its name.
            agent: Whose.
            flat: Values, [size].
        """
        layout = self._plan.layouts[network]
        self._upload((what, network), agent, layout.pack(flat))

    def read(self, what: str, network: str, agent: int) -> NDArray[np.float32]:
        """A flat float32 vector, [size]."""
        layout = self._plan.layouts[network]
        packed = np.empty(layout.padded, np.float32)
        at = self._at((what, network), agent * packed.nbytes)
        self._device.download(packed, at)
        self._device.mark().wait()
        return layout.unpack(packed)

    def write_powers(self, network: str, agent: int, steps: int) -> None:
        """Adam's powers of beta after `steps` steps."""
        phases = self._plan.update.phases
        adam = next(p.optimiser for p in phases if p.program.gradient == network)
        powers = np.array([adam.beta1**steps, adam.beta2**steps, 0, 0], np.float64)
        self._upload(("powers", network), agent, powers)

    def write_updates(self, updates: int) -> None:
        """The number of the next update."""
        self._upload(CLOCK, 0, np.array([updates & 0xFFFFFFFF, updates >> 32], np.uint32))

    def _upload(self, key: Key, agent: int, values: Array) -> None:
        self._device.upload(self._at(key, agent * values.nbytes), values)
        self._device.mark().wait()

    def _at(self, key: Key, offset: int) -> Pointer:
        return Pointer(self._state.pairs[key][self._state.newest[key]], offset)
