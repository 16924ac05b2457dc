// SPDX-License-Identifier: MIT
// Documentation of the calls that Python makes, as `help` shows it.
//
// Cost: none at run time. Limits: none. Stateless.
//
//   "name(signature)\n--\n\ntext"   of a C function: the interpreter splits the signature off
//   "text"                          of any other: nanobind writes the signature
#pragma once

namespace replay_docs {

inline constexpr char kAdd[] = R"(add($self, /, *, stream=0, priority=None, **columns)
--

Adds one row, or many along a leading batch axis.

Arrays must have their column's dtype; Python and NumPy scalars, lists and tensors are converted
if their kind allows it (int to float, not float to int).

Args:
    stream: The sequence that a row belongs to, an environment for instance: one number of at
        least 0, or integers [rows] as an array or a list. Rows of a stream are in time order. It
        matters for n_step > 1 and share_next_obs only: there a row whose `obs` differs from the
        stream's last `next_obs` cuts the stream, so a batch of several environments needs
        `stream=np.arange(environments)`.
    priority: Raw priorities >= 0, one number for one row or float [rows]; a row without one
        enters at the largest priority in the buffer, 1 if it is empty.
    **columns: A value for every column, [*shape] or [rows, *shape].

Returns:
    uint64 ids of the rows written by this call. With n_step > 1 a row is written once its return
    is complete, so these may be older rows, fewer or more than were given.

Raises:
    SchemaError: A column is unknown, missing, or of another shape or dtype; the columns disagree
        on the rows; there are none or more than `capacity`; `stream` or `priority` does not fit.
    PriorityError: A priority is NaN, infinite or negative.
    In each case the buffer is unchanged.
)";

inline constexpr char kSample[] = R"(sample($self, /, batch_size, beta=0.4, out=None)
--

Draws rows with replacement, each with probability priority / total.

Args:
    batch_size: Rows to draw.
    beta: Exponent of the importance weights, 0 to 1.
    out: A batch of the same size and columns, whose memory is used again.

Returns:
    A Batch: a mapping from column name to array [batch_size, *shape], with `discount` and
    `weight`, and the attributes `ids` uint64 and `weights` float32.

Raises:
    EmptyReplayError: No row can be drawn.
    ConfigError: `batch_size` or `beta` is out of range.
    SchemaError: `out` does not fit.
)";

inline constexpr char kUpdate[] = R"(update_priorities($self, /, ids, td_error)
--

Sets the priorities of sampled rows to (|td_error| + eps)^alpha. Of equal ids the last one wins.

Args:
    ids: uint64 [rows], as sampled: `batch.ids`.
    td_error: float [rows], of any sign.

Returns:
    The number of stale ids: rows that were overwritten meanwhile, whose new priority is dropped.
    With shared observations also rows that cannot be drawn yet.

Raises:
    PriorityError: A TD error is NaN or infinite, or an id was never handed out; the buffer is
        unchanged.
    SchemaError: Shapes or dtypes are wrong.
)";

inline constexpr char kEndEpisode[] =
    R"(Ends a stream that was cut without a flag; its pending rows bootstrap.

Args:
    stream: The number given to `add`. A stream without pending rows is left as it is.

Returns:
    uint64 ids of the rows written by this call.
)";

inline constexpr char kColumn[] =
    R"(A column in place, read-only, slot by slot: row `id` is at `id % capacity`.

Args:
    name: A column of the schema.

Returns:
    A view [rows, *shape] of the buffer's own memory, which later rows overwrite.

Raises:
    SchemaError: The column is unknown, or not stored since it is shared.
)";

inline constexpr char kStats[] = R"(Counters and figures.

Returns:
    A dict: `rows` that can be drawn, `capacity`, rows `inserted` so far, rows `sampled`,
    priorities `updated`, `stale_updates` that were dropped, rows `redrawn` because an inserter
    overtook a sampler, bad priorities `clipped`, rows `pending` until they are complete, `cuts`
    of streams at a row that did not continue the one before, `streams`, `total_priority`,
    `max_priority`, `nbytes`.
)";

inline constexpr char kBatch[] =
    R"(A sampled batch: a mapping from column name to array, with ids and weights.

Beside the schema's columns it holds `discount`, float32 [rows], gamma^k for a row that sums k
rewards (also at terminations: a loss multiplies it by 1 - terminated), and `weight`, the same
array as `weights`, under which name it is found too. Arrays are views of the batch's own memory,
which a call of `sample(out=batch)` overwrites. `len` is the number of rows.
)";

}  // namespace replay_docs
