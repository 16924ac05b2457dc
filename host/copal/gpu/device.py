# SPDX-License-Identifier: MIT
"""What the learner asks of a GPU: memory, copies, kernels, graphs of them.

Everything that is enqueued runs in order, one after another, as on one CUDA stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

MEMORY_HINT = (
    "lower `batch_size`, `learners` or the width of the networks, or keep the replay in host memory"
)
"""What takes less memory of a device."""


def size(nbytes: int) -> str:
    """Bytes for a message."""
    return f"{nbytes / 2**20:,.1f} MiB"


@dataclass(frozen=True)
class Unit:
    """A CUDA translation unit without includes, and the kernels in it."""

    name: str
    """For messages and file names, letters, digits and `-`."""
    source: str
    """CUDA C++."""
    kernels: tuple[str, ...]
    """Names of the `extern "C" __global__` functions."""

    def digest(self, *settings: str) -> str:
        """Names a build of it.

        Args:
            settings: What else the build depends on.
        """
        text = "\0".join((self.source, *self.kernels, *settings))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class GpuLimits:
    """What a plan may count on."""

    shared_bytes: int
    """Dynamic shared memory that a block may ask for."""
    multiprocessors: int
    """Blocks that run at the same time, one each."""
    architecture: str
    """`sm_90` for instance; `cpu` of the emulation."""


@dataclass(frozen=True, eq=False)
class DeviceBuffer:
    """Memory of the device; freed by `GpuDevice.close`."""

    name: str
    """What it holds, for messages."""
    address: int
    """Of its first byte, a multiple of 256."""
    nbytes: int
    """Size."""


@dataclass(frozen=True)
class Pointer:
    """A place in a buffer, as an argument of a kernel."""

    buffer: DeviceBuffer
    """Where."""
    offset: int = 0
    """Bytes behind its start."""


Argument = Pointer | int
"""Of a kernel: a pointer, or a signed integer of 32 bits."""


@dataclass(frozen=True)
class Launch:
    """One kernel with everything that it is started with."""

    kernel: str
    """One of `Unit.kernels`."""
    grid: tuple[int, int]
    """Blocks in x and y."""
    threads: int
    """Threads a block, a multiple of 32."""
    shared_bytes: int
    """Dynamic shared memory of a block."""
    arguments: tuple[Argument, ...]
    """In the order of the kernel's parameters."""


class GpuEvent(Protocol):
    """A point in the order of what is enqueued."""

    def wait(self) -> None:
        """Returns once everything enqueued before has been done.

        Raises:
            GpuError: A kernel failed.
        """


class GpuGraph(Protocol):
    """Captured work that starts with one call."""

    def replay(self) -> None:
        """Enqueues all of it."""


class GpuDevice(Protocol):
    """A GPU or its emulation. Not for several threads at once."""

    @property
    def name(self) -> str:
        """`cuda` or `emulate`."""

    @property
    def limits(self) -> GpuLimits:
        """What a plan may count on."""

    def load(self, unit: Unit) -> None:
        """Compiles a unit, or takes it from the cache, and makes its kernels known.

        Raises:
            BackendUnavailableError: There is no compiler.
            GpuCompileError: It does not compile; names the kernel, the file kept and its line.
        """

    def allocate(self, name: str, nbytes: int) -> DeviceBuffer:
        """Memory of the device, all zeros.

        Raises:
            GpuMemoryError: There is not enough; says how much was asked for and what is free.
        """

    def pinned(self, nbytes: int) -> NDArray[Any]:
        """Memory of the host that copies overlap with kernels from, uint8 [nbytes], zeros."""

    def upload(self, target: Pointer, source: NDArray[Any]) -> None:
        """Enqueues a copy to the device.

        Args:
            target: Where to.
            source: Contiguous; from `pinned` it must not change before the copy is done.

        Raises:
            GpuError: It does not fit.
        """

    def download(self, target: NDArray[Any], source: Pointer) -> None:
        """Enqueues a copy from the device; `target` is contiguous and holds it after a wait.

        Raises:
            GpuError: It does not fit.
        """

    def launch(self, launches: Sequence[Launch]) -> None:
        """Enqueues kernels.

        Raises:
            GpuError: A kernel is unknown, or the device refuses its size.
        """

    def capture(self, record: Callable[[], None]) -> GpuGraph:
        """A graph of what `record` enqueues; nothing of it runs yet.

        Args:
            record: Calls `upload`, `download` (pinned memory alone) and `launch`.
        """

    def mark(self) -> GpuEvent:
        """The point behind everything enqueued so far."""

    def close(self) -> None:
        """Frees buffers and the device. More calls are harmless."""
