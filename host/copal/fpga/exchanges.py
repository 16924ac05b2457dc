# SPDX-License-Identifier: MIT
"""The exchange of one update: scalars and rows in, TD errors and ranges out.

scalars of each phase, then for each phase
    for each block of rows: LOAD its columns, RUN the row program, DUMP outputs
    RUN the optimiser step
    DUMP ranges
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.fpga.compiler.plan import Block, Column, Plan, Run
from copal.fpga.device import FpgaDevice
from copal.fpga.isa import SET_SIZE, ErrorCode, Memory
from copal.fpga.packet import Field, Script, Status

K_WORDS = SET_SIZE // 2
"""Words of a set of scalars."""
ROLES = ("td_error", "loss")
"""Outputs that are dumped."""


@dataclass(frozen=True)
class Outcome:
    """What an update gave."""

    statuses: tuple[Status, ...]
    """After each RUN."""
    outputs: Mapping[tuple[int, str], NDArray[np.float32]]
    """Phase and role to values, float32 [B]."""
    ranges: tuple[NDArray[np.uint64], ...]
    """Entries of RANGE of each phase, in the order of `Plan.scales`."""

    @property
    def failed(self) -> int | None:
        """Number of the first RUN with an error, None: there is none."""
        bad = (i for i, s in enumerate(self.statuses) if s.code != ErrorCode.NONE)
        return next(bad, None)


@dataclass(frozen=True)
class _Part:
    """Columns of one block on their way in or out."""

    name: str
    phase: int
    column: Column
    block: Block
    place: Field


@dataclass
class _Fields:
    """Where an update's data lie in its packets."""

    scalars: dict[int, Field] = field(default_factory=dict)
    inputs: list[_Part] = field(default_factory=list)
    outputs: list[_Part] = field(default_factory=list)
    statuses: list[Field] = field(default_factory=list)
    ranges: list[Field] = field(default_factory=list)


class UpdateExchange:
    """Updates that consist of the same RUNs.

    Args:
        device: The engine.
        plan: What to run.
        runs: Of these updates.

    Attributes:
        bytes_sent: Of one update.
        bytes_received: Of one update.
    """

    def __init__(self, device: FpgaDevice, plan: Plan, runs: Sequence[Run]) -> None:
        self._plan, self._fields = plan, _Fields()
        self._resident: set[str] = set()
        script = Script(plan.config)
        for set_ in dict.fromkeys(run.scalars for run in runs if run.scalars is not None):
            self._fields.scalars[set_] = script.load(Memory.K, K_WORDS * set_, K_WORDS)
        block: Block | None = None
        for run, follower in zip(runs, [*runs[1:], None], strict=True):
            block = run.block or block
            self._add(script, run, follower, block)
        self._exchange = script.ready(device)
        self.bytes_sent = self._exchange.bytes_sent
        self.bytes_received = self._exchange.bytes_received

    def _add(self, script: Script, run: Run, follower: Run | None, block: Block | None) -> None:
        """One RUN, what it needs, and what has to be read before `follower`."""
        fields, plan = self._fields, self._plan
        if run.block is not None and run.phase is not None:
            self._load(script, run.phase, run.block)
        fields.statuses.append(script.run(run.entry.pc, accumulate=run.accumulate))
        ends = follower is None or follower.block is not None or follower.scalars is not None
        if ends and run.scalars is None and run.phase is not None and block is not None:
            outputs = plan.phases[run.phase].outputs
            for role in ROLES:
                if role in outputs:
                    column = outputs[role]
                    place = script.dump(Memory.V, column.address, column.width * plan.stride)
                    fields.outputs.append(_Part(role, run.phase, column, block, place))
        if follower is None or not follower.accumulate:
            # A RUN that does not accumulate clears them.
            fields.ranges.append(script.dump(Memory.RANGE, 0, len(plan.scales)))

    def _load(self, script: Script, phase: int, block: Block) -> None:
        """Columns of a block; in a batch of one block those of an earlier phase are still there."""
        whole = len(self._plan.phases[phase].blocks) == 1
        for column in self._plan.phases[phase].inputs:
            if whole and column.name in self._resident:
                continue
            place = script.load(Memory.V, column.address, column.width * self._plan.stride)
            self._fields.inputs.append(_Part(column.name, phase, column, block, place))
            self._resident.add(column.name)

    def run(
        self,
        columns: Mapping[str, NDArray[Any]],
        scalars: Mapping[int, NDArray[np.float32]],
        timeout_s: float,
    ) -> Outcome:
        """Runs one update.

        Args:
            columns: Batch column to float32 [B, width].
            scalars: Set of K to its registers, float32 [16].
            timeout_s: Limit of each transfer.

        Raises:
            FpgaTimeoutError: The device stopped answering; it has been reset.
        """
        for set_, place in self._fields.scalars.items():
            place.put(scalars[set_])
        p, stride = self._plan.config.array_size, self._plan.stride
        for part in self._fields.inputs:
            rows = columns[part.name][part.block.first : part.block.first + part.block.rows]
            part.place.put(to_words(rows, stride, p))
        self._exchange.send("update", timeout_s)
        return Outcome(
            tuple(Status.of(s.take()) for s in self._fields.statuses),
            self._outputs(),
            tuple(f.take() for f in self._fields.ranges),
        )

    def _outputs(self) -> dict[tuple[int, str], NDArray[np.float32]]:
        found: dict[tuple[int, str], NDArray[np.float32]] = {}
        for part in self._fields.outputs:
            values = part.place.take().view(np.float32)[: part.block.rows]
            key = (part.phase, part.name)
            found[key] = np.concatenate([found[key], values]) if key in found else values
        return found


def to_words(rows: NDArray[Any], stride: int, p: int) -> NDArray[np.float32]:
    """Columns as V holds them: float32 [width * stride, p], from [rows, width]; zeros behind.

    Args:
        rows: At most `stride * p` of them.
        stride: Words of a column.
        p: Lanes of a word.
    """
    n, width = rows.shape
    padded = np.zeros((width, stride * p), np.float32)
    padded[:, :n] = rows.T
    return padded.reshape(width * stride, p)
