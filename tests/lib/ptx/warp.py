# SPDX-License-Identifier: MIT
"""Instructions that the threads of a warp or a block execute together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ptx.kinds import Array, Lanes, PtxError, Run
from ptx.operands import source, target
from ptx.parse import Instruction, Kernel

if TYPE_CHECKING:
    from ptx.machine import Machine


def scope(instruction: Instruction) -> tuple[str, str]:
    """Who must meet at an instruction: `block`, `warp` or nobody; and the operand with the mask."""
    opcode = instruction.opcode
    if opcode[0] in ("bar", "barrier"):
        if "warp" in opcode:
            return "warp", instruction.operands[0]
        if "sync" not in opcode or instruction.operands not in (("0",), ()):
            raise PtxError(f"not interpreted: {instruction.text}")
        return "block", ""
    if opcode[0] == "activemask":
        return "", ""
    return "warp", instruction.operands[-1]


def barrier(kernel: Kernel, instruction: Instruction) -> Run:
    """`bar.sync` and `bar.warp.sync`; the machine has seen to it that all are here."""
    block = scope(instruction)[0] == "block"

    def run(machine: Machine, lanes: Lanes) -> None:
        races = machine.block.races
        if races is not None:
            (races.barrier if block else races.warp_barrier)(machine.all(lanes))

    return run


def shuffle(kernel: Kernel, instruction: Instruction) -> Run:
    """`shfl.sync`: each lane reads another one's register."""
    mode, text = instruction.opcode[2], instruction.text
    names = instruction.operands[0].split("|")
    write = target(kernel, names[0])
    write_inside = target(kernel, names[1] if len(names) > 1 else "_")
    value, by, limits = (source(kernel, o, "u32") for o in instruction.operands[1:4])

    def run(machine: Machine, lanes: Lanes) -> None:
        members = machine.all(lanes)
        lane = machine.lane[members]
        step, bounds = (
            np.broadcast_to(part(machine, lanes), len(members)).astype(np.int64)
            for part in (by, limits)
        )
        clamp, segment = bounds & 31, bounds >> 8 & 31
        first = lane & segment
        last = first | (clamp & ~segment)
        other = {
            "up": lane - step,
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": first | (step & ~segment),
        }[mode]
        inside = other >= last if mode == "up" else other <= last
        other = np.where(inside, other, lane)
        full, here = machine.by_warp(members, value(machine, lanes))
        slot = machine.slot[members] - lane + other
        if not here[slot].all():
            raise PtxError(f"a shuffle reads a lane that takes no part: {text}")
        write(machine, lanes, full[slot])
        write_inside(machine, lanes, inside)

    return run


def vote(kernel: Kernel, instruction: Instruction) -> Run:
    """`vote.sync`: all, any, uni, ballot."""
    mode = instruction.opcode[2]
    write = target(kernel, instruction.operands[0])
    operand = instruction.operands[1]
    negated = operand.startswith("!")
    value = source(kernel, operand.lstrip("!"), "pred")

    def run(machine: Machine, lanes: Lanes) -> None:
        members = machine.all(lanes)
        votes, here = machine.by_warp(members, value(machine, lanes) ^ negated)
        yes, warps = (votes & here).reshape(-1, 32), here.reshape(-1, 32)
        result: Array = {
            "all": lambda: (yes == warps).all(1),
            "any": lambda: yes.any(1),
            "uni": lambda: (yes == warps).all(1) | ~yes.any(1),
            "ballot": lambda: bits(yes),
        }[mode]()
        write(machine, lanes, result[machine.slot[members] // 32])

    return run


def active(kernel: Kernel, instruction: Instruction) -> Run:
    """`activemask`: the lanes that happen to be together."""
    write = target(kernel, instruction.operands[0])

    def run(machine: Machine, lanes: Lanes) -> None:
        members = machine.all(lanes)
        _, here = machine.by_warp(members, np.zeros(1, np.uint32))
        write(machine, lanes, bits(here.reshape(-1, 32))[machine.slot[members] // 32])

    return run


def bits(rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Rows of 32 flags as words, flag 0 the lowest."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    words: npt.NDArray[np.uint32] = packed.copy().view(np.uint32)[:, 0]
    return words
