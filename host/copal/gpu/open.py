# SPDX-License-Identifier: MIT
"""Devices that run the kernels."""

from __future__ import annotations

from collections.abc import Callable

from copal.devices import DeviceTable
from copal.gpu import emulate, status
from copal.gpu.device import GpuDevice

_EMULATED = "emulate"
_HINT = f"`--device {_EMULATED}` runs the same kernels on the CPU, slowly"


def open_device(device: str) -> GpuDevice:
    """Opens the device called `device`.

    Args:
        device: `cuda` or `emulate`.

    Raises:
        UnknownNameError: There is no device of this name.
        BackendUnavailableError: It cannot be used here; says why and what works instead.
    """
    return TABLE.require(device)()


def _cuda() -> GpuDevice:
    from copal.gpu.cupy_device import CupyDevice

    return CupyDevice()


def _hint(device: str) -> str:
    return "" if device == _EMULATED or TABLE.unavailable(_EMULATED) else _HINT


TABLE: DeviceTable[Callable[[], GpuDevice]] = DeviceTable(
    {
        "cuda": (status.unavailable, _cuda),
        _EMULATED: (emulate.unavailable, emulate.EmulatedDevice),
    },
    _hint,
)
