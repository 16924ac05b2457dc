# SPDX-License-Identifier: MIT
"""Host buffers: batches as the device wants them, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import SchemaError
from copal.gpu.plan import GpuPlan
from copal.gpu.sequence import HEAD_BYTES

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Slot:
    """A host buffer in each direction."""

    upload: NDArray[np.uint8]
    """The number of the launch in the first `HEAD_BYTES`, then batches, [update][agent]."""
    download: NDArray[np.uint8]
    """A word a kernel, then TD errors, [update][agent][B]."""

    def start(self, launch: int) -> None:
        """Writes the number of the launch."""
        self.upload[:4].view(np.int32)[0] = launch

    def batch(self, number: int, floats: int) -> NDArray[np.float32]:
        """Place of the batch of update * agents + agent, float32 [floats]."""
        return self.upload[HEAD_BYTES:].view(np.float32)[number * floats : (number + 1) * floats]

    def words(self) -> NDArray[np.int32]:
        """The downloaded words, TD errors behind them."""
        return self.download.view(np.int32)


class BatchWriter:
    """Puts batches into a host buffer as the device wants them.

    Args:
        plan: Its columns.
    """

    def __init__(self, plan: GpuPlan) -> None:
        self._plan = plan
        self._indices = _indices(plan)

    def given(self, batch: Mapping[str, Array]) -> int:
        """Bits of the noise streams that are columns of the batch."""
        columns = self._plan.columns.items()
        return sum(1 << c.stream for n, c in columns if c.stream is not None and n in batch)

    def write(self, batch: Mapping[str, Array], to: NDArray[np.float32]) -> None:
        """Writes a batch.

        Args:
            batch: A column for each input, with B rows; noise may be left out.
            to: float32 [batch_floats].

        Raises:
            SchemaError: A column is missing, has another shape, or an index is out of range.
        """
        rows = self._plan.batch_size
        checked = {}
        for name, column in self._plan.columns.items():
            if name not in batch:
                if column.stream is None:
                    raise SchemaError(name, "a column of this name", ", ".join(batch))
                continue
            values, width = np.asarray(batch[name]), column.buffer.width
            if values.shape not in ((rows, width), *([(rows,)] if width == 1 else [])):
                raise SchemaError(name, f"shape [{rows}, {width}]", f"shape {values.shape}")
            choices = self._indices.get(name)
            if choices is not None and not ((values >= 0) & (values < choices)).all():
                raise SchemaError(name, f"indices from 0 to {choices - 1}", str(values.max()))
            checked[name] = values
        for name, values in checked.items():
            self._part(name, to)[:] = values.reshape(rows, -1)

    def read(self, part: NDArray[np.float32], given: int) -> dict[str, Array]:
        """The columns that `write` has written, [B, width]; noise only where it was given."""
        columns = self._plan.columns.items()
        names = [n for n, c in columns if c.stream is None or given >> c.stream & 1]
        return {name: self._part(name, part).copy() for name in names}

    def _part(self, name: str, batch: NDArray[np.float32]) -> Array:
        column = self._plan.columns[name]
        shape = (self._plan.batch_size, column.buffer.width)
        part = batch[column.offset : column.offset + shape[0] * shape[1]].reshape(shape)
        return part.view(np.int32) if column.buffer.dtype == "int32" else part


def _indices(plan: GpuPlan) -> dict[str, int]:
    """Columns that are indices into a row, and how many numbers the row has."""
    found: dict[str, int] = {}
    for phase in plan.phases:
        widths = {b.name: b.width for b in phase.program.buffers()}
        for op in phase.program.ops:
            if op.kind == "gather" and op.inputs[1] in plan.columns:
                width = widths[op.inputs[0]]
                found[op.inputs[1]] = min(width, found.get(op.inputs[1], width))
    return found
