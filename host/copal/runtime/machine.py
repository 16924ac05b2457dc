# SPDX-License-Identifier: MIT
"""What a result was measured on: processor, memory, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import copal

PACKAGES = ("numpy", "torch", "gymnasium", "envpool", "box2d", "nanobind")


def describe() -> dict[str, Any]:
    """Processor, usable cores, instruction set, memory and versions, as JSON values."""
    return {
        "cpu": _cpu_model(),
        "cores": len(allowed_cpus()),
        "isa": _isa(),
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Versions of copal, Python and the packages that matter, those that are installed."""
    found = {"copal": copal.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    """Name of the processor, or its architecture where the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def allowed_cpus() -> list[int]:
    """Processors that this process may run on, as the system counts them."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _isa() -> str:
    try:
        from copal.native import native
    except ImportError:
        return "not built"
    return str(native.isa)


def memory_gib() -> float | None:
    """Memory of the machine in GiB; None where the system does not tell."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
