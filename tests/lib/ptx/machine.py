# SPDX-License-Identifier: MIT
"""Runs a kernel: every register is an array with one element a CUDA thread.

    registers   %f1 [blocks * threads]      or [1] while all threads hold the same value
    position    [blocks * threads]          basic block that each thread executes next

Of the threads that can go on, those at the lowest address do; threads that a branch parted so
meet again. Threads wait at a barrier for their block, at a shuffle or vote for the lanes of its
mask, and if nobody can go on the launch fails: it never hangs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ptx import movement, warp
from ptx.decode import decode
from ptx.kinds import Array, Lanes, PtxError
from ptx.memory import Block, Memory
from ptx.operands import source
from ptx.parse import Kernel

_LEAVES = ("bra", "ret", "exit", "trap")
_SYNC = ("bar", "barrier", "shfl", "vote")


class Program:
    """A kernel made ready to run.

    Args:
        kernel: As it was parsed.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.blocks = [
            [(decode(kernel, one), one) for one in block if one.opcode[0] not in _LEAVES]
            for block in kernel.blocks
        ]
        self.last = [block[-1] for block in kernel.blocks]
        self.sync = [
            warp.scope(block[0]) if block[0].opcode[0] in _SYNC else None for block in kernel.blocks
        ]


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
        self.block = Block(blocks, count, kernel.shared_bytes + shared, kernel.local_bytes, races)
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
            PtxError: A thread did what it must not, or threads wait for each other for ever.
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
            except PtxError as fault:
                name, line = self.program.kernel.name, instruction.line
                raise PtxError(f"{name}, line {line}: {fault}") from None

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
                raise PtxError(f"{self.program.kernel.name}: trap in line {last.line}")
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

    def _stuck(self, position: npt.NDArray[np.int32], held: npt.NDArray[np.bool_]) -> PtxError:
        waiting = np.flatnonzero(held)
        texts = {self.program.kernel.blocks[p][0].text for p in np.unique(position[waiting])}
        return PtxError(
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
