# SPDX-License-Identifier: MIT
"""C++ of what a block does with its rows: the steps of a phase, with barriers between them.

A barrier stands before a step that touches what another thread may still be writing or reading.
"""

from __future__ import annotations

from collections.abc import Iterator

from copal.gpu.formulas import RowCode
from copal.gpu.layout import VectorLayout, pad
from copal.gpu.names import identifiers, network_identifiers
from copal.gpu.places import WORKSPACE, RowPlace
from copal.gpu.plan import Column, GpuPlan, PhasePlan, read, written
from copal.gpu.segments import Heavy, Light, Step
from copal.gpu.tiling import tile
from copal.program import GRADIENT_OPS, Op

_SHARE = "share"
"""Name of the gradient among the memories that barriers order."""


class BlockCode:
    """Writes the loop over a share's rows.

    Args:
        plan: The Update.
        phase: The phase.
    """

    def __init__(self, plan: GpuPlan, phase: PhasePlan) -> None:
        self._plan, self._phase, self._program = plan, phase, phase.program
        self._places = phase.placement.places
        self._names = identifiers(phase.program)
        self._networks = network_identifiers(phase.program)
        self._widths = {b.name: b.width for b in phase.program.buffers()}
        self._layout = plan.layouts[phase.network]
        self._shape = f"{plan.shares.rows}, {plan.threads}"
        self._read: list[RowPlace] = []
        self._written: list[RowPlace] = []
        self._added: list[RowPlace] = []

    def pointers(self) -> Iterator[str]:
        """Declarations of the row buffers."""
        for name, place in self._places.items():
            memory = "workspace" if place.memory == WORKSPACE else "memory"
            yield f"float* const {self._names[name]} = {memory} + {place.offset};"

    def untouched(self) -> Iterator[str]:
        """Zeros for numbers of the gradient that no operation adds to."""
        at = 0
        for part in sorted(self._parts(), key=lambda p: p.offset):
            if part.offset > at:
                yield self._fill(at, part.offset)
            at = max(at, part.offset + part.floats)
        if at < self._layout.padded:
            yield self._fill(at, self._layout.padded)

    def loop(self) -> Iterator[str]:
        """What is done with one block of rows."""
        if self._plan.shares.each > self._plan.shares.rows:
            yield "__syncthreads();"
        inputs = [c for c in self._plan.columns.values() if c.buffer.name in self._places]
        mine = {b.name for b in self._program.inputs}
        for column in inputs:
            if column.buffer.name in mine:
                yield self._load(column)
                self._written.append(self._places[column.buffer.name])
        for step in self._phase.steps:
            if self._conflict(step):
                yield "__syncthreads();"
                self._read.clear()
                self._written.clear()
            yield from self._step(step)
            self._note(step)

    # Barriers

    def _touched(self, step: Step) -> tuple[list[RowPlace], list[RowPlace]]:
        """Places that a step reads and writes."""
        reads = [self._places[n] for n in read(step) if n in self._places]
        writes = [self._places[n] for n in written(step) if n in self._places]
        if isinstance(step, Heavy) and step.op.kind in GRADIENT_OPS:
            part = self._part(step.op)
            writes.append(part)
            if self._again(part):
                reads.append(part)
        return reads, writes

    def _conflict(self, step: Step) -> bool:
        reads, writes = self._touched(step)
        return any(a.overlaps(b) for a in reads for b in self._written) or any(
            a.overlaps(b) for a in writes for b in (*self._written, *self._read)
        )

    def _note(self, step: Step) -> None:
        reads, writes = self._touched(step)
        self._read += reads
        self._written += writes
        self._added += [p for p in writes if p.memory == _SHARE]

    # The gradient

    def _part(self, op: Op) -> RowPlace:
        """Floats of the share that an operation adds to."""
        a = op.attrs
        if op.kind == "sum_over_rows":
            return RowPlace(_SHARE, self._layout.at(a["offset"]), self._widths[op.inputs[0]])
        place = self._layout.weights[a["weight"], a["fan_in"], a["fan_out"]]
        floats = a["fan_in"] * a["fan_out"]
        if not place.plain:
            floats = pad(a["fan_in"]) * pad(a["fan_out"])
        return RowPlace(_SHARE, place.offset, floats)

    def _parts(self) -> list[RowPlace]:
        ops = (s.op for s in self._phase.steps if isinstance(s, Heavy))
        return [self._part(op) for op in ops if op.kind in GRADIENT_OPS]

    def _again(self, part: RowPlace) -> bool:
        """Whether an earlier operation of this loop has added to the same floats."""
        return any(part.overlaps(p) for p in self._added)

    def _fill(self, start: int, stop: int) -> str:
        return f"copal::fill_zero<{self._plan.threads}>(share + {start}, {stop - start});"

    # Steps

    def _load(self, column: Column) -> str:
        name, width = self._names[column.buffer.name], column.buffer.width
        load = (
            f"copal::load_rows<{width}, {self._shape}>"
            f"(batch + {column.offset}, {name}, first, end);"
        )
        if column.stream is None:
            return load
        made = (
            f"copal::normal_rows<{width}, {self._shape}>"
            f"({name}, first, end, seed, {column.stream}, update);"
        )
        return f"if (given >> {column.stream} & 1) {load} else {made}"

    def _step(self, step: Step) -> Iterator[str]:
        if isinstance(step, Light):
            yield from self._rows(step)
        elif step.op.kind == "dense":
            yield self._dense(step)
        elif step.op.kind == "dense_grad_input":
            yield self._grad_input(step)
        else:
            yield self._gradient(step.op)

    def _rows(self, step: Light) -> Iterator[str]:
        outputs = {
            role: "td" if role == "td_error" else f"outputs + {at}"
            for role, at in self._phase.outputs.items()
        }
        code = RowCode(self._program, self._plan.layouts, self._places, self._phase.padded, outputs)
        yield f"for (int row = warp; row < {self._plan.shares.rows}; row += {self._warps}) {{"
        for line in code.body(step):
            yield f"  {line}"
        yield "}"

    @property
    def _warps(self) -> int:
        return self._plan.threads // 32

    def _of(self, op: Op) -> tuple[VectorLayout, str, bool]:
        """Layout of an operation's network, C++ of its weights, whether they are plain."""
        a = op.attrs
        layout = self._plan.layouts[a["network"]]
        place = layout.weights[a["weight"], a["fan_in"], a["fan_out"]]
        return layout, f"{self._networks[a['network']]} + {place.offset}", place.plain

    def _dense(self, step: Heavy) -> str:
        a = step.op.attrs
        layout, weight, plain = self._of(step.op)
        bias = "nullptr"
        epilogue = []
        if a["bias"] >= 0:
            bias = f"{self._networks[a['network']]} + {layout.at(a['bias'])}"
            epilogue.append("copal::BIAS")
        if step.relu:
            epilogue.append("copal::RELU")
        flags = " | ".join(epilogue) or "copal::NONE"
        x, out = self._names[step.op.inputs[0]], self._names[str(step.output)]
        if plain:
            head = f"copal::dense_plain<{a['fan_in']}, {a['fan_out']}, {self._shape}, {flags}>"
        else:
            t = tile(
                pad(a["fan_out"]) // 4,
                pad(a["fan_in"]) // 4,
                self._plan.shares.rows,
                self._warps,
                least=4,
            )
            head = (
                f"copal::dense<{a['fan_in']}, {a['fan_out']}, {self._shape}, "
                f"{t.slices}, {t.rows}, {flags}>"
            )
        return f"{head}({weight}, {bias}, {x}, {out});"

    def _grad_input(self, step: Heavy) -> str:
        a = step.op.attrs
        _, weight, plain = self._of(step.op)
        mask = "nullptr" if step.mask is None else self._names[step.mask]
        flags = "copal::NONE" if step.mask is None else "copal::RELU_GRAD"
        x, out = self._names[step.op.inputs[0]], self._names[str(step.output)]
        kind = "dense_grad_input_plain" if plain else "dense_grad_input"
        head = f"copal::{kind}<{a['fan_in']}, {a['fan_out']}, {self._shape}, "
        if not plain:
            t = tile(
                pad(a["fan_in"]) // 4,
                pad(a["fan_out"]) // 4,
                self._plan.shares.rows,
                self._warps,
                least=8,
            )
            head += f"{t.slices}, {t.rows}, "
        return f"{head}{flags}>({weight}, {x}, {mask}, {out});"

    def _gradient(self, op: Op) -> str:
        part = self._part(op)
        add = "true" if self._again(part) else "add"
        x = self._names[op.inputs[0]]
        to = f"share + {part.offset}, rows, {add});"
        if op.kind == "sum_over_rows":
            return f"copal::sum_over_rows<{self._widths[op.inputs[0]]}, {self._shape}>({x}, {to}"
        a = op.attrs
        plain = self._layout.weights[a["weight"], a["fan_in"], a["fan_out"]].plain
        kind = "dense_grad_weight_plain" if plain else "dense_grad_weight"
        y = self._names[op.inputs[1]]
        return f"copal::{kind}<{a['fan_in']}, {a['fan_out']}, {self._shape}>({x}, {y}, {to}"
