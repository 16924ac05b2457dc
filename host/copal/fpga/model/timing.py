# SPDX-License-Identifier: MIT
"""The cycle model: what an instruction takes."""

from __future__ import annotations

from copal.fpga.config import EngineConfig
from copal.fpga.isa import Instruction, Op


def slots(f: Instruction, config: EngineConfig) -> int:
    """Cycles in which the sequencer issues something for `f`."""
    p = config.array_size
    match f.op:
        case Op.PRODUCT:
            return (f["mt"] + 1) * (f["nt"] + 1) * max(f["kn"] + 1, p)
        case Op.VECTOR:
            return (f["cols"] + 1) * (f["nt"] + 1) * (p // config.vector_lanes)
        case Op.QUANT:
            return (f["mt"] + 1) * (f["nt"] + 1) * p * (p // config.vector_lanes)
        case Op.UPDATE:
            return (f["count"] + 1) * (p // config.adam_lanes)
        case Op.NORM:
            return f["count"] + 1
        case Op.BROADCAST:
            return f["nt"] + 1
        case Op.SCALAR:
            return 1
    return 0


def enabled_slots(f: Instruction) -> int:
    """Slots in which the array adds products."""
    return (f["mt"] + 1) * (f["nt"] + 1) * (f["kn"] + 1) if f.op == Op.PRODUCT else 0


def cycles(f: Instruction, config: EngineConfig) -> int:
    """Cycles from the fetch of `f` to that of the next instruction."""
    return 1 + slots(f, config) + (config.fence(f.op.name) if f.fence else 0)
