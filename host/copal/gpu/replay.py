# SPDX-License-Identifier: MIT
"""Prioritized replay in device memory: storage, 32-ary tree, draws, weights and new priorities.

    rows     [capacity][row: column | column | ...]        float32, int32 bits of indices
    tree     [level 0: leaves | level 1: sums of 32 | ...]  and maxima beside it, see tree.cuh
    batch    [column | column | ... | weight]               each [B, width], where the caller says

Row `id` lies in slot `id % capacity`. Not for several threads at once. Rows and draws are enqueued
in the order of the calls; only what gives numbers back waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import ConfigError, EmptyReplayError, PriorityError, SchemaError
from copal.gpu.device import DeviceBuffer, GpuDevice, GpuEvent, Launch, Pointer
from copal.gpu.replay_source import SET_THREADS, WARPS, Layout, column_layout, levels, unit

Array = NDArray[Any]
Columns = Mapping[str, tuple[int, str]]
"""Column name to width and `float32` or `int32`."""
_TD_ERROR, _RAW, _LARGEST = 0, 1, 2
_STAGED = 1024
"""Most rows that go to the device together."""
_STAGED_FLOATS = 2**20
"""The same for long rows."""
_STAGES = 4
"""Host buffers for rows on their way, so that nobody waits for a copy."""


class _Stage:
    """Host memory that rows, slots and priorities are copied to the device from."""

    def __init__(self, device: GpuDevice, rows: int, row_floats: int) -> None:
        def memory(floats: int) -> NDArray[np.float32]:
            pinned: NDArray[np.float32] = device.pinned(4 * floats).view(np.float32)
            return pinned

        self.rows = memory(rows * row_floats).reshape(rows, row_floats)
        self.slots = memory(rows).view(np.int32)
        self.values = memory(rows)
        self.copied: GpuEvent | None = None


@dataclass(frozen=True)
class Drawn:
    """A batch on the host."""

    columns: Mapping[str, Array]
    """Every column, [B, width]."""
    weight: NDArray[np.float32]
    """Importance weights, [B], the largest is 1."""
    ids: NDArray[np.uint64]
    """Numbers of insertion, [B]."""
    priorities: NDArray[np.float32]
    """As they are drawn by, [B]."""


class GpuReplay:
    """Replay buffer on a device that draws rows by priority (Schaul et al. 2016).

    Args:
        device: Holds and runs it; stays open when this object goes.
        capacity: Rows.
        columns: What a row consists of.
        batch_size: Rows of a batch.
        alpha: Exponent of priorities, 0 to 1.
        eps: Added to |TD error|.
        seed: Of the draws, below 2^64.
        places: Column, and `weight`, to its first float in a batch; None: one behind another.

    Attributes:
        beta: Exponent of the importance weights, as `set_beta` said.

    Raises:
        ConfigError: A setting is out of range.
        GpuMemoryError: The device has not enough memory.
        GpuCompileError: The kernels do not compile.
    """

    def __init__(
        self,
        device: GpuDevice,
        capacity: int,
        columns: Columns,
        batch_size: int,
        *,
        alpha: float = 0.6,
        eps: float = 1e-6,
        seed: int = 0,
        places: Mapping[str, int] | None = None,
    ) -> None:
        if not 1 <= capacity < 2**31:
            raise ConfigError("capacity", "1 to 2^31 - 1", str(capacity))
        if batch_size < 1:
            raise ConfigError("batch_size", "at least 1", str(batch_size))
        if not 0 <= alpha <= 1:
            raise ConfigError("alpha", "a number from 0 to 1", str(alpha))
        self._device, self.capacity, self.batch_size = device, capacity, batch_size
        self._alpha, self._eps = alpha, eps
        self._layout: Layout = column_layout(columns, batch_size, places)
        self._levels = levels(capacity)
        device.load(unit(self._layout, self._levels, batch_size, alpha, eps))
        row, size = self._layout.row_floats, self._levels[-1] + 32
        self._rows = device.allocate("replay rows", 4 * capacity * row)
        self._tree, self._maxima = (device.allocate(f"replay {w}", 4 * size)
                                    for w in ("tree", "maxima"))  # fmt: skip
        self._staged = max(1, min(_STAGED, _STAGED_FLOATS // row))
        self._staging = device.allocate("rows to add", 4 * self._staged * row)
        self._slots, self._drawn, self._values, self._zeros = (
            device.allocate(f"replay {what}", 4 * max(batch_size, self._staged))
            for what in ("slots", "draws", "priorities", "zeros")
        )
        self._stages = [_Stage(device, self._staged, row) for _ in range(_STAGES)]
        # Seed, number of the draw, beta, and whether a priority was refused.
        self._words = device.allocate("replay settings", 24)
        self._batch = Pointer(device.allocate("batch", 4 * self._layout.batch_floats))
        self._upload(self._words, np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32))
        self._inserted = 0
        self.beta = 0.0

    def __len__(self) -> int:
        return min(self._inserted, self.capacity)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._layout.columns)

    @property
    def inserted(self) -> int:
        """The id of the next row."""
        return self._inserted

    @property
    def drawn(self) -> Pointer:
        """Slots of the newest batch, int32 [B], on the device."""
        return Pointer(self._drawn)

    def start(self, draws: int) -> None:
        """Goes on behind so many draws of batches; the seed says what they were."""
        self._upload(self._words, np.array([draws], np.uint64), 8)

    def add(
        self,
        columns: Mapping[str, Array],
        priority: NDArray[np.float32] | None = None,
        *,
        first: int | None = None,
    ) -> NDArray[np.uint64]:
        """Inserts rows over the oldest ones; what is enqueued later sees them.

        Args:
            columns: Every column, [n, width] or, of width 1, [n].
            priority: Priorities as they are drawn by, [n]; None: the largest present.
            first: Id of the first row, at least `inserted`; None: `inserted`.

        Returns:
            Their ids, uint64 [n].

        Raises:
            SchemaError: A column is missing or has the wrong shape, or there are more rows than
                fit; nothing is changed.
            PriorityError: A priority is NaN, infinite or negative; nothing is changed.
        """
        rows = self._layout.pack(columns)
        n = len(rows)
        if not 1 <= n <= self.capacity:
            raise SchemaError(
                "add", f"1 to capacity = {self.capacity} rows", str(n),
                "add the rows in several calls",
            )  # fmt: skip
        if priority is not None:
            priority = np.ascontiguousarray(priority, np.float32)
            if priority.shape != (n,):
                raise SchemaError("priority", f"shape [{n}]", str(list(priority.shape)))
            if not (np.isfinite(priority) & (priority >= 0)).all():
                raise PriorityError("priority", "finite numbers from 0 on", "others")
        first = self._inserted if first is None else first
        if first < self._inserted:
            raise SchemaError("first", f"an id from {self._inserted} on", str(first))
        self._inserted = first
        ids = np.arange(first, first + n, dtype=np.uint64)
        parts = [slice(at, min(at + self._staged, n)) for at in range(0, n, self._staged)]
        if priority is None and int(ids[-1]) >= self.capacity:
            # Rows that go do not count among the priorities present.
            for part in parts:
                self._zero(ids[part])
        for part in parts:
            self._insert(rows[part], None if priority is None else priority[part])
        return ids

    def _insert(self, rows: Array, priority: NDArray[np.float32] | None) -> None:
        n, stage = len(rows), self._stage()
        stage.rows[:n] = rows
        stage.slots[:n] = (self._inserted + np.arange(n)) % self.capacity
        self._device.upload(Pointer(self._staging), stage.rows[:n])
        self._device.upload(Pointer(self._slots), stage.slots[:n])
        if priority is not None:
            stage.values[:n] = priority
            self._device.upload(Pointer(self._values), stage.values[:n])
        stage.copied = self._device.mark()
        mode = _LARGEST if priority is None else _RAW
        arguments = (Pointer(self._rows), Pointer(self._staging), Pointer(self._slots), n)
        grid = (-(-n // WARPS), 1)
        self._device.launch([Launch("replay_store", grid, 32 * WARPS, 0, arguments)])
        self._set(Pointer(self._slots), Pointer(self._values), n, mode)
        self._inserted += n

    def _zero(self, ids: NDArray[np.uint64]) -> None:
        """Sets the priorities of slots to zero."""
        n, stage = len(ids), self._stage()
        stage.slots[:n] = ids % np.uint64(self.capacity)
        self._device.upload(Pointer(self._slots), stage.slots[:n])
        stage.copied = self._device.mark()
        self._set(Pointer(self._slots), Pointer(self._zeros), n, _RAW)

    def _stage(self) -> _Stage:
        """Host memory that nothing is copied from any more."""
        stage = self._stages.pop(0)
        self._stages.append(stage)
        if stage.copied is not None:
            stage.copied.wait()
        return stage

    def enqueue_sample(
        self,
        batch: Pointer | None = None,
        *,
        beta: Pointer | None = None,
        drawn: Pointer | None = None,
    ) -> None:
        """Enqueues a draw: the batch, its weights and its slots are there behind it.

        Args:
            batch: Where it goes; None: memory of the replay's own.
            beta: Exponent of the weights, float32 on the device; None: as `set_beta` said.
            drawn: Where the slots go, int32 [B]; None: `drawn`.
        """
        n, words, to = self.batch_size, self._words, batch or self._batch
        grid = (-(-n // WARPS), 1)
        slots, values = drawn or self.drawn, Pointer(self._values)
        draw = (Pointer(self._tree), Pointer(words, 8), Pointer(words), slots, values)
        gather = (Pointer(self._rows), slots, to)
        weigh = (values, beta or Pointer(words, 16), to, Pointer(words, 8))
        self._device.launch(
            [
                Launch("replay_draw", grid, 32 * WARPS, 0, draw),
                Launch("replay_gather", grid, 32 * WARPS, 0, gather),
                Launch("replay_weights", (1, 1), 32 * WARPS, 128, weigh),
            ]
        )

    def enqueue_update(self, td_error: Pointer, *, drawn: Pointer | None = None) -> None:
        """Enqueues new priorities of a batch.

        Args:
            td_error: float32 [B] on the device.
            drawn: Its slots, int32 [B]; None: `drawn`.
        """
        self._set(drawn or self.drawn, td_error, self.batch_size, _TD_ERROR)

    def clear(self) -> None:
        """Lets priorities change again after one that was none was refused on the device."""
        self._upload(self._words, np.zeros(1, np.int32), 20)

    def set_beta(self, beta: float) -> None:
        """Exponent of the importance weights of the draws that follow.

        Raises:
            ConfigError: It is not in [0, 1].
        """
        if not 0 <= beta <= 1:
            raise ConfigError("beta", "a number from 0 to 1", str(beta))
        self.beta = beta
        self._upload(self._words, np.array([beta], np.float32), 16)

    def sample(self, beta: float = 0.4) -> Drawn:
        """Draws a batch and copies it to the host.

        Raises:
            EmptyReplayError: There is no row with a priority above 0.
            ConfigError: `beta` is not in [0, 1].
        """
        if not self._inserted:
            raise EmptyReplayError("replay", "at least one row", "no row", "add rows first")
        self.set_beta(beta)
        self.enqueue_sample()
        flat = np.empty(self._layout.batch_floats, np.float32)
        slots = np.empty(self.batch_size, np.int32)
        priorities = np.empty(self.batch_size, np.float32)
        self._device.download(flat, self._batch)
        self._device.download(slots, Pointer(self._drawn))
        self._device.download(priorities, Pointer(self._values))
        self._device.mark().wait()
        if not (priorities > 0).all():
            raise EmptyReplayError(
                "replay", "a row with a priority above 0", f"{len(self)} rows with priority 0",
                "give a row a priority above 0, or set eps above 0",
            )  # fmt: skip
        columns = self._layout.unpack(flat)
        weight = columns.pop("weight")[:, 0]
        return Drawn(columns, weight, self.ids(slots, self._inserted), priorities)

    def update_priorities(self, td_error: NDArray[np.float32]) -> None:
        """Sets the priorities of the newest batch.

        Args:
            td_error: [B].

        Raises:
            SchemaError: It has another shape.
            PriorityError: One is NaN or infinite; nothing is changed.
        """
        values = np.ascontiguousarray(td_error, np.float32)
        if values.shape != (self.batch_size,):
            raise SchemaError("td_error", f"shape [{self.batch_size}]", str(list(values.shape)))
        self._upload(self._values, values)
        self.enqueue_update(Pointer(self._values))
        bad = np.empty(1, np.int32)
        self._device.download(bad, Pointer(self._words, 20))
        self._device.mark().wait()
        if bad[0]:
            self.clear()
            raise PriorityError("td_error", "finite numbers", "NaN or infinity")

    def priorities(self) -> NDArray[np.float32]:
        """A copy of every row's priority, float32 [rows], slot by slot."""
        leaves = np.empty(len(self), np.float32)
        self._device.download(leaves, Pointer(self._tree))
        self._device.mark().wait()
        return leaves

    def ids(self, slots: NDArray[np.int32], inserted: int) -> NDArray[np.uint64]:
        """Numbers of insertion of slots, uint64 [n], as they were when `inserted` rows had come."""
        newest = inserted - 1
        age = (newest % self.capacity - slots.astype(np.int64)) % self.capacity
        return (newest - age).astype(np.uint64)

    def _set(self, slots: Pointer, values: Pointer, n: int, mode: int) -> None:
        tree = (Pointer(self._tree), Pointer(self._maxima))
        arguments = (*tree, slots, values, n, mode, Pointer(self._words, 20))
        self._device.launch([Launch("replay_set", (1, 1), SET_THREADS, 0, arguments)])

    def _upload(self, buffer: DeviceBuffer, values: Array, offset: int = 0) -> None:
        self._device.upload(Pointer(buffer, offset), values)
        self._device.mark().wait()
