# SPDX-License-Identifier: MIT
"""Prioritized and uniform replay buffers over the native one."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from typing_extensions import Self

from copal.errors import CheckpointError, ConfigError, SchemaError
from copal.replay._native import Batch, NativeReplay

__all__ = ["Batch", "PrioritizedReplay", "UniformReplay"]

Columns = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
"""Column name to the shape of one row and the dtype."""

_MOST_DIMENSIONS = 31
"""With the axis of rows as many as every version of NumPy has."""
_BITS = {"capacity": 32, "seed": 64}
"""Bits of the integer settings that are not of 31."""
_RESERVED = ("stream", "priority", "discount", "weight")


class PrioritizedReplay(NativeReplay):
    """Replay buffer that draws rows by priority (Schaul et al. 2016).

    A row's priority is (|TD error| + eps)^alpha. Rows live in a ring of `capacity`; a K-ary sum
    tree finds the row of a draw in O(log_K capacity). Any number of threads may make any call.

    `add(**columns, stream=0, priority=None)` takes one row or a batch and returns ids; `stream`
    tells sequences apart, one number or one a row (`np.arange(environments)` for a batched
    environment), and `priority` gives raw priorities in place of the largest present.
    `end_episode(stream)` ends a sequence that stops without a flag. `sample(batch_size, beta)`
    returns a `Batch`. `update_priorities(batch.ids, td_error)` returns the number of stale ids,
    which were overwritten meanwhile and are dropped.

    Args:
        capacity: Rows, 1 to 2^32 - 1.
        columns: Column name to (shape, dtype) of one row. `n_step` and `share_next_obs` go by the
            names `obs`, `reward`, `next_obs`, `terminated`, `truncated`.
        alpha: Exponent of priorities, 0 (uniform) to 1.
        eps: Added to |TD error|, so that no row is starved.
        fanout: Children of a tree node: 2, 4, 8, 16, 32 or 64.
        n_step: Rewards summed into a row. A row's next observation and flags are those n steps
            later; it is shortened at the end of an episode, and never crosses it. Where a stream's
            `obs` differs from its last `next_obs` (a reset without a flag, or rows of several
            environments in one stream), the episode is taken to have been cut there, so returns
            are always of one sequence; `stats()["cuts"]` counts these.
        gamma: Discount a step, 0 to 1.
        share_next_obs: Store each observation once and take `next_obs` from the row n steps later.
            Memory is nearly halved; a row can be drawn one step later, and each episode's end takes
            one more row. Streams are cut as with `n_step`, so samples are always exact.
        seed: Seed of the draws.
        on_bad: What to do with NaN, infinite and negative priorities: "raise", or "clip" and count.

    Raises:
        ConfigError: A setting is out of range.
        SchemaError: A column is malformed, or one that `n_step` or `share_next_obs` needs is
            missing.
    """

    def __init__(
        self,
        capacity: int,
        columns: Columns,
        alpha: float = 0.6,
        eps: float = 1e-6,
        fanout: int = 16,
        n_step: int = 1,
        gamma: float = 0.99,
        share_next_obs: bool = False,
        seed: int = 0,
        on_bad: str = "raise",
    ) -> None:
        if hasattr(self, "_settings"):
            raise ConfigError("replay", "one construction", "a second one", "build a new buffer")
        if on_bad not in ("raise", "clip"):
            raise ConfigError("on_bad", "`raise` or `clip`", f"`{on_bad}`")
        settings: dict[str, Any] = {
            "capacity": _integer("capacity", capacity, 1),
            "columns": _parse(columns),
            "alpha": _number("alpha", alpha),
            "eps": _number("eps", eps),
            "fanout": _integer("fanout", fanout, 2),
            "n_step": _integer("n_step", n_step, 1),
            "gamma": _number("gamma", gamma),
            "share_next_obs": bool(share_next_obs),
            "seed": _integer("seed", seed, 0),
        }
        super().__init__(**settings, clip_bad=on_bad == "clip")
        self._settings = {**settings, "on_bad": on_bad}

    @property
    def settings(self) -> dict[str, Any]:
        """What it was constructed with."""
        return dict(self._settings)

    def __repr__(self) -> str:
        name = type(self).__name__
        if not hasattr(self, "_settings"):
            return f"<{name}, not constructed>"
        columns = [column for column, *_ in self._settings["columns"]]
        return f"{name}(capacity={self.capacity}, rows={len(self)}, columns={columns})"

    def priorities(self) -> NDArray[np.float32]:
        """Every row's priority as it is drawn by, (|TD error| + eps)^alpha, slot by slot.

        Returns:
            A read-only view, float32 [slots written], of the leaves of the tree; row `id` is at
            `id % capacity`.
        """
        return self._leaves()

    def rows_from(self, first: int, most: int | None = None) -> Batch | None:
        """Copies the rows that were inserted since, in order, for a copy of the buffer elsewhere.

        Args:
            first: The id to begin with; where that row is gone, the oldest one that is there.
            most: Rows to copy at most; None: all.

        Returns:
            Complete rows from there on, with `ids` that follow each other and weights of 1;
            None if there is none. Rows that another thread is still writing come with a later call.

        Raises:
            ConfigError: Next observations are shared.
        """
        return self._rows_from(first, self.capacity if most is None else most)

    def set_priorities(self, first: int, priority: ArrayLike) -> None:
        """Sets the priorities of neighbouring rows, as they are drawn by; see `priorities`.

        Rows that are gone are skipped; uniform draws stay uniform.

        Args:
            first: Id of the first row.
            priority: float [rows], of ids `first`, `first` + 1, ...

        Raises:
            PriorityError: One is NaN, infinite or negative; nothing is changed.
            ConfigError: Next observations are shared.
        """
        self._set_leaves(first, priority)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the whole state to `path`, at once or not at all, without a copy in memory.

        Rows that are filled, priorities, ids, pending rows and the random state are kept, so a
        loaded buffer goes on like this one bit by bit. Meanwhile samplers go on; inserters and
        updaters wait.

        Raises:
            CheckpointError: The file cannot be written; an older one is untouched.
        """
        self._save(_path(path), json.dumps({"class": type(self).__name__, **self._settings}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Builds the buffer that `save` wrote to `path`.

        Raises:
            CheckpointError: The file is missing, truncated, damaged, of another version, or of
                another kind of buffer.
        """
        settings: dict[str, Any] = json.loads(cls._read_meta(_path(path)))
        found = settings.pop("class")
        if found != cls.__name__:
            raise CheckpointError(str(path), cls.__name__, found, f"load it with {found}.load")
        settings["columns"] = {
            name: (tuple(shape), dtype) for name, dtype, shape in settings["columns"]
        }
        replay = cls(**settings)
        replay._load(_path(path))
        return replay

    def __reduce__(self) -> NoReturn:
        raise CheckpointError(
            type(self).__name__,
            "save(path) and load(path)",
            "pickle or copy",
            "a pickle would hold every row in memory a second time",
        )


class UniformReplay(PrioritizedReplay):
    """The same buffer with every priority 1: uniform draws, weights of 1.

    `update_priorities` takes, checks and counts what it is given, and changes nothing. Arguments
    are those of `PrioritizedReplay` without `alpha` and `eps`.
    """

    def __init__(
        self,
        capacity: int,
        columns: Columns,
        fanout: int = 16,
        n_step: int = 1,
        gamma: float = 0.99,
        share_next_obs: bool = False,
        seed: int = 0,
        on_bad: str = "raise",
    ) -> None:
        super().__init__(
            capacity,
            columns,
            alpha=0.0,
            eps=0.0,
            fanout=fanout,
            n_step=n_step,
            gamma=gamma,
            share_next_obs=share_next_obs,
            seed=seed,
            on_bad=on_bad,
        )
        del self._settings["alpha"], self._settings["eps"]


def _path(path: Any) -> str:
    try:
        text = os.fsdecode(path)
        text.encode()
    except (TypeError, UnicodeEncodeError) as e:
        raise CheckpointError("path", "a path in UTF-8", repr(path)) from e
    if "\0" in text:
        raise CheckpointError("path", "a path without a null character", repr(path))
    return text


def _number(field: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise ConfigError(field, "a number", repr(value)) from e


def _integer(field: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError as e:
        raise ConfigError(field, "an integer", repr(value)) from e
    bits = _BITS.get(field, 31)
    if not least <= number < 2**bits:
        raise ConfigError(field, f"an integer from {least} to 2^{bits} - 1", str(number))
    return number


def _parse(columns: Columns) -> list[tuple[str, str, tuple[int, ...]]]:
    if not isinstance(columns, Mapping):
        raise SchemaError("columns", "a mapping of name to (shape, dtype)", type(columns).__name__)
    return [_parse_column(name, spec) for name, spec in columns.items()]


def _parse_column(name: Any, spec: Any) -> tuple[str, str, tuple[int, ...]]:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise SchemaError("columns", "names of printable characters", ascii(name))
    if name in _RESERVED:
        raise SchemaError(name, f"a name other than {', '.join(_RESERVED)}", "a reserved name")
    try:
        shape, dtype = spec
        shape = (shape,) if isinstance(shape, int) else tuple(operator.index(d) for d in shape)
    except (TypeError, ValueError) as e:
        raise SchemaError(
            name, "(shape, dtype)", repr(spec), 'write ((8,), "float32"), or ((), "bool")'
        ) from e
    if any(not 1 <= d < 2**31 for d in shape) or len(shape) > _MOST_DIMENSIONS:
        expected = f"up to {_MOST_DIMENSIONS} dimensions of at least 1 and below 2^31"
        raise SchemaError(name, expected, str(shape))
    if dtype is None:  # NumPy's word for float64
        raise SchemaError(name, "a NumPy dtype", "None")
    try:
        return name, np.dtype(dtype).name, shape
    except TypeError as e:
        raise SchemaError(name, "a NumPy dtype", repr(dtype)) from e
