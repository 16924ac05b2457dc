# SPDX-License-Identifier: MIT
"""What lies where and who does what when an Update runs on a GPU.

batch    [agent][ column | column | ... ]           float32, int32 bits of indices
td       [agent][B]                                 of the first phase that runs
outputs  [agent][ phase 0: role [B, width] | ... ]
shares   [agent][share][padded parameters]          of the phase that is running
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from copal.errors import ConfigError
from copal.gpu.formulas import RowCode, constants
from copal.gpu.layout import VectorLayout, layouts, pad
from copal.gpu.places import Lifetime, Placement, place
from copal.gpu.segments import Heavy, Light, Step, Store, steps
from copal.gpu.tiling import Shares, shares
from copal.program import Buffer, Phase, Program, Update

REDUCE_THREADS = 128
"""Threads a block of the reduce step, four parameters each."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class PlanOptions:
    """What may be chosen."""

    learners: int = 1
    """Shares of a batch; 1: as many as are good."""
    agents: int = 1
    """Independent learners with networks and batches of their own, an axis of the grid."""
    rows: int | None = None
    """Rows that a block holds at a time; None: by the batch."""
    threads: int | None = None
    """Threads a block; None: 256, or 128 where no layer has more than 64 outputs."""
    shared_bytes: int = 227 * 1024
    """Shared memory of a block; the default is that of an H100."""


@dataclass(frozen=True)
class Column:
    """An input in the batch."""

    buffer: Buffer
    """The Program's input."""
    offset: int
    """First float in an agent's batch."""
    stream: int | None
    """Of noise, its number."""


@dataclass(frozen=True)
class PhasePlan:
    """One phase."""

    number: int
    """Position in the Update."""
    phase: Phase
    """What it computes."""
    steps: tuple[Step, ...]
    """In order."""
    placement: Placement
    """Of buffers that have a place in memory."""
    padded: frozenset[str]
    """Buffers that dense products read."""
    outputs: Mapping[str, int]
    """Role to first float in an agent's outputs."""

    @property
    def program(self) -> Program:
        """The row program."""
        return self.phase.program

    @property
    def network(self) -> str:
        """The network that is trained."""
        return str(self.phase.program.gradient)


@dataclass(frozen=True)
class GpuPlan:
    """An Update on a GPU."""

    update: Update
    """What runs."""
    batch_size: int
    """Rows of a batch."""
    agents: int
    """Independent learners."""
    threads: int
    """Threads a block of the gradient."""
    shares: Shares
    """Of the batch."""
    layouts: Mapping[str, VectorLayout]
    """Network to layout."""
    columns: Mapping[str, Column]
    """Input to place in the batch."""
    batch_floats: int
    """Of an agent."""
    output_floats: int
    """Of an agent."""
    phases: tuple[PhasePlan, ...]
    """In order."""

    @property
    def share_floats(self) -> int:
        """Shares of the gradient, of all agents, for the largest network."""
        largest = max(self.layouts[p.network].padded for p in self.phases)
        return largest * self.shares.count * self.agents

    @property
    def workspace_floats(self) -> int:
        """Row buffers beyond shared memory, of all blocks."""
        largest = max(p.placement.workspace_floats for p in self.phases)
        return largest * self.shares.count * self.agents

    def reduce_blocks(self, network: str) -> int:
        """Blocks of the reduce step of a network."""
        return -(-self.layouts[network].padded // (4 * REDUCE_THREADS))


def plan(update: Update, batch_size: int, options: PlanOptions | None = None) -> GpuPlan:
    """Plans `update`.

    Args:
        update: What is to run.
        batch_size: Rows of a batch.
        options: What may be chosen; None: the defaults.

    Raises:
        ConfigError: An option does not fit.
        ProgramError: A network's layers overlap in a way that no layout has.
    """
    options = options or PlanOptions()
    if options.agents < 1:
        raise ConfigError("agents", "at least 1", str(options.agents))
    divided = shares(batch_size, options.learners, options.rows)
    threads = options.threads or _threads(update)
    if threads % 32 or not 32 <= threads <= 1024:
        raise ConfigError("threads", "a multiple of 32 up to 1024", str(threads))
    columns, batch_floats = _columns(update, batch_size)
    laid = layouts(update)
    phases, at = [], 0
    for number, phase in enumerate(update.phases):
        outputs, at = _outputs(phase.program, batch_size, at)
        found = tuple(steps(phase.program))
        padded = frozenset(n for s in found if isinstance(s, Heavy) for n in s.op.inputs)
        kept = _kept(phase.program, found, padded, laid)
        placement = place(
            _lifetimes(phase.program, found, kept, divided.rows),
            options.shared_bytes // FLOAT_BYTES,
        )
        phases.append(PhasePlan(number, phase, found, placement, padded, outputs))
    return GpuPlan(
        update=update,
        batch_size=batch_size,
        agents=options.agents,
        threads=threads,
        shares=divided,
        layouts=laid,
        columns=columns,
        batch_floats=batch_floats,
        output_floats=max(at, 4),
        phases=tuple(phases),
    )


def _threads(update: Update) -> int:
    dense = (o for p in update.phases for o in p.program.ops if o.kind.startswith("dense"))
    widest = max((max(o.attrs["fan_out"], o.attrs["fan_in"]) for o in dense), default=1)
    return 256 if widest > 64 else 128


def _columns(update: Update, batch_size: int) -> tuple[dict[str, Column], int]:
    streams = {name: stream for stream, name in enumerate(update.noises())}
    columns: dict[str, Column] = {}
    at = 0
    for phase in update.phases:
        for b in phase.program.inputs:
            if b.name not in columns:
                columns[b.name] = Column(b, at, streams.get(b.name))
                at += pad(b.width * batch_size)
    return columns, at


def _outputs(program: Program, batch_size: int, at: int) -> tuple[dict[str, int], int]:
    widths = {b.name: b.width for b in program.buffers()}
    outputs = {}
    for role, name in program.outputs.items():
        outputs[role] = at
        at += pad(widths[name] * batch_size)
    return outputs, at


def _kept(
    program: Program,
    found: tuple[Step, ...],
    padded: frozenset[str],
    laid: Mapping[str, VectorLayout],
) -> set[str]:
    """Buffers that need a place in memory."""
    known = constants(program)
    home = {}
    for i, step in enumerate(found):
        for name in written(step):
            home[name] = i
    kept = set(padded)
    for i, step in enumerate(found):
        if isinstance(step, Heavy):
            kept |= {n for n in (step.output, step.mask) if n is not None}
        else:
            kept |= {n for n in read(step) if home.get(n, -1) != i and n not in known}
            kept |= {
                o.output.name
                for o in step.ops
                if not isinstance(o, Store) and o.kind == "concat" and o.output
            }
    while True:
        more: set[str] = set()
        for step in found:
            if isinstance(step, Light):
                code = RowCode(program, laid, kept, padded, dict.fromkeys(program.outputs, ""))
                code.body(step)
                more |= code.demanded
        if more <= kept:
            return kept
        kept |= more


def read(step: Step) -> set[str]:
    """Buffers that a step reads."""
    if isinstance(step, Heavy):
        return {*step.op.inputs, *([step.mask] if step.mask else [])}
    return {n for o in step.ops for n in ((o.buffer,) if isinstance(o, Store) else o.inputs)}


def written(step: Step) -> set[str]:
    """Buffers that a step writes."""
    if isinstance(step, Heavy):
        return {step.output} if step.output else set()
    return {o.output.name for o in step.ops if not isinstance(o, Store) and o.output}


def _lifetimes(
    program: Program, found: tuple[Step, ...], kept: set[str], rows: int
) -> list[Lifetime]:
    first = {b.name: -1 for b in program.inputs}
    last: dict[str, int] = {}
    for i, step in enumerate(found):
        for name in written(step):
            first[name] = last[name] = i
        for name in read(step):
            last[name] = i
    return [
        Lifetime(b.name, rows * pad(b.width), first[b.name], last[b.name])
        for b in program.buffers()
        if b.name in kept and b.name in last
    ]
