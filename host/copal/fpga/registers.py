# SPDX-License-Identifier: MIT
"""The engine's registers: what it is, how it is built, how it fares."""

from __future__ import annotations

from dataclasses import fields
from typing import Protocol

from copal.errors import ConfigError, FpgaError
from copal.fpga import config
from copal.fpga.config import Depths, EngineConfig

ID, ABI, SIZES, FEATURES, DEPTHS = 0x00, 0x04, 0x08, 0x0C, 0x10
BUILD, CONTROL, STATUS, CYCLES = 0x30, 0x40, 0x44, 0x48

#: ABIs that this driver speaks. A list: a newer one is not a superset of an older one.
SUPPORTED_ABIS = (1,)


class Registers(Protocol):
    """Anything that has the engine's registers."""

    def read32(self, offset: int) -> int:
        """The register at byte `offset`."""


def check_id(device: Registers) -> None:
    """Reads ID and ABI, before anything is written.

    Raises:
        FpgaError: It is another core, or one that this version of copal does not speak to.
    """
    found = device.read32(ID)
    if found != config.ID:
        raise FpgaError(
            "ID", f"{config.ID:#010x}, a copal engine", f"{found:#010x}",
            "another bitstream is loaded, or the address is wrong",
        )  # fmt: skip
    abi = device.read32(ABI)
    if abi not in SUPPORTED_ABIS:
        expected = f"one of {', '.join(map(str, SUPPORTED_ABIS))}"
        hint = "build the bitstream with this version of copal, or install the version of then"
        raise FpgaError("ABI", expected, str(abi), hint)


def read_config(device: Registers) -> EngineConfig:
    """What an engine was built with, as it says itself.

    Raises:
        FpgaError: It is no engine, or says what no engine can be.
    """
    check_id(device)
    sizes, features = device.read32(SIZES), device.read32(FEATURES)
    depths = {f.name: device.read32(DEPTHS + 4 * i) for i, f in enumerate(fields(Depths))}
    try:
        return EngineConfig(
            array_size=sizes & 255,
            a_bits=sizes >> 8 & 255,
            vector_lanes=sizes >> 16 & 255,
            adam_lanes=sizes >> 24 & 255,
            b_bits=features >> 16 & 255,
            sum_bits=features & 255,
            functions=bool(features >> 8 & 1),
            depths=Depths(**depths),
        )
    except ConfigError as e:
        raise FpgaError("SIZES", "sizes of an engine", str(e)) from e


def check_config(device: Registers, expected: EngineConfig) -> None:
    """Compares what an engine says of itself with what the host takes it for.

    Raises:
        FpgaError: They differ; names the first difference.
    """
    found, wanted = read_config(device).parameters(), expected.parameters()
    for name, value in wanted.items():
        if found[name] != value:
            raise FpgaError(
                name, str(value), str(found[name]),
                "the engine was built with other parameters than the host was told",
            )  # fmt: skip
