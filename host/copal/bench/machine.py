# SPDX-License-Identifier: MIT
"""What a benchmark ran on: processor, cores, load, system, and versions."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

VERSIONS = ("copal-rl", "numpy", "torch", "gymnasium")
CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")


def describe() -> dict[str, Any]:
    """Describes this machine.

    Returns:
        `cpu` (model), `cores` (of the machine), `allowed_cpus` (numbers this process may use),
        `isa` (instruction set of copal's native module, or None), `memory_gib`, `load_average`
        (over 1, 5 and 15 minutes; None where the system has none), `system`, `python`.
    """
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "allowed_cpus": allowed_cpus(),
        "isa": native_isa(),
        "memory_gib": memory_gib(),
        "load_average": load_average(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def versions(names: Iterable[str] = VERSIONS) -> dict[str, str]:
    """Installed versions of the named distributions; those that are not installed are left out."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def allowed_cpus() -> list[int]:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_model() -> str:
    """The processor's name, as well as the system knows it."""
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float | None:
    """Main memory in GiB; None where it cannot be read."""
    if MEMORY_INFO.exists():
        for line in MEMORY_INFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemTotal"):
                return round(int(line.split()[1]) / 2**20, 1)
    return None


def load_average() -> list[float] | None:
    """Load over 1, 5 and 15 minutes; None where the system has none."""
    if hasattr(os, "getloadavg"):
        return [round(value, 2) for value in os.getloadavg()]
    return None


def native_isa() -> str | None:
    """Instruction set that copal's native module was built for; None if it is not built."""
    try:
        return str(importlib.import_module("copal.native").supported()[0])
    except ImportError:
        return None
