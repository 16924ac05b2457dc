# SPDX-License-Identifier: MIT
"""The engine of docs/hardware.md in NumPy, bit for bit."""

from copal.fpga.model.machine import Model, RunResult
from copal.fpga.model.memories import Memories

__all__ = ["Memories", "Model", "RunResult"]
