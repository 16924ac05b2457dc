# SPDX-License-Identifier: MIT
"""Instructions as functions of machine and lanes, decoded once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ptx import movement, warp
from ptx.arithmetic import compare, compute
from ptx.kinds import DTYPES, Lanes, PtxError, Run, cast
from ptx.memory import LOCAL, SHARED
from ptx.operands import source, target
from ptx.parse import Instruction, Kernel

if TYPE_CHECKING:
    from ptx.machine import Machine

_SPECIAL = {
    "ld": movement.load, "ldu": movement.load, "st": movement.store, "atom": movement.atomic,
    "red": movement.atomic, "cp": movement.copy, "bar": warp.barrier, "barrier": warp.barrier,
    "shfl": warp.shuffle, "vote": warp.vote, "activemask": warp.active,
}  # fmt: skip
_NOTHING = ("membar", "fence", "prefetch", "nanosleep", "griddepcontrol", "pragma")


def decode(kernel: Kernel, instruction: Instruction) -> Run:
    """What an instruction does; one that is not interpreted fails when it is reached."""
    name = instruction.opcode[0]
    try:
        if name in _NOTHING:
            return lambda _machine, _lanes: None
        if name in _SPECIAL:
            return _SPECIAL[name](kernel, instruction)
        if name in ("setp", "set"):
            return _set(kernel, instruction)
        if name in ("cvta", "isspacep"):
            return _convert_address(kernel, instruction)
        if name == "mov" and any(o.startswith("{") for o in instruction.operands):
            return _pack(kernel, instruction)
        return _compute(kernel, instruction)
    except (PtxError, KeyError, ValueError, StopIteration) as error:
        return partial(_refuse, f"not interpreted: {instruction.text} ({error})")


def _refuse(reason: str, _machine: Machine, _lanes: Lanes) -> None:
    raise PtxError(reason)


def _compute(kernel: Kernel, instruction: Instruction) -> Run:
    function, kinds = compute(instruction.opcode)
    write = target(kernel, instruction.operands[0])
    given = instruction.operands[1:]
    if len(given) != len(kinds):
        raise PtxError(f"{len(given)} operands")
    reads = [source(kernel, text, kind) for text, kind in zip(given, kinds, strict=True)]

    def run(machine: Machine, lanes: Lanes) -> None:
        write(machine, lanes, function(*[read(machine, lanes) for read in reads]))

    return run


def _set(kernel: Kernel, instruction: Instruction) -> Run:
    """`setp`, with a second target and a predicate to combine with."""
    opcode = instruction.opcode
    if opcode[0] == "set":
        raise PtxError("set")
    kind, function = opcode[-1], compare(opcode[1], opcode[-1])
    names = instruction.operands[0].split("|")
    writes = [target(kernel, name) for name in names]
    left, right = (source(kernel, o, kind) for o in instruction.operands[1:3])
    join = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    combine = next((join[part] for part in opcode[2:] if part in join), None)
    third = instruction.operands[3] if combine else ""
    other = source(kernel, third.lstrip("!"), "pred") if combine else None

    def run(machine: Machine, lanes: Lanes) -> None:
        result = function(left(machine, lanes), right(machine, lanes))
        both = [result, ~result]
        for write, value in zip(writes, both, strict=False):
            if combine is not None and other is not None:
                value = combine(value, other(machine, lanes) ^ third.startswith("!"))
            write(machine, lanes, value)

    return run


def _convert_address(kernel: Kernel, instruction: Instruction) -> Run:
    """`cvta`: between an address in a space and a generic one."""
    opcode = instruction.opcode
    if opcode[0] != "cvta":
        raise PtxError("isspacep")
    to = "to" in opcode
    window = {"shared": SHARED, "local": LOCAL}.get(opcode[2 if to else 1].split("::")[0], 0)
    base = np.uint64(window << 40)
    write = target(kernel, instruction.operands[0])
    read = source(kernel, instruction.operands[1], opcode[-1])

    def run(machine: Machine, lanes: Lanes) -> None:
        value = read(machine, lanes)
        result = value ^ base if window and to else value | base
        write(machine, lanes, result)

    return run


def _pack(kernel: Kernel, instruction: Instruction) -> Run:
    """`mov` between a register and the parts that it consists of."""
    to, given = instruction.operands
    whole = DTYPES[instruction.opcode[-1]]
    if to.startswith("{"):
        parts = to.strip("{}").split(",")
        writes = [target(kernel, part.strip()) for part in parts]
        read, piece = (
            source(kernel, given, instruction.opcode[-1]),
            8 * whole.itemsize // len(parts),
        )

        def unpack(machine: Machine, lanes: Lanes) -> None:
            value = read(machine, lanes)
            for place, write in enumerate(writes):
                write(machine, lanes, (value >> (piece * place)).astype(f"u{piece // 8}"))

        return unpack
    parts = given.strip("{}").split(",")
    piece = 8 * whole.itemsize // len(parts)
    reads = [source(kernel, part.strip(), f"b{piece}") for part in parts]
    write = target(kernel, to)

    def pack(machine: Machine, lanes: Lanes) -> None:
        values = [read(machine, lanes).astype(whole) for read in reads]
        result = values[0]
        for place, value in enumerate(values[1:], 1):
            result = result | value << np.array(piece * place, whole)
        write(machine, lanes, cast(result, whole))

    return pack
