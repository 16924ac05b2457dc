# SPDX-License-Identifier: MIT
"""Loads PTX and launches its kernels on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ptx.kinds import DTYPES, Array, PtxError
from ptx.machine import Machine, Program
from ptx.memory import Memory
from ptx.parse import parse

_TOGETHER = 16384


class Loaded:
    """A module in memory.

    Args:
        text: PTX.
        memory: Where its arguments lie; a new one by default.

    Raises:
        PtxError: It holds what is not interpreted.
    """

    def __init__(self, text: str, memory: Memory | None = None) -> None:
        module = parse(text)
        self.memory = memory or Memory()
        self.target = module.target
        self._programs = {name: Program(kernel) for name, kernel in module.kernels.items()}
        self._variables = [
            self.memory.add(f"variable {n}", np.frombuffer(data, np.uint8).copy())
            for n, data in enumerate(module.variables)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels."""
        return tuple(self._programs)

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        threads: Sequence[int],
        arguments: Sequence[Array | int | float | np.generic | bytes],
        *,
        shared: int = 0,
        races: bool = False,
    ) -> int:
        """Runs a kernel to its end.

        Args:
            name: Which one.
            grid: Blocks in up to three directions.
            threads: Threads of a block in up to three directions.
            arguments: In order. An array is global memory for this launch; an int for a pointer is
                an address that `Memory.add` gave.
            shared: Dynamic shared memory a block, bytes.
            races: Whether unordered uses of shared memory are faults.

        Returns:
            Instructions that were interpreted, each for many threads.

        Raises:
            PtxError: The kernel did what it must not.
        """
        program = self._programs[name]
        kernel = program.kernel
        blocks, size = (_three(v) for v in (grid, threads))
        if math.prod(size) > kernel.max_threads:
            raise PtxError(f"{name}: {math.prod(size)} threads, at most {kernel.max_threads}")
        if len(arguments) != len(kernel.parameters):
            raise PtxError(f"{name}: {len(arguments)} arguments for {len(kernel.parameters)}")
        data = np.zeros(kernel.parameter_bytes, np.uint8)
        bound: list[int] = []
        for symbol, value in zip(kernel.parameters, arguments, strict=True):
            if isinstance(value, np.ndarray):
                value = self.memory.add(f"argument {len(bound)} of {name}", value)
                bound.append(value)
            raw = _bytes(value, DTYPES[symbol.kind])
            if len(raw) != symbol.size:
                raise PtxError(f"{name}: {len(raw)} bytes for a parameter of {symbol.size}")
            data[symbol.offset : symbol.offset + symbol.size] = raw
        steps, every = 0, max(1, _TOGETHER // math.prod(size))
        with np.errstate(all="ignore"):
            for first in range(0, math.prod(blocks), every):
                machine = Machine(
                    program, self.memory, self._variables, data, grid=blocks, threads=size,
                    first=first, blocks=min(every, math.prod(blocks) - first), shared=shared,
                    races=races,
                )  # fmt: skip
                machine.run()
                steps += machine.steps
        for address in bound:
            self.memory.drop(address)
        return steps


def _bytes(value: float | np.generic | bytes, dtype: np.dtype[np.generic]) -> Array:
    """An argument as it lies in memory."""
    if isinstance(value, int) and dtype.kind in "iu":
        value = value.to_bytes(9, "little", signed=True)[: dtype.itemsize]
    elif not isinstance(value, bytes):
        value = np.array(value, dtype).tobytes()
    return np.frombuffer(value, np.uint8)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z
