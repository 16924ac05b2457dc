# SPDX-License-Identifier: MIT
"""What a benchmark ran on: the machine as every run describes it, and how busy it was."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from copal.runtime import machine

VERSIONS = ("copal-rl", "numpy", "torch", "gymnasium")


def describe() -> dict[str, Any]:
    """Describes this machine.

    Returns:
        What `copal.runtime.machine.describe` tells (`cpu`, `cores`, `isa`, `memory_gib`, `system`),
        `machine_cores` (also those this process may not use) and `load_average` (over 1, 5 and
        15 minutes; None where the system has none).
    """
    described = machine.describe()
    described.pop("versions", None)
    described["machine_cores"] = os.cpu_count()
    described["load_average"] = load_average()
    return described


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


def load_average() -> list[float] | None:
    """Load over 1, 5 and 15 minutes; None where the system has none."""
    if hasattr(os, "getloadavg"):
        return [round(value, 2) for value in os.getloadavg()]
    return None
