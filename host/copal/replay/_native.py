# SPDX-License-Identifier: MIT
"""The native buffer's calls, with their types and documentation; the code is in `host/native`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from copal.native import native

if TYPE_CHECKING:

    class Batch:
        """A sampled batch: a mapping from column name to array, with ids and weights.

        Beside the schema's columns it holds `discount`, float32 [rows], gamma^k for a row that sums
        k rewards (also at terminations: a loss multiplies it by 1 - terminated), and `weight`, the
        same array as `weights`, under which name it is found too. Arrays are views of the batch's
        own memory, which a call of `sample(out=batch)` overwrites. `len` is the number of rows.
        """

        ids: NDArray[np.uint64]
        """Insertion counter of each row, for `update_priorities`."""
        weights: NDArray[np.float32]
        """Importance weight of each row, (N P)^-beta divided by the batch's largest."""

        def __getitem__(self, name: str) -> NDArray[Any]:
            """The column `name`, [rows, *shape]."""

        def __contains__(self, name: object) -> bool: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[str]: ...
        def keys(self) -> list[str]:
            """Names of the columns, `discount` and `weight` included."""

        def items(self) -> list[tuple[str, NDArray[Any]]]:
            """Names and arrays."""

    class NativeReplay:
        """Base of the buffers. Any number of threads may call anything at once."""

        capacity: int
        """Rows of the ring."""
        nbytes: int
        """Bytes of rows and tree, known at construction; memory is taken as it is first written."""
        total_priority: float
        """Sum of the priorities."""
        next_id: int
        """Id of the next row; ids count insertions and are never used twice."""

        def __init__(
            self,
            columns: list[tuple[str, str, tuple[int, ...]]],
            capacity: int,
            alpha: float,
            eps: float,
            fanout: int,
            n_step: int,
            gamma: float,
            share_next_obs: bool,
            clip_bad: bool,
            seed: int,
        ) -> None: ...

        def __len__(self) -> int: ...

        def add(
            self,
            *,
            stream: ArrayLike = 0,
            priority: ArrayLike | None = None,
            **columns: ArrayLike,
        ) -> NDArray[np.uint64]:
            """Adds one row, or many along a leading batch axis.

            Arrays must have their column's dtype; Python and NumPy scalars, lists and tensors are
            converted if their kind allows it (int to float, not float to int).

            Args:
                stream: The sequence that a row belongs to, an environment for instance: one number
                    or integers [rows], as an array or a list. Rows of a stream are in time order.
                    It matters for n_step > 1 and share_next_obs only: there a row whose `obs`
                    differs from the stream's last `next_obs` cuts the stream, so a batch of several
                    environments needs `stream=np.arange(environments)`.
                priority: Raw priorities >= 0, one number or float [rows]; a row without one enters
                    at the largest priority in the buffer, 1 if it is empty.
                **columns: A value for every column, [*shape] or [rows, *shape].

            Returns:
                Ids of the rows written by this call. With n_step > 1 a row is written once its
                return is complete, so these may be older rows, fewer or more than were given.

            Raises:
                SchemaError: A column is unknown, missing, or of another shape or dtype; the columns
                    disagree on the rows; there are none or more than `capacity`.
                PriorityError: A priority is NaN, infinite or negative.
                In each case the buffer is unchanged.
            """

        def end_episode(self, stream: int = 0) -> NDArray[np.uint64]:
            """Ends a stream that was cut without a flag; its pending rows bootstrap.

            Returns:
                Ids of the rows written by this call.
            """

        def sample(self, batch_size: int, beta: float = 0.4, out: Batch | None = None) -> Batch:
            """Draws rows with replacement, each with probability priority / total.

            Args:
                batch_size: Rows to draw.
                beta: Exponent of the importance weights, 0 to 1.
                out: A batch of the same size and columns, whose memory is used again.

            Raises:
                EmptyReplayError: No row can be drawn.
                ConfigError: `batch_size` or `beta` is out of range.
                SchemaError: `out` does not fit.
            """

        def update_priorities(self, ids: ArrayLike, td_error: ArrayLike) -> int:
            """Sets the priorities of sampled rows to (|td_error| + eps)^alpha.

            Of equal ids the last one wins.

            Args:
                ids: uint64 [rows], as sampled.
                td_error: float [rows], of any sign.

            Returns:
                The number of stale ids: rows that were overwritten meanwhile, whose new priority is
                dropped. With shared observations also rows that cannot be drawn yet.

            Raises:
                PriorityError: A TD error is NaN or infinite, or an id was never handed out; the
                    buffer is unchanged.
                SchemaError: Shapes or dtypes are wrong.
            """

        def column(self, name: str) -> NDArray[Any]:
            """A column in place, read-only, slot by slot: row `id` is at `id % capacity`.

            Raises:
                SchemaError: The column is unknown, or not stored since it is shared.
            """

        def stats(self) -> dict[str, int | float]:
            """Counters and figures.

            Keys: `rows` that can be drawn, `capacity`, rows `inserted` so far, rows `sampled`,
            priorities `updated`, `stale_updates` that were dropped, rows `redrawn` because an
            inserter overtook a sampler, bad priorities `clipped`, rows `pending` until they are
            complete, `cuts` of streams at a row that did not continue the one before, `streams`,
            `total_priority`, `max_priority`, `nbytes`.
            """

        def _leaves(self) -> NDArray[np.float32]: ...
        def _rows_from(self, first: int, most: int) -> Batch | None: ...
        def _set_leaves(self, first: int, leaf: ArrayLike) -> None: ...
        def _save(self, path: str, meta: str) -> None: ...
        def _load(self, path: str) -> None: ...
        @staticmethod
        def _read_meta(path: str) -> str: ...

else:
    Batch = native.Batch
    NativeReplay = native.Replay
