# SPDX-License-Identifier: MIT
"""Makes room for a batch before it is sent: its numbers are known here, RANGE tells afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.fpga.compiler.exponents import ExponentFollower
from copal.fpga.compiler.plan import Plan
from copal.program import Program


class Headroom:
    """Exponents of tensors that are columns of the batch, or several side by side.

    Args:
        plan: What is run.
    """

    def __init__(self, plan: Plan) -> None:
        self._watched: list[tuple[int, int, int, tuple[str, ...]]] = []
        sources = [_sources(phase.program) for phase in plan.update.phases]
        for i, info in enumerate(plan.scales.values()):
            samples = (s for s in info.samples if s.what == "buffer")
            names = {n for s in samples for n in sources[s.phase].get(s.name, ())}
            if names:
                self._watched.append((i, info.bits, info.room, tuple(sorted(names))))

    def make(
        self, follower: ExponentFollower, columns: Mapping[str, NDArray[Any]]
    ) -> tuple[bool, bool]:
        """Makes exponents coarser in which numbers of the batch would saturate.

        Returns:
            As `ExponentFollower.follow`: whether any changed, whether one of `Plan.bound` did.
        """
        tops: dict[str, float] = {}
        wanted = follower.exponents.copy()
        for i, bits, room, names in self._watched:
            for name in names:
                if name in columns and name not in tops:
                    tops[name] = float(np.abs(columns[name]).max(initial=0))
            top = max((tops[n] for n in names if n in tops), default=0.0)
            if 0 < top < np.inf and (most := bits - int(np.frexp(top)[1])) < wanted[i]:
                wanted[i] = most - room
        if np.array_equal(wanted, follower.exponents):
            return False, False
        return follower.move(wanted)


def _sources(program: Program) -> dict[str, tuple[str, ...]]:
    """Buffers that are inputs, or concatenations of inputs, with the inputs' names."""
    found: dict[str, tuple[str, ...]] = {b.name: (b.name,) for b in program.inputs}
    for op in program.ops:
        if op.kind == "concat" and op.output is not None and set(op.inputs) <= set(found):
            found[op.output.name] = tuple(n for name in op.inputs for n in found[name])
    return found
