# SPDX-License-Identifier: MIT
"""Devices by name, and the reason why one cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from copal.config import DEVICES
from copal.errors import BackendUnavailableError, UnknownNameError
from copal.gpu import emulate, status
from copal.gpu.device import GpuDevice

DEFAULT_DEVICE = DEVICES["gpu"][0]
_EMULATED = "emulate"
_HINT = f"`--device {_EMULATED}` runs the same kernels on the CPU, slowly"


def names() -> tuple[str, ...]:
    """Names of the devices."""
    return DEVICES["gpu"]


def unavailable(device: str) -> str | None:
    """None if `device` can be used here, else the reason and what to do.

    Raises:
        UnknownNameError: There is none of this name.
    """
    return _entry(device)[0]()


def hint(device: str) -> str:
    """What to do where `device` cannot be used, beside what its reason says."""
    return "" if device == _EMULATED or _entry(_EMULATED)[0]() else _HINT


def open_device(device: str) -> GpuDevice:
    """Opens the device called `device`.

    Args:
        device: `cuda` or `emulate`.

    Raises:
        UnknownNameError: There is no device of this name.
        BackendUnavailableError: It cannot be used here.
    """
    require(device)
    return _entry(device)[1]()


def check(device: str) -> None:
    """Refuses a name that no device has.

    Raises:
        UnknownNameError: There is none of this name.
    """
    _entry(device)


def require(device: str) -> None:
    """Refuses a device that cannot be used here.

    Raises:
        UnknownNameError: There is no device of this name.
        BackendUnavailableError: It cannot be used; says why and what works instead.
    """
    reason = unavailable(device)
    if reason is not None:
        raise BackendUnavailableError("device", f"`{device}` usable here", reason, hint(device))


def _entry(device: str) -> tuple[Callable[[], str | None], Callable[[], GpuDevice]]:
    if device not in _DEVICES:
        raise UnknownNameError.of("device", device, _DEVICES)
    return _DEVICES[device]


def _cuda() -> GpuDevice:
    from copal.gpu.cupy_device import CupyDevice

    return CupyDevice()


_DEVICES: Mapping[str, tuple[Callable[[], str | None], Callable[[], GpuDevice]]] = {
    "cuda": (status.unavailable, _cuda),
    _EMULATED: (emulate.unavailable, emulate.EmulatedDevice),
}
