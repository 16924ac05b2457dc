# SPDX-License-Identifier: MIT
"""Compiles Updates into microcode of the FPGA engine."""

from copal.fpga.compiler.compile import supports
from copal.fpga.compiler.exponents import ExponentFollower, bounded, calibrate
from copal.fpga.compiler.fit import compile_update, fit, smallest_depths
from copal.fpga.compiler.plan import Block, Column, PhasePlan, Plan, Run

__all__ = [
    "Block",
    "Column",
    "ExponentFollower",
    "PhasePlan",
    "Plan",
    "Run",
    "bounded",
    "calibrate",
    "compile_update",
    "fit",
    "smallest_depths",
    "supports",
]
