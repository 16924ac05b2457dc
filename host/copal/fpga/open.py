# SPDX-License-Identifier: MIT
"""Devices by name, and the reason why one cannot be used."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from copal.config import DEVICES
from copal.errors import BackendUnavailableError, UnknownNameError
from copal.fpga import tools
from copal.fpga.config import EngineConfig
from copal.fpga.device import FpgaDevice


def names() -> tuple[str, ...]:
    """Names of the devices."""
    return DEVICES["fpga"]


def unavailable(device: str) -> str | None:
    """None if `device` can be used here, else the reason and what to do.

    Raises:
        UnknownNameError: There is none of this name.
    """
    return _entry(device)[0]()


def open_device(device: str, config: EngineConfig) -> FpgaDevice:
    """Opens the device called `device`.

    Args:
        device: `sim`, `model` or `pynq`.
        config: The engine to simulate; a board has its own one.

    Raises:
        UnknownNameError: There is no device of this name.
        BackendUnavailableError: It cannot be used here.
        FpgaError: What is there is no engine for this version of copal.
    """
    reason = unavailable(device)
    if reason is not None:
        raise BackendUnavailableError("device", f"`{device}` usable here", reason)
    return _entry(device)[1](config)


def _entry(
    device: str,
) -> tuple[Callable[[], str | None], Callable[[EngineConfig], FpgaDevice]]:
    if device not in _DEVICES:
        raise UnknownNameError.of("device", device, _DEVICES)
    return _DEVICES[device]


def _sim_reason() -> str | None:
    return tools.missing(tools.SIMULATOR_MODULES, tools.SIMULATOR_PROGRAMS)


def _sim(config: EngineConfig) -> FpgaDevice:
    from copal.fpga import build
    from copal.fpga.sim_device import SimDevice

    if not build.place(config).exists():
        tools.announce(
            f"building the simulator of an engine of {config.lanes} lanes, once: "
            "a minute, more on a busy machine"
        )
        began = time.perf_counter()
        build.build(config)
        print(f"built in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return SimDevice(config)


def _model_reason() -> str | None:
    return None


def _model(config: EngineConfig) -> FpgaDevice:
    from copal.fpga.model_device import ModelDevice

    return ModelDevice(config)


def _pynq_reason() -> str | None:
    from copal.fpga import pynq_device

    return pynq_device.unavailable()


def _pynq(config: EngineConfig) -> FpgaDevice:  # noqa: ARG001 - a board has its own
    from copal.fpga import pynq_device

    return pynq_device.PynqDevice(pynq_device.bitstream())


_DEVICES: Mapping[str, tuple[Callable[[], str | None], Callable[[EngineConfig], FpgaDevice]]] = {
    "sim": (_sim_reason, _sim),
    "model": (_model_reason, _model),
    "pynq": (_pynq_reason, _pynq),
}
