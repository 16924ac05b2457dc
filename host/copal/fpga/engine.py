# SPDX-License-Identifier: MIT
"""Opens an engine for an Update: sized for it if simulated, checked if it is a board's."""

from __future__ import annotations

from dataclasses import asdict, replace

from copal.errors import ConfigError
from copal.fpga.compiler import compile_update, smallest_depths
from copal.fpga.config import Depths, EngineConfig, array_size
from copal.fpga.driver import EngineDriver
from copal.fpga.open import open_device
from copal.program import Update

DEFAULT_LANES = 64
DEFAULT_CLOCK_MHZ = 100.0
COMMON = Depths(
    code=512, vector=2048, a=8192, b=8192, parameters=4096, bias=128, mask=8192, range=255
)
"""Memories of every simulated engine, so that most networks share one build of the simulator."""


def open_engine(
    device: str,
    update: Update,
    *,
    batch_size: int,
    lanes: int | None = None,
    clock_mhz: float | None = None,
) -> EngineDriver:
    """Opens a device, checks and tests it, and compiles an Update for it.

    Args:
        device: `sim`, `model` or `pynq`.
        update: What to run.
        batch_size: Rows of a batch.
        lanes: Multipliers; None: 64, or what the board has.
        clock_mhz: Clock for reports; None: 100, or the board's.

    Raises:
        BackendUnavailableError: The device cannot be used here.
        ProgramError: The engine lacks an operation.
        ConfigError: The Update does not fit the engine; says what is too small, and by how much.
        FpgaError: The device is no engine, or computes wrongly.
    """
    config = sized(update, batch_size, lanes) if device != "pynq" else EngineConfig()
    opened = open_device(device, config)
    try:
        if lanes not in (None, opened.config.lanes):
            got = f"{opened.config.lanes} on the board"
            raise ConfigError("lanes", str(lanes), got, "leave --lanes out")
        plan = compile_update(update, opened.config, batch_size)
        clock = clock_mhz or getattr(opened, "clock_mhz", None) or DEFAULT_CLOCK_MHZ
        return EngineDriver(opened, plan, clock_mhz=clock)
    except BaseException:
        opened.close()
        raise


def sized(update: Update, batch_size: int, lanes: int | None = None) -> EngineConfig:
    """The smallest engine of so many lanes on which an Update fits, but no smaller than `COMMON`.

    Raises:
        ProgramError: The engine lacks an operation.
        ConfigError: There is none.
    """
    p = array_size(lanes or DEFAULT_LANES)
    config = EngineConfig(array_size=p, vector_lanes=p // 2, adam_lanes=p // 2)
    needed, common = asdict(smallest_depths(update, config, batch_size)), asdict(COMMON)
    words = {name: max(n, common[name]) for name, n in needed.items()}
    return replace(config, depths=Depths(**words))
