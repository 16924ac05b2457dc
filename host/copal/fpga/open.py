# SPDX-License-Identifier: MIT
"""Devices that hold an engine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from copal.devices import DeviceTable
from copal.fpga import tools
from copal.fpga.config import EngineConfig
from copal.fpga.device import FpgaDevice


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
    return TABLE.require(device)(config)


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


TABLE: DeviceTable[Callable[[EngineConfig], FpgaDevice]] = DeviceTable(
    {
        "sim": (_sim_reason, _sim),
        "model": (_model_reason, _model),
        "pynq": (_pynq_reason, _pynq),
    }
)
