# SPDX-License-Identifier: MIT
"""A GPU played by the CPU: the same kernels, compiled by g++, threads as fibers. Slow."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal import builds
from copal.errors import BackendUnavailableError, GpuCompileError, GpuError, GpuMemoryError
from copal.gpu.compiler import failed, function_at, keep_failed
from copal.gpu.device import (
    MEMORY_HINT,
    DeviceBuffer,
    GpuLimits,
    Launch,
    Pointer,
    Unit,
    size,
)

COMPILER = "g++"
FLAGS = (
    "-std=c++20", "-O2", "-march=native", "-fno-math-errno", "-fno-strict-aliasing",
    "-fvisibility=hidden", "-fPIC", "-shared", "-w",
)  # fmt: skip
ALIGNMENT = 256
SHARED_BYTES = 227 * 1024
"""Of an H100."""
_SOURCE, _LIBRARY = "unit.cpp", "unit.so"


def unavailable() -> str | None:
    """None if kernels can be compiled here, else the reason and what to do."""
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} not found: apt-get install {COMPILER}"
    return None


class EmulatedDevice:
    """The kernels on one CPU core.

    Args:
        seed: 0: threads take turns in order; another number shuffles them.
        flags: Of the compiler beside `FLAGS`, for a sanitizer for instance.
    """

    name = "emulate"

    def __init__(self, seed: int = 0, flags: Sequence[str] = ()) -> None:
        self._seed, self._flags = seed, tuple(flags)
        self._buffers: list[DeviceBuffer] = []
        self._functions: dict[str, Any] = {}
        self._recording: list[Callable[[], None]] | None = None
        libc = ctypes.CDLL(None)
        # Not NumPy's memory: a sanitizer has to know where a buffer ends.
        self._take, self._free = libc.posix_memalign, libc.free
        self._take.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2]
        self._free.restype, self._free.argtypes = None, [ctypes.c_void_p]

    @property
    def limits(self) -> GpuLimits:
        """Those of an H100, with one block at a time."""
        return GpuLimits(SHARED_BYTES, 1, "cpu")

    def load(self, unit: Unit) -> None:
        """Compiles a unit, or takes it from the cache.

        Raises:
            BackendUnavailableError: There is no compiler.
            GpuCompileError: It does not compile; names kernel, file kept, line and message.
            ConfigError: The cache cannot be written to, or is full.
        """
        reason = unavailable()
        if reason is not None:
            raise BackendUnavailableError("device", "a C++ compiler for `emulate`", reason)
        library = ctypes.CDLL(str(build(unit, self._flags)))
        for name in unit.kernels:
            function = getattr(library, f"{name}__cpu")
            function.restype = ctypes.c_char_p
            self._functions[name] = function

    def allocate(self, name: str, nbytes: int) -> DeviceBuffer:
        """Memory, all zeros.

        Raises:
            GpuMemoryError: There is not enough; says how much was asked for and what is free.
        """
        place, free = ctypes.c_void_p(), _free_bytes()
        # Linux promises more than it has, and kills who uses it.
        failed = nbytes > free or self._take(ctypes.byref(place), ALIGNMENT, max(nbytes, 1))
        address = place.value
        if failed or address is None:
            held = sum(buffer.nbytes for buffer in self._buffers)
            raise GpuMemoryError(
                name, f"{size(nbytes)} of memory",
                f"{size(free)} free, {size(held)} held by this learner", MEMORY_HINT,
            )  # fmt: skip
        ctypes.memset(address, 0, nbytes)
        buffer = DeviceBuffer(name, address, nbytes)
        self._buffers.append(buffer)
        return buffer

    def pinned(self, nbytes: int) -> NDArray[Any]:
        """Plain memory, uint8 [nbytes], zeros."""
        return np.zeros(nbytes, np.uint8)

    def upload(self, target: Pointer, source: NDArray[Any]) -> None:
        """Copies to a buffer.

        Raises:
            GpuError: It does not fit.
        """
        _check(target, source)
        self._do(lambda: ctypes.memmove(_address(target), source.ctypes.data, source.nbytes))

    def download(self, target: NDArray[Any], source: Pointer) -> None:
        """Copies from a buffer.

        Raises:
            GpuError: It does not fit.
        """
        _check(source, target)
        self._do(lambda: ctypes.memmove(target.ctypes.data, _address(source), target.nbytes))

    def launch(self, launches: Sequence[Launch]) -> None:
        """Runs kernels.

        Raises:
            GpuError: A kernel is unknown, its block is too large, or it met what would hang a GPU.
        """
        for launch in launches:
            self._launch(launch)

    def _launch(self, launch: Launch) -> None:
        if launch.kernel not in self._functions:
            raise GpuError(launch.kernel, f"one of {', '.join(self._functions)}", "no such kernel")
        if launch.shared_bytes > SHARED_BYTES:
            raise GpuError(
                launch.kernel, f"at most {SHARED_BYTES} bytes of shared memory",
                str(launch.shared_bytes),
            )  # fmt: skip
        function = self._functions[launch.kernel]
        held = [
            ctypes.c_void_p(_address(a)) if isinstance(a, Pointer) else ctypes.c_int(a)
            for a in launch.arguments
        ]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(a) for a in held))
        grid = [ctypes.c_uint(n) for n in (*launch.grid, launch.threads)]
        rest = (ctypes.c_size_t(launch.shared_bytes), ctypes.c_uint(self._seed), pointers)

        def call() -> None:
            assert held
            error = function(*grid, *rest)
            if error:
                raise GpuError(launch.kernel, "a run to the end", error.decode())

        self._do(call)

    def _do(self, call: Callable[[], object]) -> None:
        if self._recording is None:
            call()
        else:
            self._recording.append(lambda: (call(), None)[1])

    def capture(self, record: Callable[[], None]) -> _Graph:
        """A list of calls."""
        self._recording = []
        try:
            record()
            return _Graph(self._recording)
        finally:
            self._recording = None

    def mark(self) -> _Done:
        """Everything has been done already."""
        return _Done()

    def close(self) -> None:
        """Frees the buffers."""
        for buffer in self._buffers:
            self._free(buffer.address)
        self._buffers.clear()


class _Graph:
    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self._calls = calls

    def replay(self) -> None:
        """Makes all calls."""
        for call in self._calls:
            call()


class _Done:
    def wait(self) -> None:
        """Returns at once."""


def build(unit: Unit, flags: Sequence[str] = ()) -> Path:
    """The shared library of a unit, compiled unless it is in the cache.

    Raises:
        GpuCompileError: It does not compile.
        ConfigError: The cache cannot be written to, or is full.
    """
    shim = builds.root("kernels", "base.cuh") / "kernels" / "cpu"
    headers = "\0".join(path.read_text() for path in sorted(shim.glob("*.h")))
    all_flags = (*FLAGS, *flags)
    key = unit.digest(headers, builds.processor(), *all_flags)
    library = builds.cache("gpu") / "emulate" / f"{unit.name}-{key}.so"
    return builds.once(library, lambda work: _compile(unit, work, shim, all_flags))


def _compile(unit: Unit, work: Path, shim: Path, flags: Sequence[str]) -> Path:
    """Leaves the library in `work`."""
    exports = "\n".join(f"COPAL_EXPORT({name})" for name in unit.kernels)
    # The lines that the compiler counts are those of the unit's source.
    source = f"{unit.source}\n{exports}\n"
    (work / _SOURCE).write_text(source)
    command = [COMPILER, *flags, f"-I{shim}", "-include", "cuda_cpu.h", "-o", _LIBRARY, _SOURCE]
    # What it writes meanwhile goes where there is room for the result.
    result = builds.run(command, work, environment={**os.environ, "TMPDIR": str(work)})
    if result.returncode:
        raise _failure(unit, source, result.returncode, result.stdout)
    return work / _LIBRARY


def _failure(unit: Unit, source: str, status: int, log: str) -> GpuCompileError:
    kept = keep_failed(unit, source)
    found = re.search(rf"^{_SOURCE}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", log, re.M)
    if found is None:
        tail = "\n".join(log.splitlines()[-20:])
        return failed(unit.name, COMPILER, f"{kept}: exit status {status}\n{tail}")
    line = int(found.group(1))
    kernel = function_at(source, line) or unit.name
    return failed(kernel, COMPILER, f"{kept}:{line}: {found.group(2)}")


def _free_bytes() -> int:
    """Bytes that can be taken without swapping; where Linux does not tell, all that there are."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable:"))


def _address(pointer: Pointer) -> int:
    return pointer.buffer.address + pointer.offset


def _check(pointer: Pointer, array: NDArray[Any]) -> None:
    left = pointer.buffer.nbytes - pointer.offset
    if not 0 <= array.nbytes <= left or pointer.offset < 0:
        raise GpuError(pointer.buffer.name, f"at most {left} bytes", str(array.nbytes))
    if not array.flags.c_contiguous:
        raise GpuError(pointer.buffer.name, "a contiguous array", "one with gaps")
