# SPDX-License-Identifier: MIT
"""Counts what the kernels of a plan do: operations, bytes, blocks, and the least time for it."""

from __future__ import annotations

from dataclasses import dataclass

from copal.gpu.layout import pad
from copal.gpu.plan import FLOAT_BYTES, GpuPlan, PhasePlan
from copal.gpu.segments import PRODUCTS, Heavy
from copal.program.cost import cost


@dataclass(frozen=True)
class Card:
    """What a GPU can do at most."""

    name: str
    """Whose figures these are."""
    multiprocessors: int
    """Blocks of a gradient that run at the same time."""
    flops: float
    """Float32 operations a second of the whole GPU, a multiply and an add counted as two."""
    l2_bytes: float
    """Bytes a second between the L2 cache and all multiprocessors."""
    port_bytes: float
    """Bytes a second between the L2 cache and one multiprocessor."""


H100 = Card("H100 SXM, H200", 132, 67e12, 5.5e12, 64 * 1.755e9)
"""Data sheet; 64 bytes a clock and multiprocessor, and 5.5 TB/s, as published measurements of the
L2 cache have it."""


@dataclass(frozen=True)
class PhaseCount:
    """One phase of one update, all agents."""

    name: str
    """Of its Program."""
    blocks: int
    """Of the gradient."""
    shared_bytes: int
    """Shared memory of a block."""
    workspace_bytes: int
    """Row buffers in global memory, of all blocks."""
    flops: int
    """Floating-point operations of the gradient."""
    gradient_bytes: int
    """Weights read by all blocks, shares written, the batch."""
    reduce_bytes: int
    """Shares read; parameters, moments and targets read and written."""
    kernels: int
    """Kernels: two, three with clipping."""

    def floor_s(self, card: Card) -> float:
        """Seconds that it takes at least, without starting the kernels."""
        waves = -(-self.blocks // card.multiprocessors)
        work = self.flops / self.blocks / (card.flops / card.multiprocessors)
        port = self.gradient_bytes / self.blocks / card.port_bytes
        gradient = max(waves * max(work, port), self.gradient_bytes / card.l2_bytes)
        return gradient + self.reduce_bytes / card.l2_bytes


def count(plan: GpuPlan) -> tuple[PhaseCount, ...]:
    """Counts each phase of one update of `plan`."""
    return tuple(_count(plan, phase) for phase in plan.phases)


def _count(plan: GpuPlan, phase: PhasePlan) -> PhaseCount:
    shares, agents = plan.shares, plan.agents
    blocks = shares.count * agents
    row_blocks = -(-shares.each // shares.rows) * blocks
    weights = sum(
        pad(s.op.attrs["fan_in"]) * pad(s.op.attrs["fan_out"])
        for s in phase.steps
        if isinstance(s, Heavy) and s.op.kind in PRODUCTS
    )
    size = plan.layouts[phase.network].padded
    columns = sum(b.width for b in phase.program.inputs) * plan.batch_size * agents
    # Every row block after a share's first one reads the share and writes it again.
    share_moves = size * (2 * row_blocks - blocks)
    clipped = phase.phase.max_grad_norm is not None
    targets = sum(t.source == phase.network for t in plan.update.targets)
    moves = size * agents * (6 + 2 * targets + 2 * clipped)
    return PhaseCount(
        name=phase.program.name,
        blocks=blocks,
        shared_bytes=FLOAT_BYTES * phase.placement.shared_floats,
        workspace_bytes=FLOAT_BYTES * phase.placement.workspace_floats * blocks,
        flops=cost(phase.program, plan.batch_size).flops * agents,
        gradient_bytes=FLOAT_BYTES * (weights * row_blocks + share_moves + columns),
        reduce_bytes=FLOAT_BYTES * (size * blocks + moves),
        kernels=3 if clipped else 2,
    )
