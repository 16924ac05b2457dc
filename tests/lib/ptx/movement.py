# SPDX-License-Identifier: MIT
"""Instructions that move data: loads, stores, atomics, asynchronous copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ptx import memory
from ptx.kinds import DTYPES, Array, Lanes, PtxError, Run
from ptx.operands import address, source, target, vector
from ptx.parse import Instruction, Kernel

if TYPE_CHECKING:
    from ptx.machine import Machine

_SPACES = ("global", "shared", "local", "param", "const")


def load(kernel: Kernel, instruction: Instruction) -> Run:
    """`ld`, also of vectors."""
    opcode, kind = instruction.opcode, instruction.opcode[-1]
    targets = [target(kernel, part) for part in vector(instruction.operands[0])]
    symbol_space, read = address(kernel, instruction.operands[1])
    space, dtype, text = _space(opcode, symbol_space), DTYPES[kind], instruction.text
    width, used = dtype.itemsize * len(targets), instruction.used

    def run(machine: Machine, lanes: Lanes) -> None:
        where = read(machine, lanes)
        if space == "param":
            data = machine.parameters[where[:, None] + np.arange(width)]
            values = data.view(dtype)
        else:
            values = gather(machine, lanes, space, where, width, text, used).view(dtype)
        for place, write in enumerate(targets):
            write(machine, lanes, values[:, place].copy())

    return run


def store(kernel: Kernel, instruction: Instruction) -> Run:
    """`st`, also of vectors."""
    opcode, kind = instruction.opcode, instruction.opcode[-1]
    symbol_space, read = address(kernel, instruction.operands[0])
    parts = [source(kernel, part, kind) for part in vector(instruction.operands[1])]
    space, dtype, text = _space(opcode, symbol_space), DTYPES[kind], instruction.text

    def run(machine: Machine, lanes: Lanes) -> None:
        where = read(machine, lanes)
        values = np.empty((machine.count(lanes), len(parts)), dtype)
        for place, part in enumerate(parts):
            values[:, place] = part(machine, lanes)
        scatter(machine, lanes, space, where, values.view(np.uint8), text)

    return run


def gather(
    machine: Machine,
    lanes: Lanes,
    space: str,
    where: npt.NDArray[np.int64],
    width: int,
    text: str,
    used: int = -1,
) -> npt.NDArray[np.uint8]:
    """Bytes at addresses: [addresses or 1, width], uint8.

    Raises:
        PtxError: One is out of bounds, misaligned or, in shared memory, never written.
    """
    parts = memory.split(where) if space in ("", "global", "const") else [(-1, None)]
    result = np.empty((len(where), width), np.uint8) if len(parts) > 1 else None
    for number, chosen in parts:
        here, mine = _narrow(machine, lanes, where, chosen)
        data, index = _place(machine, space, number, here, mine, width, text)
        if data is machine.block.shared:
            machine.block.read(index, width, machine.all(mine), text, used)
        found = _units(data, width)[index // width].view(np.uint8).reshape(-1, width)
        if result is None:
            return found
        result[chosen] = found
    assert result is not None
    return result


def scatter(
    machine: Machine,
    lanes: Lanes,
    space: str,
    where: npt.NDArray[np.int64],
    values: npt.NDArray[np.uint8],
    text: str,
) -> None:
    """Writes [lanes, width] bytes to addresses; of lanes with one address the last wins.

    Raises:
        PtxError: One is out of bounds, misaligned, read-only or used by another thread.
    """
    width = values.shape[1]
    where = np.broadcast_to(where, len(values))
    for number, chosen in memory.split(where) if space in ("", "global", "const") else [(-1, None)]:
        here, mine = _narrow(machine, lanes, where, chosen)
        data, index = _place(machine, space, number, here, mine, width, text, store=True)
        if data is machine.block.shared:
            machine.block.wrote(index, width, machine.all(mine), text)
        mine_values = values if chosen is None else values[chosen]
        _units(data, width)[index // width] = mine_values.view(_UNITS[width])[:, 0]


_UNITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
"""A type to copy so many bytes by; copying never computes, so bits survive."""


def _units(data: npt.NDArray[np.uint8], width: int) -> Array:
    return data[: len(data) // width * width].view(_UNITS[width])


def _narrow(
    machine: Machine,
    lanes: Lanes,
    where: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.intp] | None,
) -> tuple[npt.NDArray[np.int64], Lanes]:
    """Addresses and lanes of those that mean one buffer."""
    if chosen is None:
        return where, lanes
    return where[chosen], machine.all(lanes)[chosen]


def _place(
    machine: Machine,
    space: str,
    number: int,
    where: npt.NDArray[np.int64],
    lanes: Lanes,
    width: int,
    text: str,
    *,
    store: bool = False,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The array that holds some addresses, and where in it they are."""
    block = machine.block
    if space == "shared" or number == memory.SHARED:
        offset = memory.offsets(where)
        memory.check(offset, width, block.limit, "shared memory", text)
        return block.shared, offset + _of(block.shared_base, lanes)
    if space == "local" or number == memory.LOCAL:
        offset = memory.offsets(where)
        memory.check(offset, width, block.local_size, "a stack", text)
        return block.local, offset + _of(block.local_base, lanes)
    buffer = machine.memory.find(number, text)
    if store and buffer.read_only:
        raise PtxError(f"`{buffer.name}` is read-only: {text}")
    offset = memory.offsets(where)
    memory.check(offset, width, len(buffer.bytes), f"`{buffer.name}`", text)
    return buffer.bytes, offset


def _of(base: npt.NDArray[np.int64], lanes: Lanes) -> npt.NDArray[np.int64]:
    return base if lanes is None else base[lanes]


def _space(opcode: tuple[str, ...], symbol: str) -> str:
    named = next((part for part in opcode if part.split("::")[0] in _SPACES), "")
    return named.split("::")[0] or symbol


_ATOMIC = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
           "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip


def atomic(kernel: Kernel, instruction: Instruction) -> Run:
    """`atom` and `red`: lane after lane, in order."""
    opcode, kind = instruction.opcode, instruction.opcode[-1]
    operands = instruction.operands
    write = target(kernel, operands[0] if opcode[0] == "atom" else "_")
    symbol_space, read = address(kernel, operands[opcode[0] == "atom"])
    given = [source(kernel, part, kind) for part in operands[1 + (opcode[0] == "atom") :]]
    space, dtype, text = _space(opcode, symbol_space), DTYPES[kind], instruction.text
    operation = next((part for part in opcode if part in (*_ATOMIC, "exch", "cas")), "")
    if not operation:
        raise PtxError(f"not interpreted: {text}")

    def run(machine: Machine, lanes: Lanes) -> None:
        members = machine.all(lanes)
        where = np.broadcast_to(read(machine, lanes), len(members))
        values = [np.broadcast_to(part(machine, lanes), len(members)) for part in given]
        before = np.empty(len(members), dtype)
        for place, lane in enumerate(members):
            at, one = where[place : place + 1], np.array([lane])
            old = gather(machine, one, space, at, dtype.itemsize, text).view(dtype)[0, 0]
            before[place] = old
            new = values[-1][place]
            if operation == "cas":
                new = new if old == values[0][place] else old
            elif operation != "exch":
                new = _ATOMIC[operation](old, new)
            raw = np.array([new], dtype).view(np.uint8)[None]
            scatter(machine, one, space, at, raw, text)
        write(machine, lanes, before)

    return run


class Copies:
    """Asynchronous copies in flight: they land when their thread waits for their group."""

    def __init__(self, lanes: int) -> None:
        self._groups = np.zeros(lanes, np.int64)
        self._open: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], Array, Array, str]] = []

    def issue(self, lanes: npt.NDArray[np.intp], to: Array, data: Array, text: str) -> None:
        """Starts copies of [lanes, width] bytes to shared addresses [lanes]."""
        self._open.append((lanes, self._groups[lanes], to, data, text))

    def commit(self, lanes: npt.NDArray[np.intp]) -> None:
        """Closes the lanes' groups."""
        self._groups[lanes] += 1

    def wait(self, machine: Machine, lanes: npt.NDArray[np.intp], pending: int) -> None:
        """Lands the copies of all but the last `pending` groups; -1: open ones too."""
        kept = []
        for members, group, to, data, text in self._open:
            limit = self._groups[members] - pending
            done = np.isin(members, lanes) & (group < limit)
            if done.any():
                scatter(machine, members[done], "shared", to[done], data[done], text)
            if not done.all():
                left = ~done
                kept.append((members[left], group[left], to[left], data[left], text))
        self._open = kept


def copy(kernel: Kernel, instruction: Instruction) -> Run:
    """`cp.async` and what waits for it."""
    opcode, operands, text = instruction.opcode, instruction.operands, instruction.text
    if "commit_group" in opcode:
        return lambda machine, lanes: machine.copies.commit(machine.all(lanes))
    if "wait_all" in opcode:
        return lambda machine, lanes: machine.copies.wait(machine, machine.all(lanes), -1)
    if "wait_group" in opcode:
        pending = int(operands[0])
        return lambda machine, lanes: machine.copies.wait(machine, machine.all(lanes), pending)
    if opcode[:2] != ("cp", "async") or "bulk" in opcode:
        raise PtxError(f"not interpreted: {text}")
    _, to = address(kernel, operands[0])
    _, start = address(kernel, operands[1])
    width = int(operands[2])
    given = source(kernel, operands[3], "u32") if len(operands) > 3 else None

    def run(machine: Machine, lanes: Lanes) -> None:
        members = machine.all(lanes)
        where = np.broadcast_to(start(machine, lanes), len(members))
        shared = np.broadcast_to(to(machine, lanes), len(members))
        data = np.zeros((len(members), width), np.uint8)
        bytes_ = width if given is None else np.unique(given(machine, lanes))
        if np.ndim(bytes_) == 0 or np.all(bytes_ == width):
            data[:] = gather(machine, lanes, "global", where, width, text)
        else:
            sizes = np.broadcast_to(given(machine, lanes), len(members))  # type: ignore[misc]
            whole = np.flatnonzero(sizes == width)
            if ((sizes != width) & (sizes != 0)).any():
                raise PtxError(f"a part of a copy is not interpreted: {text}")
            if len(whole):
                data[whole] = gather(machine, members[whole], "global", where[whole], width, text)
        machine.copies.issue(members, shared.copy(), data, text)

    return run
