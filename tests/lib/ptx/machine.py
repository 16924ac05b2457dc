# SPDX-License-Identifier: MIT
"""Runs a kernel: every register is an array with one element a CUDA thread.

    registers   %f1 [blocks * threads]      or [1] while all threads hold the same value
    position    [blocks * threads]          basic block that each thread executes next

Of the threads that can go on, those at the lowest address do; threads that a branch parted so meet
again. Threads wait at a barrier for their block, at a shuffle or vote for the lanes of its mask, and
if nobody can go on the launch fails: it never hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ptx import movement, warp
from ptx.arithmetic import compare, compute
from ptx.kinds import DTYPES, Array, Fault, Lanes, cast
from ptx.memory import LOCAL, SHARED, Block, Memory
from ptx.operands import source, target
from ptx.parse import Instruction, Kernel

Run = Callable[["Machine", Lanes], None]
_SPECIAL = {
    "ld": movement.load, "ldu": movement.load, "st": movement.store, "atom": movement.atomic,
    "red": movement.atomic, "cp": movement.copy, "bar": warp.barrier, "barrier": warp.barrier,
    "shfl": warp.shuffle, "vote": warp.vote, "activemask": warp.active,
}  # fmt: skip
_NOTHING = ("membar", "fence", "prefetch", "nanosleep", "griddepcontrol", "pragma")


class Program:
    """A kernel made ready to run.

    Args:
        kernel: As it was parsed.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.blocks = [
            [(_decode(kernel, one), one) for one in block if one.opcode[0] not in _LEAVES]
            for block in kernel.blocks
        ]
        self.last = [block[-1] for block in kernel.blocks]
        self.sync = [
            warp.scope(block[0]) if block[0].opcode[0] in _SYNC else None for block in kernel.blocks
        ]


_LEAVES = ("bra", "ret", "exit", "trap")
_SYNC = ("bar", "barrier", "shfl", "vote")


class Machine:
    """Blocks of one launch that run at the same time.

    Args:
        program: What they run.
        memory: Global memory.
        variables: Addresses of the module's variables.
        parameters: Bytes of the kernel's parameters.
        grid: Blocks of the launch.
        threads: Threads of a block.
        first: Number of the first block of these.
        blocks: How many.
        shared: Dynamic shared memory a block, bytes.
        races: Whether unordered uses of shared memory are faults.
    """

    def __init__(
        self,
        program: Program,
        memory: Memory,
        variables: Sequence[int],
        parameters: npt.NDArray[np.uint8],
        *,
        grid: tuple[int, int, int],
        threads: tuple[int, int, int],
        first: int,
        blocks: int,
        shared: int,
        races: bool,
    ) -> None:
        count = int(np.prod(threads))
        kernel = program.kernel
        self.program, self.memory, self.variables = program, memory, variables
        self.parameters = parameters
        self.lanes = blocks * count
        self.registers: dict[str, Array] = {}
        self.block = Block(
            blocks, count, kernel.shared_bytes + shared, kernel.local_bytes, races
        )
        self.copies = movement.Copies(self.lanes)
        thread = np.arange(self.lanes) % count
        self.owner = np.arange(self.lanes) // count
        self.lane = thread % 32
        self._warps = -(-count // 32)
        self.slot = (self.owner * self._warps + thread // 32) * 32 + self.lane
        self._exists = np.zeros(blocks * self._warps * 32, np.bool_)
        self._exists[self.slot] = True
        self._threads = count
        self._everyone = np.arange(self.lanes)
        self.special = _special(thread, self.owner + first, grid, threads)
        self.steps = 0

    def all(self, lanes: Lanes) -> npt.NDArray[np.intp]:
        """The lanes' numbers."""
        return self._everyone if lanes is None else lanes

    def count(self, lanes: Lanes) -> int:
        """How many lanes these are."""
        return self.lanes if lanes is None else len(lanes)

    def by_warp(
        self, members: npt.NDArray[np.intp], values: Array
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Values laid out 32 a warp, and which places hold one."""
        full = np.zeros(len(self._exists), values.dtype)
        here = np.zeros(len(self._exists), np.bool_)
        slot = self.slot[members]
        full[slot], here[slot] = values, True
        return full, here

    def run(self) -> None:
        """Runs until every thread has returned.

        Raises:
            Fault: A thread did what it must not, or threads wait for each other for ever.
        """
        end = len(self.program.blocks)
        position = np.zeros(self.lanes, np.int32)
        held = np.zeros(self.lanes, np.bool_)
        together: int | None = 0
        while True:
            lanes: Lanes = None
            if together is None:
                free = (position < end) & ~held
                if not free.any():
                    if (position < end).any():
                        raise self._stuck(position, held)
                    return
                at = int(position[free].min())
                lanes = np.flatnonzero(position == at)
                sync = self.program.sync[at]
                if sync is not None:
                    held[lanes] = True
                    lanes = self._arrived(sync, lanes)
                    held[lanes] = False
                    if not len(lanes):
                        continue
                if len(lanes) == self.lanes:
                    lanes = None
            elif together == end:
                return
            else:
                at = together
            self._block(at, lanes)
            together = self._leave(at, lanes, position, end)

    def _block(self, at: int, lanes: Lanes) -> None:
        for run, instruction in self.program.blocks[at]:
            self.steps += 1
            mine = lanes
            if instruction.guard is not None:
                mine = self.where(instruction.guard, lanes)
                if mine is not None and not len(mine):
                    continue
            try:
                run(self, mine)
            except Fault as fault:
                name, line = self.program.kernel.name, instruction.line
                raise Fault(f"{name}, line {line}: {fault}") from None

    def where(self, guard: tuple[str, bool], lanes: Lanes) -> Lanes:
        """Those of the lanes whose predicate holds."""
        register, negated = guard
        value = self.registers[register]
        if len(value) == 1:
            return lanes if bool(value[0]) != negated else np.empty(0, np.intp)
        value = value if lanes is None else value[lanes]
        if negated:
            value = ~value
        if value.all():
            return lanes
        return np.flatnonzero(value) if lanes is None else lanes[value]

    def _leave(
        self, at: int, lanes: Lanes, position: npt.NDArray[np.int32], end: int
    ) -> int | None:
        """Moves lanes to their next basic blocks; which one, if all go to the same."""
        last = self.program.last[at]
        to = at + 1
        if last.opcode[0] in _LEAVES:
            to = end
            if last.opcode[0] == "trap":
                raise Fault(f"{self.program.kernel.name}: trap in line {last.line}")
            if last.opcode[0] == "bra":
                to = self.program.kernel.labels[last.operands[0]]
        taken = lanes
        if to != at + 1 and last.guard is not None:
            taken = self.where(last.guard, lanes)
        if taken is lanes:
            if lanes is None:
                position[:] = to
                return to
            position[lanes] = to
            return None
        position[lanes if lanes is not None else slice(None)] = at + 1
        position[taken] = to
        return (at + 1) if lanes is None and not len(self.all(taken)) else None

    def _arrived(self, sync: tuple[str, str], lanes: npt.NDArray[np.intp]) -> Array:
        """Of lanes at a synchronising instruction, those whose partners are there as well."""
        kind, mask = sync
        if kind == "block":
            here = np.bincount(self.owner[lanes], minlength=int(self.owner[-1]) + 1)
            return lanes[here[self.owner[lanes]] == self._threads]
        _, here = self.by_warp(lanes, np.zeros(1, np.uint32))
        warps = self.slot[lanes] // 32
        present = warp.bits(here.reshape(-1, 32))[warps]
        exists = warp.bits(self._exists.reshape(-1, 32))[warps]
        wanted = source(self.program.kernel, mask, "u32")(self, lanes)
        return lanes[(wanted & exists & ~present) == 0]

    def _stuck(self, position: npt.NDArray[np.int32], held: npt.NDArray[np.bool_]) -> Fault:
        waiting = np.flatnonzero(held)
        texts = {self.program.kernel.blocks[p][0].text for p in np.unique(position[waiting])}
        return Fault(
            f"{self.program.kernel.name}: not reached by every thread of the block or the mask: "
            + "; ".join(sorted(texts))
        )


def _special(
    thread: npt.NDArray[np.intp],
    block: npt.NDArray[np.intp],
    grid: tuple[int, int, int],
    threads: tuple[int, int, int],
) -> dict[str, Array]:
    found = {
        "%tid.x": thread % threads[0],
        "%tid.y": thread // threads[0] % threads[1],
        "%tid.z": thread // (threads[0] * threads[1]),
        "%ctaid.x": block % grid[0],
        "%ctaid.y": block // grid[0] % grid[1],
        "%ctaid.z": block // (grid[0] * grid[1]),
        "%laneid": thread % 32,
        "%warpid": thread // 32,
        "%lanemask_lt": (1 << thread % 32) - 1,
    }
    for place, axis in enumerate("xyz"):
        found[f"%ntid.{axis}"] = np.array([threads[place]])
        found[f"%nctaid.{axis}"] = np.array([grid[place]])
    return {name: value.astype(np.uint32) for name, value in found.items()}


def _decode(kernel: Kernel, instruction: Instruction) -> Run:
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
    except (Fault, KeyError, ValueError, StopIteration) as error:
        return partial(_refuse, f"not interpreted: {instruction.text} ({error})")


def _refuse(reason: str, _machine: Machine, _lanes: Lanes) -> None:
    raise Fault(reason)


def _compute(kernel: Kernel, instruction: Instruction) -> Run:
    function, kinds = compute(instruction.opcode)
    write = target(kernel, instruction.operands[0])
    given = instruction.operands[1:]
    if len(given) != len(kinds):
        raise Fault(f"{len(given)} operands")
    reads = [source(kernel, text, kind) for text, kind in zip(given, kinds, strict=True)]

    def run(machine: Machine, lanes: Lanes) -> None:
        write(machine, lanes, function(*[read(machine, lanes) for read in reads]))

    return run


def _set(kernel: Kernel, instruction: Instruction) -> Run:
    """`setp`, with a second target and a predicate to combine with."""
    opcode = instruction.opcode
    if opcode[0] == "set":
        raise Fault("set")
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
        raise Fault("isspacep")
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
        read, piece = source(kernel, given, instruction.opcode[-1]), 8 * whole.itemsize // len(parts)

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
