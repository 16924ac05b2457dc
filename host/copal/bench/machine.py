# SPDX-License-Identifier: MIT
"""What a benchmark ran on: the machine as every run describes it, and how busy it was."""

from __future__ import annotations

import os
from typing import Any

from copal.bench.peers.drivers import protocol
from copal.runtime import machine


def describe() -> dict[str, Any]:
    """Describes this machine.

    Returns:
        What `copal.runtime.machine.describe` tells (`cpu`, `cores`, `isa`, `memory_gib`, `system`),
        `machine_cores` (also those this process may not use) and `load_average` (over 1, 5 and
        15 minutes; None where the system has none).
    """
    described = machine.describe()
    del described["versions"]
    described["machine_cores"] = os.cpu_count()
    described["load_average"] = _load_average()
    return described


def versions() -> dict[str, str]:
    """Installed versions of what copal's own rows depend on."""
    return protocol.versions("copal-rl", "numpy", "torch", "gymnasium", "mujoco")


def _load_average() -> list[float] | None:
    if hasattr(os, "getloadavg"):
        return [round(value, 2) for value in os.getloadavg()]
    return None
