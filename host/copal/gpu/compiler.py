# SPDX-License-Identifier: MIT
"""Compiles a translation unit with NVRTC, for any architecture and without a GPU. Kept in a cache.

COPAL_CACHE/gpu/<digest of source, architecture, options, version>/
unit.cu  unit.cubin  unit.ptx  log.txt
COPAL_CACHE/gpu/failed/<digest>.cu       a source that does not compile
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal import builds
from copal.errors import BackendUnavailableError, GpuCompileError
from copal.gpu.device import Unit

ARCHITECTURES = ("sm_80", "sm_90", "sm_120")
"""What every kernel is compiled for in the tests."""
_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
INSTALL = "pip install 'copal-rl[gpu]'"
"""What a user may lack, all of it."""


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor."""

    registers: int
    """Registers a thread."""
    spill_bytes: int
    """Stores and loads of registers that did not fit, bytes a thread."""
    stack_bytes: int
    """Local memory a thread."""
    shared_bytes: int
    """Static shared memory a block."""


@dataclass(frozen=True)
class Compiled:
    """A translation unit for one architecture."""

    cubin: Path
    """File with machine code."""
    ptx: str
    """The virtual assembly that it was made from."""
    resources: Mapping[str, Resources]
    """By kernel."""


def compile_unit(unit: Unit, architecture: str) -> Compiled:
    """Compiles a unit unless it is in the cache.

    Args:
        unit: Source and kernels.
        architecture: `sm_90` for instance.

    Raises:
        BackendUnavailableError: NVRTC is missing; says how to get it.
        GpuCompileError: The source has an error; names kernel, file kept, line and message.
        ConfigError: The cache cannot be written to, or is full.
    """
    nvrtc = _nvrtc()
    options = (f"--gpu-architecture={architecture}", *_OPTIONS)
    name = f"{unit.name}-{architecture}-{unit.digest(*options, _version(nvrtc))}"
    place = builds.cache("gpu") / name
    folder = builds.once(place, lambda work: _compile(nvrtc, unit, options, work))
    found = resources((folder / "log.txt").read_text())
    return Compiled(folder / "unit.cubin", (folder / "unit.ptx").read_text(), found)


def missing() -> str | None:
    """What keeps NVRTC from being used and how to get it; None if nothing does."""
    try:
        _nvrtc()
    except BackendUnavailableError as error:
        return f"{error.got}: {error.hint}"
    return None


def target(capability: tuple[int, int]) -> str:
    """Architecture to compile for.

    Args:
        capability: Of the GPU, (9, 0) for instance.

    Returns:
        Its own, or the newest older one that NVRTC knows and whose code it runs.

    Raises:
        BackendUnavailableError: NVRTC is missing, or knows none that the GPU runs.
    """
    nvrtc = _nvrtc()
    known = sorted(_checked(nvrtc, nvrtc.nvrtcGetSupportedArchs())[1])
    major, minor = capability
    # Machine code runs on GPUs of the same major and the same or a later minor number.
    fitting = [a for a in known if a // 10 == major and a % 10 <= minor]
    if not fitting:
        raise BackendUnavailableError(
            "backend", f"a GPU of compute capability {known[0] / 10} or later, known to NVRTC",
            f"{major}.{minor}", "install a CUDA version that knows this GPU",
        )  # fmt: skip
    return f"sm_{fitting[-1]}"


def resources(log: str) -> dict[str, Resources]:
    """Figures of every kernel from what the assembler printed."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:

        def number(pattern: str, text: str = part) -> int:
            return sum(int(n) for n in re.findall(pattern, text))

        found[part.split("'")[0]] = Resources(
            registers=number(r"Used (\d+) registers"),
            spill_bytes=number(r"(\d+) bytes spill (?:stores|loads)"),
            stack_bytes=number(r"(\d+) bytes stack frame"),
            shared_bytes=number(r"(\d+) bytes smem"),
        )
    return found


def _nvrtc() -> Any:
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise BackendUnavailableError(
            "NVRTC", "the package cuda-bindings", f"cuda-bindings is not installed ({error})",
            INSTALL,
        ) from error  # fmt: skip
    try:
        _version(nvrtc)
    # The binding looks for the library at the first call, with errors of its own.
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise BackendUnavailableError(
            "NVRTC", "the library of nvidia-cuda-nvrtc", f"NVRTC cannot be loaded ({reason})",
            INSTALL,
        ) from error  # fmt: skip
    return nvrtc


def _version(nvrtc: Any) -> str:
    _, major, minor = _checked(nvrtc, nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def _compile(nvrtc: Any, unit: Unit, options: tuple[str, ...], work: Path) -> Path:
    """Leaves source, cubin, PTX and the assembler's log in a folder in `work`."""
    made = work / "made"
    made.mkdir()
    source, file = unit.source.encode(), f"{unit.name}.cu".encode()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source, file, 0, [], []))[1]
    try:
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _text(nvrtc, program, "ProgramLog")
        if int(status):
            raise _failure(unit, options[0].split("=")[1], log)
        cubin = _bytes(nvrtc, program, "CUBIN")
        (made / "unit.cubin").write_bytes(cubin)
        (made / "unit.ptx").write_text(_text(nvrtc, program, "PTX"))
        (made / "log.txt").write_text(log)
        (made / "unit.cu").write_text(unit.source)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return made


def _failure(unit: Unit, architecture: str, log: str) -> GpuCompileError:
    kept = keep_failed(unit, unit.source)
    found = re.search(r"^\S*?\((\d+)\): (?:catastrophic )?error: (.*)$", log, re.M)
    if found is None:
        lines = [line for line in log.splitlines() if "error" in line] or log.splitlines()
        kernel = next((k for line in lines for k in unit.kernels if f"'{k}'" in line), unit.name)
        where, message = str(kept), lines[0].strip() if lines else "no message"
    else:
        line, message = int(found.group(1)), found.group(2)
        kernel, where = function_at(unit.source, line) or unit.name, f"{kept}:{line}"
    return failed(kernel, architecture, f"{where}: {message}")


def keep_failed(unit: Unit, source: str) -> Path:
    """Keeps the source of a unit that does not compile; returns its file."""
    kept = builds.writable(builds.cache("gpu") / "failed", "COPAL_CACHE") / f"{unit.digest()}.cu"
    builds.write_text(kept, source)
    return kept


def failed(kernel: str, compiler: str, message: str) -> GpuCompileError:
    """The error of a source that does not compile.

    Args:
        kernel: Function or unit with the error.
        compiler: What refused it: an architecture or a program.
        message: File, line and what the compiler says.
    """
    return GpuCompileError(
        kernel, f"source that compiles for {compiler}", message,
        "the file is the generated source; please report it with this message",
    )  # fmt: skip


def function_at(source: str, line: int) -> str | None:
    """Name of the function that a line of the source lies in, from 1; None before the first."""
    name = None
    for text in source.splitlines()[:line]:
        if re.search(r"\b(__global__|__device__|COPAL_DEVICE)\b", text.split("//")[0]):
            called = [word for word in re.findall(r"(\w+)\s*\(", text) if word[:2] != "__"]
            name = called[0] if called else name
    return name


def _checked(nvrtc: Any, result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The result of a call that must not fail."""
    if int(result[0]):
        reason = nvrtc.nvrtcGetErrorString(result[0])[1].decode()
        raise GpuCompileError("NVRTC", "a call without errors", reason)
    return result


def _bytes(nvrtc: Any, program: Any, what: str) -> bytes:
    size = _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program))[1]
    buffer = bytes(size)
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer


def _text(nvrtc: Any, program: Any, what: str) -> str:
    return _bytes(nvrtc, program, what).decode(errors="replace").strip("\0\n ") + "\n"
