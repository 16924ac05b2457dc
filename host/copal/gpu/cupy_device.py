# SPDX-License-Identifier: MIT
"""A CUDA GPU through CuPy, which is imported when the device is opened.

Everything goes to one stream. Kernels come from machine code that `copal.gpu.compiler` made; a
captured graph holds kernels and copies alone, never an allocation.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from copal.errors import BackendUnavailableError, GpuError, GpuMemoryError
from copal.gpu import compiler, status
from copal.gpu.device import (
    MEMORY_HINT,
    Argument,
    DeviceBuffer,
    GpuLimits,
    Launch,
    Pointer,
    Unit,
    size,
)

_CHECK_HINT = "`compute-sanitizer python -m copal.bench.gpu_check` finds the access that failed"


class CupyEvent:
    """A point on the stream.

    Args:
        event: CuPy's, recorded.
        errors: Context that makes CuPy's errors ours.
    """

    def __init__(self, event: Any, errors: Callable[[], Any]) -> None:
        self._event, self._errors = event, errors

    def wait(self) -> None:
        """Returns once everything enqueued before has been done.

        Raises:
            GpuError: A kernel failed.
        """
        with self._errors():
            self._event.synchronize()


class CupyGraph:
    """A captured graph.

    Args:
        graph: CuPy's.
        stream: What it is launched on.
        errors: Context that makes CuPy's errors ours.
    """

    def __init__(self, graph: Any, stream: Any, errors: Callable[[], Any]) -> None:
        self._graph, self._stream, self._errors = graph, stream, errors

    def replay(self) -> None:
        """Enqueues all of it.

        Raises:
            GpuError: The device refuses.
        """
        with self._errors():
            self._graph.launch(self._stream)


class CupyDevice:
    """One GPU.

    Args:
        number: Which one of those that are visible.
        stream: Address of the CUDA stream to work on, PyTorch's current one for instance
            (`torch.cuda.current_stream().cuda_stream`); None: one of its own.

    Raises:
        BackendUnavailableError: It cannot be used; says why and what to do.
    """

    name = "cuda"

    def __init__(self, number: int = 0, stream: int | None = None) -> None:
        found = status.status()
        if found.reason is not None:
            raise BackendUnavailableError(
                "device", "a CUDA GPU", found.reason, "`--device emulate` needs none, and is slow"
            )
        if not 0 <= number < len(found.gpus):
            raise BackendUnavailableError("device", f"0 to {len(found.gpus) - 1}", str(number))
        self._cupy = importlib.import_module("cupy")
        self._functions: dict[str, Any] = {}
        self._modules: list[Any] = []
        self._memory: dict[int, Any] = {}
        self._pinned: list[Any] = []
        self._foreign: list[Any] = []
        self._closed = False
        with self._errors():
            self._device = self._cupy.cuda.Device(number)
            self._device.use()
            self._stream = self._open(stream)
            has = self._device.attributes
        self.limits = GpuLimits(
            shared_bytes=int(has["MaxSharedMemoryPerBlockOptin"]),
            multiprocessors=int(has["MultiProcessorCount"]),
            architecture=compiler.target(found.gpus[number].capability),
        )

    def load(self, unit: Unit) -> None:
        """Compiles a unit, or takes it from the cache, and makes its kernels known.

        Raises:
            BackendUnavailableError: NVRTC is missing.
            GpuCompileError: It does not compile; names the kernel, the file kept and its line.
            GpuError: The driver refuses the machine code.
        """
        compiled = compiler.compile_unit(unit, self.limits.architecture)
        with self._errors(), self._device:
            module = self._cupy.RawModule(path=str(compiled.cubin))
            self._modules.append(module)
            for name in unit.kernels:
                function = module.get_function(name)
                free = self.limits.shared_bytes - compiled.resources[name].shared_bytes
                function.max_dynamic_shared_size_bytes = free
                self._functions[name] = function

    def allocate(self, name: str, nbytes: int) -> DeviceBuffer:
        """Memory of the device, all zeros.

        Raises:
            GpuMemoryError: There is not enough; says how much was asked for and what is free.
        """
        with self._errors(), self._device:
            try:
                memory = self._cupy.cuda.alloc(max(nbytes, 1))
            except MemoryError as error:
                free, total = self._cupy.cuda.runtime.memGetInfo()
                raise GpuMemoryError(
                    name, f"{size(nbytes)} of device memory", f"{size(free)} free of "
                    f"{size(total)}, {size(self._held())} held by this learner", MEMORY_HINT,
                ) from error  # fmt: skip
            memory.memset_async(0, nbytes, self._stream)
        self._memory[int(memory.ptr)] = memory
        return DeviceBuffer(name, int(memory.ptr), nbytes)

    def pinned(self, nbytes: int) -> NDArray[Any]:
        """Memory of the host that copies overlap with kernels from, uint8 [nbytes], zeros.

        Raises:
            GpuMemoryError: There is not enough.
        """
        with self._errors(), self._device:
            try:
                memory = self._cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
            except MemoryError as error:
                raise GpuMemoryError(
                    "pinned memory", f"{size(nbytes)} of host memory that is not swapped", "less",
                    "raise `ulimit -l`, or lower `batch_size`",
                ) from error  # fmt: skip
        self._pinned.append(memory)
        array: NDArray[Any] = np.frombuffer(memory, np.uint8, nbytes)
        array[:] = 0
        return array

    def upload(self, target: Pointer, source: NDArray[Any]) -> None:
        """Enqueues a copy to the device; `source` is contiguous.

        Raises:
            GpuError: It does not fit.
        """
        self._copy(_place(target, source.nbytes), _host(source), source.nbytes, "HostToDevice")

    def download(self, target: NDArray[Any], source: Pointer) -> None:
        """Enqueues a copy from the device; `target` is contiguous and holds it after a wait.

        Raises:
            GpuError: It does not fit.
        """
        self._copy(_host(target), _place(source, target.nbytes), target.nbytes, "DeviceToHost")

    def launch(self, launches: Sequence[Launch]) -> None:
        """Enqueues kernels.

        Raises:
            GpuError: A kernel is unknown, or the device refuses its size.
        """
        with self._errors(), self._stream:
            for one in launches:
                function = self._functions.get(one.kernel)
                if function is None:
                    known = ", ".join(self._functions) or "none"
                    raise GpuError(one.kernel, f"a kernel that is loaded ({known})", "another")
                given = tuple(_argument(a) for a in one.arguments)
                shape = (*one.grid, 1)
                function(shape, (one.threads, 1, 1), given, shared_mem=one.shared_bytes)

    def capture(self, record: Callable[[], None]) -> CupyGraph:
        """A graph of what `record` enqueues; nothing of it runs yet.

        Raises:
            GpuError: Something in it cannot be captured.
        """
        with self._errors(), self._stream:
            self._stream.begin_capture()
            try:
                record()
            except BaseException:
                self._give_up()
                raise
            graph = self._stream.end_capture()
        return CupyGraph(graph, self._stream, self._errors)

    def mark(self) -> CupyEvent:
        """The point behind everything enqueued so far."""
        with self._errors(), self._device:
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(self._stream)
        return CupyEvent(event, self._errors)

    def time_us(self, work: Callable[[], None]) -> float:
        """Microseconds on the GPU from what is enqueued before `work` to the end of what it does.

        Raises:
            GpuError: A kernel failed.
        """
        with self._errors(), self._device:
            begin, end = (self._cupy.cuda.Event() for _ in range(2))
            begin.record(self._stream)
            work()
            end.record(self._stream)
            end.synchronize()
            return float(self._cupy.cuda.get_elapsed_time(begin, end)) * 1e3

    def view(self, place: Pointer, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Device memory as a CuPy array, for `torch.from_dlpack` and the like; nothing is copied.

        It is valid while the device is open, and what it holds changes with the next update.
        """
        kind = np.dtype(dtype)
        _place(place, int(np.prod(shape)) * kind.itemsize)
        memory = self._memory[place.buffer.address] + place.offset
        return self._cupy.ndarray(shape, kind, memory)

    def accept(self, target: Pointer, tensor: Any, stream: int | None = None) -> None:
        """Enqueues a copy of another library's tensor on this GPU.

        Args:
            target: Where to.
            tensor: Contiguous, with `__dlpack__`.
            stream: Address of the stream that computes it; None: this device's own.

        Raises:
            GpuError: It does not fit, is not contiguous, or lies elsewhere.
        """
        with self._errors(), self._stream:
            # The consumer orders itself behind the producer: some libraries do not wait.
            if stream is not None:
                event = self._cupy.cuda.Event(disable_timing=True)
                event.record(self._open(stream))
                self._stream.wait_event(event)
            array = self._cupy.from_dlpack(tensor)
            if not array.flags.c_contiguous:
                raise GpuError(target.buffer.name, "a contiguous tensor", "one with strides")
            # Kept, because its memory must live until the copy is done.
            self._foreign = [*self._foreign[-1:], array]
            place = _place(target, array.nbytes)
        self._copy(place, int(array.data.ptr), array.nbytes, "DeviceToDevice")

    def close(self) -> None:
        """Frees buffers and the device. More calls are harmless."""
        if self._closed:
            return
        self._closed = True
        # What failed has been reported where it happened.
        with suppress(self._cupy.cuda.runtime.CUDARuntimeError):
            self._stream.synchronize()
        for kept in (self._functions, self._modules, self._memory, self._pinned, self._foreign):
            kept.clear()

    def _open(self, stream: int | None) -> Any:
        cuda = self._cupy.cuda
        if stream is None:
            return cuda.Stream(non_blocking=True)
        if hasattr(cuda.Stream, "from_external"):
            return cuda.Stream.from_external(_Foreign(stream))
        return cuda.ExternalStream(stream)

    def _copy(self, to: int, source: int, nbytes: int, kind: str) -> None:
        runtime = self._cupy.cuda.runtime
        with self._errors(), self._device:
            direction = getattr(runtime, f"memcpy{kind}")
            runtime.memcpyAsync(to, source, nbytes, direction, self._stream.ptr)

    def _give_up(self) -> None:
        """Ends a capture that failed; what it says about that is of no interest."""
        with suppress(self._cupy.cuda.runtime.CUDARuntimeError):
            self._stream.end_capture()

    def _held(self) -> int:
        return sum(int(memory.mem.size) for memory in self._memory.values())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns errors of CUDA and of the driver into GpuError."""
        cuda = self._cupy.cuda
        try:
            yield
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            text = str(error)
            hint = _CHECK_HINT if "llegal" in text or "aligned" in text else "look at `nvidia-smi`"
            raise GpuError("device", "a GPU that does as it is told", text, hint) from error


class _Foreign:
    """Another library's stream, in the protocol by which libraries pass them."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def _place(pointer: Pointer, nbytes: int) -> int:
    """Address of a part of a buffer that holds `nbytes`."""
    buffer = pointer.buffer
    if pointer.offset < 0 or pointer.offset + nbytes > buffer.nbytes:
        raise GpuError(
            buffer.name, f"at most {buffer.nbytes} bytes",
            f"{nbytes} bytes at byte {pointer.offset}",
        )  # fmt: skip
    return buffer.address + pointer.offset


def _argument(value: Argument) -> np.uint64 | np.int32:
    """With the size that the kernel's parameter has: CuPy passes a bare int as 64 bits."""
    if isinstance(value, Pointer):
        return np.uint64(value.buffer.address + value.offset)
    return np.int32(value)


def _host(array: NDArray[Any]) -> int:
    if not array.flags.c_contiguous:
        raise GpuError("copy", "a contiguous array", f"strides {array.strides}")
    return int(array.ctypes.data)
