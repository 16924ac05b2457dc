# SPDX-License-Identifier: MIT
"""Whether a CUDA GPU can be used here, and precisely why not.

CuPy is never imported by asking: a process of its own does it, because a broken driver may hang or
end the process that touches it.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copal.gpu import compiler

TIMEOUT_S = 60.0
"""Longest wait for the driver: the first start of a GPU in persistence mode off takes seconds."""
SMALLEST_CAPABILITY = (8, 0)
"""The kernels copy asynchronously, which older GPUs cannot."""
_PROBE = """
import json
found = {}
try:
    import cupy
except Exception as error:
    found["import"] = f"{type(error).__name__}: {error}"
else:
    runtime = cupy.cuda.runtime
    found.update(cupy=cupy.__version__, driver=runtime.driverGetVersion(),
                 runtime=runtime.runtimeGetVersion())
    try:
        found["gpus"] = []
        for number in range(runtime.getDeviceCount()):
            have = runtime.getDeviceProperties(number)
            found["gpus"].append([have["name"].decode(), have["major"], have["minor"],
                                  have["multiProcessorCount"], have["totalGlobalMem"]])
    except Exception as error:
        found["error"] = str(error)
print("copal-gpu " + json.dumps(found))
"""


@dataclass(frozen=True)
class Gpu:
    """One visible GPU."""

    name: str
    """As the driver says it."""
    capability: tuple[int, int]
    """Compute capability."""
    multiprocessors: int
    """Streaming multiprocessors."""
    memory_bytes: int
    """Device memory, all of it."""


@dataclass(frozen=True)
class Status:
    """What was found."""

    reason: str | None
    """Why no GPU can be used and what to do; None if one can."""
    gpus: tuple[Gpu, ...] = ()
    """The visible ones."""


def unavailable() -> str | None:
    """None if a CUDA GPU can be used here, else the reason and what to do."""
    return status().reason


@functools.cache
def status() -> Status:
    """What there is; asked once a process, up to a second where CuPy is installed."""
    if importlib.util.find_spec("cupy") is None:
        return Status(f"CuPy is not installed: {compiler.INSTALL}")
    lacking = compiler.missing()
    if lacking is not None:
        return Status(lacking)
    try:
        result = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Status(
            f"the NVIDIA driver did not answer within {TIMEOUT_S:.0f} s: look at `nvidia-smi` and "
            "the kernel's log"
        )
    answer = [line for line in result.stdout.splitlines() if line.startswith("copal-gpu ")]
    if not answer:
        tail = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
        return Status(f"CuPy ended its process ({tail}): reinstall it, {compiler.INSTALL}")
    return judge(json.loads(answer[-1].removeprefix("copal-gpu ")))


def judge(found: Mapping[str, Any]) -> Status:
    """What the answer of the probe means.

    Args:
        found: `import` if CuPy could not be imported; else `cupy`, `driver` and `runtime` (CUDA
            versions as 13020), `gpus`, and `error` if the driver refused.
    """
    if "import" in found:
        why = found["import"]
        return Status(f"CuPy cannot be imported ({why}): reinstall it, {compiler.INSTALL}")
    driver, runtime = int(found["driver"]), int(found["runtime"])
    if driver == 0:
        return Status("no NVIDIA driver: install one, version 580 or later for CUDA 13")
    if driver // 1000 < runtime // 1000:
        return Status(
            f"the NVIDIA driver is too old: it has CUDA {_version(driver)}, CuPy "
            f"{found['cupy']} needs {runtime // 1000}.0: update it to version 580 or later"
        )
    gpus = tuple(
        Gpu(str(name), (int(major), int(minor)), int(count), int(size))
        for name, major, minor, count, size in found["gpus"]
    )
    if not gpus:
        return Status(_no_device(found.get("error")))
    if "error" in found:
        return Status(f"the NVIDIA driver refuses: {found['error']}: look at `nvidia-smi`")
    first = gpus[0]
    if first.capability < SMALLEST_CAPABILITY:
        have, need = (".".join(map(str, c)) for c in (first.capability, SMALLEST_CAPABILITY))
        return Status(f"{first.name} is too old: compute capability {have}, {need} is needed", gpus)
    return Status(None, gpus)


def _no_device(error: str | None) -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        hint = f"CUDA_VISIBLE_DEVICES is `{visible}`: unset it, or name a GPU of `nvidia-smi`"
    else:
        hint = "look at `nvidia-smi`; a container needs `--gpus all`"
    return f"a driver but no GPU ({error or 'none is visible'}): {hint}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
