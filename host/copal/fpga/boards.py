# SPDX-License-Identifier: MIT
"""The boards that copal knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from copal.errors import UnknownNameError

_SYSTEM = Path("/proc/device-tree/chosen/pynq_board")


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


BOARDS: Mapping[str, Board] = {
    b.name: b
    for b in (
        Board("zcu104", "xczu7ev", "xczu7ev-ffvc1156-2-e", "3.0 and later"),
        Board("kv260", "xck26", "xck26-sfvc784-2LV-c", "3.0.1, by Kria-PYNQ"),
        Board("pynq-z2", "xc7z020", "xc7z020clg400-1", "up to 3.1.2, with pycparser<3"),
    )
}


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
