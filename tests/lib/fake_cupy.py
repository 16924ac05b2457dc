# SPDX-License-Identifier: MIT
"""CuPy's face over the PTX interpreter: a GPU without one.

Work on a stream happens late, when something waits for it, as on a GPU: a copy reads pinned memory
then and not when it is enqueued. Fresh memory holds garbage. What CUDA refuses is refused.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typing_extensions import Self

import ptx
from copal.gpu import status


class CUDARuntimeError(RuntimeError):
    """As CuPy raises it."""


class CUDADriverError(RuntimeError):
    """As CuPy raises it."""


class OutOfMemoryError(MemoryError):
    """As CuPy raises it."""


class Stream:
    """Work in order, done when somebody waits."""

    def __init__(self, fake: FakeCupy, ptr: int) -> None:
        self.fake, self.ptr = fake, ptr
        self.queue: list[Callable[[], None]] = []
        self.recording: list[Callable[[], None]] | None = None

    def __enter__(self) -> Self:
        self.fake.current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.fake.current.pop()

    def add(self, work: Callable[[], None]) -> None:
        (self.queue if self.recording is None else self.recording).append(work)

    def begin_capture(self) -> None:
        self.recording = []

    def end_capture(self) -> Graph:
        assert self.recording is not None
        graph, self.recording = Graph(self.recording), None
        return graph

    def wait_event(self, event: Event) -> None:
        self.add(event.synchronize)

    def synchronize(self) -> None:
        if self.recording is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: while a stream captures")
        while self.queue:
            self.queue.pop(0)()


class Graph:
    """Captured work."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work

    def launch(self, stream: Stream) -> None:
        for one in self.work:
            stream.add(one)


class Event:
    """A point of a stream."""

    def __init__(self, disable_timing: bool = False) -> None:
        self.timed, self.ms = not disable_timing, 0.0
        self.stream: Stream | None = None

    def record(self, stream: Stream) -> None:
        self.stream, done = stream, []

        def reached() -> None:
            self.ms = 1e3 * time.perf_counter()
            done.append(True)

        stream.add(reached)
        self._done = done

    def synchronize(self) -> None:
        assert self.stream is not None
        while not self._done:
            self.stream.queue.pop(0)()


class MemoryPointer:
    """Device memory."""

    def __init__(self, fake: FakeCupy, ptr: int, size: int, mem: Any = None) -> None:
        self.fake, self.ptr = fake, ptr
        self.mem = mem or SimpleNamespace(size=size, keep=self)

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.fake, self.ptr + offset, 0, self.mem)

    def memset_async(self, value: int, size: int, stream: Stream) -> None:
        def work() -> None:
            self.fake.bytes(self.ptr, size)[:] = value

        stream.add(work)


class RawModule:
    """Runs the PTX beside the machine code."""

    def __init__(self, path: str) -> None:
        fake = FakeCupy.newest
        fake.modules.append(path)
        self.loaded = ptx.Loaded(Path(path).with_name("unit.ptx").read_text(), fake.memory)

    def get_function(self, name: str) -> Function:
        if name not in self.loaded.names:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return Function(self.loaded, name)


class Function:
    """A kernel."""

    def __init__(self, loaded: ptx.Loaded, name: str) -> None:
        self.loaded, self.name = loaded, name
        self.max_dynamic_shared_size_bytes = 49152

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        fake = FakeCupy.newest
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        values = [v.item() for v in args]

        def work() -> None:
            fake.launched.append(self.name)
            try:
                self.loaded.launch(
                    self.name, grid, block, values, shared=shared_mem, races=fake.races
                )
            except ptx.PtxError as error:
                message = f"cudaErrorIllegalAddress: illegal memory access ({error})"
                raise CUDARuntimeError(message) from error

        fake.current[-1].add(work)


class FakeCupy:
    """Stands for the module `cupy`.

    Args:
        total: Device memory, bytes.
        races: Whether unordered uses of shared memory are faults.
    """

    newest: FakeCupy
    RawModule = RawModule

    def __init__(self, total: int = 2**28, races: bool = False) -> None:
        FakeCupy.newest = self
        self.memory = ptx.Memory()
        self.total, self.used, self.races = total, 0, races
        self.modules: list[str] = []
        self.launched: list[str] = []
        self.current: list[Stream] = []
        self.streams: dict[int, Stream] = {}
        self.arrays: list[tuple[int, Any]] = []
        self._pinned: list[tuple[int, int]] = []
        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            memcpyAsync=self._copy,
            memGetInfo=lambda: (self.total - self.used, self.total),
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            Device=self._device,
            Stream=self._Streams(self),
            Event=Event,
            alloc=self._alloc,
            alloc_pinned_memory=self._alloc_pinned,
            get_elapsed_time=self._elapsed,
        )

    class _Streams:
        def __init__(self, fake: FakeCupy) -> None:
            self.fake = fake

        def __call__(self, non_blocking: bool = False) -> Stream:
            assert non_blocking
            return self.of(1000 + len(self.fake.streams))

        def from_external(self, given: Any) -> Stream:
            version, ptr = given.__cuda_stream__()
            assert version == 0
            return self.of(ptr)

        def of(self, ptr: int) -> Stream:
            return self.fake.streams.setdefault(ptr, Stream(self.fake, ptr))

    def bytes(self, address: int, size: int) -> Any:
        """Device memory as uint8 [size]."""
        buffer = self.memory.find(address >> 40, "copy")
        start = address & ((1 << 40) - 1)
        assert start + size <= len(buffer.bytes)
        return buffer.bytes[start : start + size]

    def tensor(self, values: Any) -> Any:
        """Another library's tensor on this GPU: keeps `values` and has `__dlpack__`."""
        address = self.memory.add("tensor", values)
        return SimpleNamespace(__dlpack__=None, address=address, values=values)

    @staticmethod
    def from_dlpack(tensor: Any) -> Any:
        values = tensor.values
        return SimpleNamespace(
            flags=values.flags, nbytes=values.nbytes, data=SimpleNamespace(ptr=tensor.address)
        )

    def ndarray(self, shape: Any, dtype: Any, memptr: MemoryPointer) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes(memptr.ptr, size).view(dtype).reshape(shape)

    @staticmethod
    def _elapsed(begin: Event, end: Event) -> float:
        assert begin.timed
        assert end.timed
        return end.ms - begin.ms

    def _device(self, number: int) -> Any:
        assert number == 0

        class Device:
            attributes = {"MaxSharedMemoryPerBlockOptin": 232448, "MultiProcessorCount": 132}  # noqa: RUF012

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

            def use(self) -> None: ...

        return Device()

    def _alloc(self, size: int) -> MemoryPointer:
        if any(stream.recording is not None for stream in self.streams.values()):
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: while a stream captures")
        if self.used + size > self.total:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
        self.used += size
        garbage = np.full(max(size, 16), 0xA5, np.uint8)
        return MemoryPointer(self, self.memory.add("device memory", garbage), size)

    def _alloc_pinned(self, size: int) -> Any:
        array = np.full(size, 0xA5, np.uint8)
        self._pinned.append((array.ctypes.data, array.ctypes.data + size))
        return array

    def _copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        if kind == 3:
            self.streams[stream].add(
                lambda: self.bytes(to, size).__setitem__(slice(None), self.bytes(source, size))
            )
            return
        host, device = (source, to) if kind == 1 else (to, source)
        pinned = any(low <= host < high for low, high in self._pinned)
        here = self.streams[stream]
        if not pinned and here.recording is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: pageable memory")
        memory = np.frombuffer((ctypes.c_uint8 * size).from_address(host), np.uint8)
        if kind == 1:
            data = memory if pinned else memory.copy()
            here.add(lambda: self.bytes(device, size).__setitem__(slice(None), data))
        else:
            here.add(lambda: memory.__setitem__(slice(None), self.bytes(device, size)))
            if not pinned:
                here.synchronize()


def install(monkeypatch: pytest.MonkeyPatch, total: int, *, races: bool = False) -> FakeCupy:
    """Puts a fake in the place of CuPy, with one GPU of compute capability 9.0.

    Args:
        monkeypatch: Takes it away again.
        total: Bytes of device memory.
        races: Whether shared memory is watched.
    """
    fake = FakeCupy(total, races)
    found = status.Status(None, (status.Gpu("Test GPU", (9, 0), 132, total),))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(status, "status", lambda: found)
    return fake
