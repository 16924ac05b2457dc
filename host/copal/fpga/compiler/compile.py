# SPDX-License-Identifier: MIT
"""From an Update to a Plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from copal.errors import ProgramError
from copal.fpga.compiler.allocate import allocate
from copal.fpga.compiler.code import CodeWriter, Entry
from copal.fpga.compiler.draft import Draft, Geometry, Span, Tensor, finished, in_run
from copal.fpga.compiler.fuse import fuse, pruned
from copal.fpga.compiler.lower import lower
from copal.fpga.compiler.optimiser import UpdateCode
from copal.fpga.compiler.plan import Block, Column, PhasePlan, Plan, averaging_set, due_target
from copal.fpga.compiler.scales import ScaleBook
from copal.fpga.compiler.schedule import order, steps
from copal.fpga.config import EngineConfig
from copal.fpga.isa import SETS
from copal.fpga.parameters import ParameterLayout, layout
from copal.program import Program, Update

_FUNCTIONS = ("exp", "log", "tanh")
_PERIOD = 1 << 16
"""Updates that are looked at to find which optimiser steps occur."""


def supports(program: Program, *, functions: bool = True) -> str | None:
    """The operation that the engine lacks, None if it has all of a Program.

    Args:
        program: What to run.
        functions: Whether the engine has exp, log and tanh.
    """
    if program.opaque() is not None:
        return program.opaque()
    kinds = (op.kind for op in program.ops)
    return next((k for k in kinds if not functions and k in _FUNCTIONS), None)


def compile_block(update: Update, config: EngineConfig, batch_size: int, block_rows: int) -> Plan:
    """Compiles an Update for row blocks of a given size, whatever the memories hold.

    Args:
        update: What to run.
        config: Of the engine; its depths only bound the entries of RANGE.
        batch_size: Rows of a batch.
        block_rows: Rows of a block.

    Raises:
        ProgramError: The engine lacks an operation, or the Update does not fit its scheme.
        ConfigError: There are too few entries of RANGE.
    """
    for phase in update.phases:
        lacking = supports(phase.program, functions=config.functions)
        if lacking is not None:
            raise ProgramError(
                phase.program.name, "operations of the engine", f"`{lacking}`",
                "build the engine with `functions`" if lacking in _FUNCTIONS else
                "use the `cpu` or the `torch` backend",
            )  # fmt: skip
    phases = tuple(replace(p, program=pruned(p.program)) for p in update.phases)
    update = replace(update, phases=phases)
    return _Compilation(update, config, batch_size, block_rows).plan()


@dataclass
class _Lowered:
    """A phase between its steps."""

    drafts: list[Draft]
    """In the order to issue."""
    inputs: tuple[tuple[str, Span], ...]
    """Batch columns and where they lie."""
    outputs: dict[str, Span]
    """Roles and where they lie."""


class _Compilation:
    """One compilation; its methods run in order."""

    def __init__(
        self, update: Update, config: EngineConfig, batch_size: int, block_rows: int
    ) -> None:
        self._update, self._config, self._batch_size = update, config, batch_size
        p = config.array_size
        self._block = Geometry(p, block_rows, -(-block_rows // p))
        self._parameters: ParameterLayout = layout(update, p)
        self._book = ScaleBook()
        self._words: dict[str, int] = {}

    def plan(self) -> Plan:
        """Does it all."""
        update, config = self._update, self._config
        _check_sets(update)
        inputs, concats = _pinned(update, self._block.stride)
        lowered = [self._lower(i, inputs, concats[i]) for i in range(len(update.phases))]
        code = UpdateCode(update, self._parameters, self._book, config, self._batch_size)
        code.check()
        refresh = code.refresh()
        entries = self._book.entries(config.depths.range)
        names = self._book.roots()
        writer = CodeWriter(config, entries, names)
        pinned_end = self._place_inputs(inputs, concats)
        starts = {"A": self._parameters.copy_rows, "V": pinned_end}
        phases = []
        refresh_entry = self._simple(writer, "refresh", refresh, starts)
        for i, found in enumerate(lowered):
            kept = [s.tensor for s in found.outputs.values()]
            self._count(allocate(found.drafts, kept, starts))
            step, step_average = self._steps(writer, code, i, starts)
            phases.append(self._phase(writer, i, found, step, step_average))
        averages = self._averages(writer, code, starts)
        infos = self._book.merged()
        return Plan(
            update=update,
            config=config,
            batch_size=self._batch_size,
            block_rows=self._block.rows,
            layout=self._parameters,
            phases=tuple(phases),
            averages=averages,
            refresh=refresh_entry,
            instructions=tuple(writer.instructions),
            fields=tuple(writer.fields),
            scales=infos,
            limits=self._book.limits(),
            words={
                "code": len(writer.instructions),
                "vector": self._words["V"],
                "a": self._words["A"],
                "b": self._words["B"],
                "parameters": self._parameters.words,
                "bias": self._parameters.bias_words,
                "mask": self._words["MASK"],
                "range": len(infos),
            },
        )

    def _lower(
        self, phase: int, inputs: Mapping[str, Span], concats: Mapping[str, Span]
    ) -> _Lowered:
        program = self._update.phases[phase].program
        own = {b.name: inputs[b.name] for b in program.inputs}
        drafts, outputs = lower(
            program, phase, own, concats, self._parameters, self._book, self._config,
            self._block.stride, clipped=self._update.phases[phase].max_grad_norm is not None,
        )  # fmt: skip
        runs = sorted({d.run for d in drafts}) or [0]
        ordered = [d for run in runs for d in self._ordered(in_run(drafts, run), self._block)]
        return _Lowered(ordered, tuple(own.items()), outputs)

    def _ordered(self, drafts: list[Draft], geometry: Geometry) -> list[Draft]:
        made = [finished(_unplaced(d), geometry, {}) for d in drafts]
        found = steps(drafts, made, self._config)
        return [drafts[i] for i in order(found, self._config)]

    def _place_inputs(self, inputs: Mapping[str, Span], concats: list[dict[str, Span]]) -> int:
        """Addresses of what keeps its place in V; returns the first word behind."""
        end = 0
        spans = [*inputs.values(), *(s for found in concats for s in found.values())]
        for span in spans:
            if span.tensor.address is None:
                span.tensor.address = end
                end += span.tensor.words
        return end

    def _count(self, words: Mapping[str, int]) -> None:
        for name, n in words.items():
            self._words[name] = max(self._words.get(name, 0), n)

    def _simple(
        self, writer: CodeWriter, name: str, drafts: list[Draft], starts: Mapping[str, int]
    ) -> Entry:
        """Code that has no rows."""
        geometry = Geometry(self._config.array_size, 1, 1)
        ordered = self._ordered(drafts, geometry)
        self._count(allocate(ordered, (), starts))
        return writer.add(name, ordered, geometry)

    def _steps(
        self, writer: CodeWriter, code: UpdateCode, phase: int, starts: Mapping[str, int]
    ) -> tuple[Entry | None, Entry | None]:
        """The optimiser steps of a phase that occur."""
        every = self._update.phases[phase].every
        period = min(_PERIOD, math.lcm(every, *(t.every for t in self._update.targets)))
        due = {
            due_target(self._update, phase, u) is not None
            for u in range(every - 1, max(period, every), every)
        }
        name = self._update.phases[phase].program.name
        alone = averaged = None
        if False in due:
            drafts = code.step(phase, average=False)
            alone = self._simple(writer, f"{name} step", drafts, starts)
        if True in due:
            drafts = code.step(phase, average=True)
            averaged = self._simple(writer, f"{name} step and averaging", drafts, starts)
        return alone, averaged

    def _phase(
        self,
        writer: CodeWriter,
        phase: int,
        found: _Lowered,
        step: Entry | None,
        step_average: Entry | None,
    ) -> PhasePlan:
        program = self._update.phases[phase].program
        variants: dict[int, tuple[Entry, ...]] = {}
        blocks = []
        for first in range(0, self._batch_size, self._block.rows):
            rows = min(self._block.rows, self._batch_size - first)
            if rows not in variants:
                geometry = Geometry(self._block.array_size, rows, self._block.stride)
                variants[rows] = tuple(
                    writer.add(f"{program.name}, {rows} rows", in_run(found.drafts, run), geometry)
                    for run in sorted({d.run for d in found.drafts} | {0})
                )
            blocks.append(Block(first, rows, variants[rows]))
        return PhasePlan(
            name=program.name,
            network=str(program.gradient),
            inputs=tuple(self._column(name, span) for name, span in found.inputs),
            outputs={role: self._column(role, span) for role, span in found.outputs.items()},
            blocks=tuple(blocks),
            step=step,
            step_average=step_average,
        )

    def _column(self, name: str, span: Span) -> Column:
        assert span.tensor.address is not None
        return Column(name, span.width, span.tensor.address + span.start * self._block.stride)

    def _averages(
        self, writer: CodeWriter, code: UpdateCode, starts: Mapping[str, int]
    ) -> dict[str, Entry]:
        """The targets that are averaged alone in some update."""
        entries = {}
        for t in self._update.targets:
            found = [i for i, p in enumerate(self._update.phases) if p.program.gradient == t.source]
            beside = any(
                due_target(self._update, i, t.every - 1) == t.target
                and t.every % self._update.phases[i].every == 0
                for i in found
            )
            if not beside:
                drafts = code.average(t.source, averaging_set(self._update, t.source))
                entries[t.target] = self._simple(writer, f"average {t.target}", drafts, starts)
        return entries


def _unplaced(draft: Draft) -> Draft:
    """The draft with addresses that only serve to count its slots."""
    return Draft(draft.op, draft.fields, rows=draft.rows, note=draft.note)


def _check_sets(update: Update) -> None:
    sets = {averaging_set(update, t.source) for t in update.targets} | set(
        range(len(update.phases))
    )
    if max(sets) >= SETS:
        raise ProgramError("phases", f"at most {SETS} sets of scalars", str(max(sets) + 1))


def _pinned(update: Update, stride: int) -> tuple[dict[str, Span], list[dict[str, Span]]]:
    """Gives inputs their tensors in V; those that are concatenated lie side by side.

    Returns:
        Input name to span, and for each phase its concatenations that lie around inputs.
    """
    widths = {b.name: b.width for p in update.phases for b in p.program.inputs}
    inputs: dict[str, Span] = {}
    concats: list[dict[str, Span]] = []
    for phase in update.phases:
        program = phase.program
        homes = fuse(program).homes
        own = {b.name for b in program.inputs}
        buffers = {b.name: b.width for b in program.buffers()}
        concats.append({})
        for op in program.ops:
            free = {i for i in op.inputs if i in own and i not in inputs}
            once = len(free) == sum(i in free for i in op.inputs)
            if op.kind != "concat" or op.output is None or not free or not once:
                continue
            if op.output.name in homes or free != own & set(op.inputs):
                continue
            out = op.output
            tensor = Tensor(out.name, out.width, frozenset("V"), out.width * stride)
            span, start = Span(tensor, 0, out.width), 0
            concats[-1][out.name] = span
            for name in op.inputs:
                if name in free:
                    inputs[name] = span.part(start, start + buffers[name])
                start += buffers[name]
    for name, width in widths.items():
        if name not in inputs:
            tensor = Tensor(name, width, frozenset("V"), width * stride)
            inputs[name] = Span(tensor, 0, width)
    return inputs, concats
