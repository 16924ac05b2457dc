# SPDX-License-Identifier: MIT
"""Programs: typed, static lists of row operations, with capture and a reference interpreter."""

from copal.program.program import (
    GRADIENT_OPS,
    OPS,
    Buffer,
    Dense,
    Network,
    Op,
    OpSpec,
    Program,
)
from copal.program.update import Adam, Phase, Target, Update

__all__ = [
    "GRADIENT_OPS",
    "OPS",
    "Adam",
    "Buffer",
    "Dense",
    "Network",
    "Op",
    "OpSpec",
    "Phase",
    "Program",
    "Target",
    "Update",
]
