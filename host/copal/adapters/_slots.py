# SPDX-License-Identifier: MIT
"""From the slots of a ring, which frameworks call indices, to the ids of its rows.

Row `id` of a buffer stands in slot `id % capacity`. A slot that a framework hands back means the
row that was drawn there, if it is the last draw that comes back, and else the row now in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from copal.errors import SchemaError
from copal.replay import Batch, PrioritizedReplay

Ids = NDArray[np.int64]


def slots_of(ids: NDArray[Any], capacity: int) -> Ids:
    """Slots of rows, int64 [rows]."""
    return (ids % np.uint64(capacity)).astype(np.int64)


def rows_in(slots: ArrayLike, replay: PrioritizedReplay) -> Ids:
    """Ids of the rows that are in `slots` now, int64 [slots].

    Raises:
        SchemaError: A slot is out of range, or nothing was written there yet.
    """
    places = np.asarray(slots, dtype=np.int64)
    newest = replay.next_id - 1
    ids = newest - (newest - places) % replay.capacity
    filled = min(replay.next_id, replay.capacity)
    if places.size and not (places.min() >= 0 and places.max() < filled):
        wrong = places[(places < 0) | (places >= filled)]
        raise SchemaError("index", f"0 to {filled - 1}, the rows held", str(wrong.flat[0]))
    return ids


def as_stored(
    columns: dict[str, NDArray[Any]], dtypes: dict[str, np.dtype[Any]]
) -> dict[str, NDArray[Any]]:
    """Columns in the dtypes of the first rows, which frameworks vary within a kind (int32, int64).

    Raises:
        SchemaError: One is of another kind.
    """
    stored = {}
    for name, values in columns.items():
        dtype = dtypes.get(name, values.dtype)
        if not np.can_cast(values.dtype, dtype, "same_kind"):
            raise SchemaError(name, dtype.name, values.dtype.name)
        stored[name] = values.astype(dtype, copy=False)
    return stored


class LastDraw:
    """The batch that was drawn last, so that its priorities find the rows that were drawn."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.slots: Ids = np.empty(0, np.int64)

    def keep(self, batch: Batch, capacity: int) -> Ids:
        """Notes a batch and returns its slots, int64 [rows]."""
        self.batch, self.slots = batch, slots_of(batch.ids, capacity)
        return self.slots

    def forget(self) -> None:
        """Drops the batch."""
        self.batch, self.slots = None, np.empty(0, np.int64)

    def holds(self, slots: NDArray[Any]) -> bool:
        """Whether `slots` are those of the batch, in its order."""
        return self.batch is not None and (slots is self.slots or np.array_equal(slots, self.slots))

    def ids(self, slots: NDArray[Any], replay: PrioritizedReplay) -> NDArray[np.uint64]:
        """Ids to which a framework's `slots` refer, uint64 [slots].

        Raises:
            SchemaError: A slot is out of range.
        """
        if self.batch is not None and self.holds(slots):
            return self.batch.ids
        return rows_in(slots, replay).astype(np.uint64)
