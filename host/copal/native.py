# SPDX-License-Identifier: MIT
"""Chooses the extension module that was built for this processor's best instruction set.

`COPAL_ISA=v3` (or `v2`, `v4`, `generic`) in the environment asks for a certain one; it is an error
if the processor cannot run it.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from copal.errors import ConfigError


def load(isa: str) -> ModuleType:
    """Imports the extension module built for `isa`.

    Args:
        isa: One of `supported()`.

    Raises:
        ConfigError: The processor cannot run it.
    """
    if isa not in supported():
        raise ConfigError(
            "COPAL_ISA",
            f"one of {', '.join(supported())}",
            f"`{isa}`",
            "unset COPAL_ISA to take the best one of this processor",
        )
    return importlib.import_module(f"copal._native_{isa}")


def supported() -> list[str]:
    """Instruction sets that this processor runs, best first."""
    names: list[str] = importlib.import_module("copal._isa").supported()
    return names


native: ModuleType = load(os.environ.get("COPAL_ISA") or supported()[0])
"""The module in use."""
