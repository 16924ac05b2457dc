# SPDX-License-Identifier: MIT
"""The boards that copal knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from copal.errors import UnknownNameError
from copal.fpga.config import Depths, EngineConfig, array_size

_SYSTEM = Path("/proc/device-tree/chosen/pynq_board")
#: Memories whose words, or whose banks, are as many as a row of the array has lanes.
_BY_ROWS = ("vector", "a", "b", "parameters", "bias", "mask")


@dataclass(frozen=True)
class Resources:
    """What a device has."""

    lut: int
    """Look-up tables."""
    ff: int
    """Flip-flops."""
    bram: int
    """Block RAMs of 36 kbit."""
    uram: int
    """UltraRAMs of 288 kbit."""
    dsp: int
    """Multiplier blocks."""
    unconfirmed: tuple[str, ...] = ()
    """Resources whose number is from memory of a data sheet, not looked up."""


@dataclass(frozen=True)
class Board:
    """One board."""

    name: str
    """What the user types."""
    device: str
    """Its device, as Vivado's metadata have it."""
    part: str
    """Its part, as Vivado wants it."""
    pynq: str
    """Which pynq supports it."""
    family: str
    """Family, as yosys has it: xc7 or xcup."""
    resources: Resources
    """What its device has."""
    clock_mhz: int
    """Clock that its design asks for; not confirmed by any timing analysis so far."""
    preset: EngineConfig
    """The engine that `copal build` makes for it."""


BOARDS: Mapping[str, Board] = {
    b.name: b
    for b in (
        Board(
            "zcu104", "xczu7ev", "xczu7ev-ffvc1156-2-e", "3.0 and later", "xcup",
            Resources(230_400, 460_800, 312, 96, 1_728, unconfirmed=("bram", "uram")),
            200,
            EngineConfig(
                array_size=32, vector_lanes=4, adam_lanes=16,
                depths=Depths(
                    code=256, vector=512, a=7168, b=6144, parameters=4096, bias=64, mask=2048,
                ),
            ),
        ),
        Board(
            "kv260", "xck26", "xck26-sfvc784-2LV-c", "3.0.1, by Kria-PYNQ", "xcup",
            Resources(117_120, 234_240, 144, 64, 1_248),
            200,
            EngineConfig(
                array_size=16, vector_lanes=4, adam_lanes=4,
                depths=Depths(
                    code=256, vector=1024, a=4096, b=4096, parameters=4096, bias=64, mask=4096,
                ),
            ),
        ),
        Board(
            "pynq-z2", "xc7z020", "xc7z020clg400-1", "up to 3.1.2, with pycparser<3", "xc7",
            Resources(53_200, 106_400, 140, 0, 220),
            100,
            EngineConfig(
                array_size=8, vector_lanes=2, adam_lanes=2,
                depths=Depths(
                    code=256, vector=1024, a=4096, b=4096, parameters=1024, bias=64, mask=4096,
                ),
            ),
        ),
    )
}  # fmt: skip


def get(name: str) -> Board:
    """The board called `name`.

    Raises:
        UnknownNameError: There is none; lists the near matches.
    """
    if name not in BOARDS:
        raise UnknownNameError.of("board", name, BOARDS)
    return BOARDS[name]


def present() -> str | None:
    """Name of the board that this is, from the system or the variable BOARD; None: unknown."""
    try:
        said = _SYSTEM.read_text()
    except OSError:
        said = os.environ.get("BOARD", "")
    plain = said.strip("\0 \n").lower()
    return plain if plain in BOARDS else None


def engine(board: Board, lanes: int | None = None) -> EngineConfig:
    """The preset of a board, or one with another number of lanes and otherwise like it.

    Words of fewer lanes are shorter, so memories of as many bits have more of them: an engine with
    fewer lanes holds the same networks.

    Args:
        board: The board.
        lanes: 16, 64, 256 or 1024; None: as the preset.

    Raises:
        ConfigError: No array has that many lanes.
    """
    if lanes is None:
        return board.preset
    size, preset = array_size(lanes), board.preset
    words = {n: getattr(preset.depths, n) * preset.array_size // size for n in _BY_ROWS}
    return replace(
        preset,
        array_size=size,
        depths=replace(preset.depths, **words),
        vector_lanes=min(preset.vector_lanes, size),
        adam_lanes=min(preset.adam_lanes, size // 2),
    )
