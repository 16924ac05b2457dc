# SPDX-License-Identifier: MIT
"""The kernels of the replay on a device, specialised for its rows and its tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal import builds
from copal.errors import ConfigError, SchemaError
from copal.gpu.device import Unit
from copal.gpu.names import literal

WARPS = 8
"""Draws or rows a block, one a warp."""
SET_THREADS = 1024
"""Of the one block that sets leaves."""
_FAN = 32
_HEADERS = ("base.cuh", "noise.cuh", "tree.cuh")


@dataclass(frozen=True)
class Column:
    """One column of a row."""

    width: int
    """Numbers a row."""
    dtype: str
    """`float32` or `int32`."""
    start: int
    """First float in a row."""
    place: int
    """First float in a batch."""


@dataclass(frozen=True)
class Layout:
    """Rows in the storage and in a batch."""

    columns: Mapping[str, Column]
    """By name, without the weight."""
    row_floats: int
    """Of a row in the storage."""
    batch_size: int
    """Rows of a batch."""
    batch_floats: int
    """Of a batch."""
    weight: int
    """First float of the weights in a batch."""

    def pack(self, given: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Rows for the storage, float32 [n, row_floats].

        Raises:
            SchemaError: A column is missing, unknown or has the wrong shape.
        """
        unknown = set(given) - set(self.columns)
        if unknown or len(given) < len(self.columns):
            raise SchemaError("columns", ", ".join(self.columns), ", ".join(given) or "none")
        n = len(next(iter(given.values())))
        rows = np.zeros((n, self.row_floats), np.float32)
        for name, column in self.columns.items():
            values = np.asarray(given[name])
            if values.shape not in ((n, column.width), *([(n,)] if column.width == 1 else [])):
                raise SchemaError(name, f"shape [{n}, {column.width}]", str(list(values.shape)))
            part = rows[:, column.start : column.start + column.width]
            part.view(column.dtype)[:] = values.reshape(n, column.width)
        return rows

    def unpack(self, flat: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Columns of a batch, and `weight`, each [B, width]."""
        weight = Column(1, "float32", 0, self.weight)
        return {
            name: flat[c.place : c.place + self.batch_size * c.width]
            .view(c.dtype)
            .reshape(self.batch_size, c.width)
            .copy()
            for name, c in {**self.columns, "weight": weight}.items()
        }


def column_layout(
    columns: Mapping[str, tuple[int, str]], batch_size: int, places: Mapping[str, int] | None
) -> Layout:
    """Where columns lie.

    Raises:
        ConfigError: There is none, or one has no width or another dtype.
    """
    if not columns:
        raise ConfigError("columns", "at least one", "none")
    found, start, place = {}, 0, 0
    for name, (width, dtype) in columns.items():
        if width < 1 or dtype not in ("float32", "int32"):
            raise ConfigError(name, "a width from 1 on, float32 or int32", f"{width}, {dtype}")
        at = place if places is None else places[name]
        found[name] = Column(width, dtype, start, at)
        start, place = start + width, place + width * batch_size
    weight = place if places is None else places["weight"]
    ends = (c.place + c.width * batch_size for c in found.values())
    return Layout(found, start, batch_size, max(*ends, weight + batch_size), weight)


def levels(capacity: int) -> list[int]:
    """First float of every level of a tree over so many leaves; the last one is one group."""
    starts, groups = [0], -(-capacity // _FAN)
    while groups > 1:
        starts.append(starts[-1] + _FAN * groups)
        groups = -(-groups // _FAN)
    return starts


def unit(layout: Layout, starts: list[int], batch_size: int, alpha: float, eps: float) -> Unit:
    """The kernels of one replay.

    Raises:
        BackendUnavailableError: The folder `kernels` is missing.
    """
    folder = builds.root("kernels", _HEADERS[0]) / "kernels"
    text = [(folder / name).read_text() for name in _HEADERS]
    count, row = len(starts), layout.row_floats
    gathered = "\n".join(
        f"  for (int c = lane; c < {c.width}; c += 32)\n"
        f"    batch[{c.place} + i * {c.width} + c] = row[{c.start} + c];"
        for c in layout.columns.values()
    )
    text.append(f"""
#define COPAL_LEVELS const int level_at[{count}] = {{{", ".join(map(str, starts))}}}
#define COPAL_DRAW const int i = blockIdx.x * {WARPS} + threadIdx.x / 32, lane = threadIdx.x % 32

extern "C" __global__ void __launch_bounds__({32 * WARPS}) replay_draw(
    const float* __restrict__ tree, const unsigned* __restrict__ counter,
    const unsigned* __restrict__ seed, int* slots, float* priorities) {{
  COPAL_LEVELS;
  COPAL_DRAW;
  if (i >= {batch_size}) return;
  const double mass = copal::uniform53(i, counter, seed);
  const copal::Picked found = copal::descend<{count}>(tree, level_at, mass);
  if (lane == 0) {{
    slots[i] = found.child;
    priorities[i] = found.value;
  }}
}}

extern "C" __global__ void __launch_bounds__({32 * WARPS}) replay_gather(
    const float* __restrict__ rows, const int* __restrict__ slots, float* batch) {{
  COPAL_DRAW;
  if (i >= {batch_size}) return;
  const float* row = rows + (long long)slots[i] * {row};
{gathered}
}}

extern "C" __global__ void __launch_bounds__({32 * WARPS}) replay_weights(
    const float* __restrict__ priorities, const float* __restrict__ beta, float* batch,
    unsigned* counter) {{
  COPAL_SHARED(memory);
  copal::weights<{32 * WARPS}>(priorities, {batch_size}, *beta, batch + {layout.weight}, memory);
  if (threadIdx.x == 0 && ++counter[0] == 0u) ++counter[1];
}}

extern "C" __global__ void __launch_bounds__({32 * WARPS}) replay_store(
    float* rows, const float* __restrict__ staged, const int* __restrict__ slots, int n) {{
  COPAL_DRAW;
  if (i >= n) return;
  float* row = rows + (long long)slots[i] * {row};
  for (int c = lane; c < {row}; c += 32) row[c] = staged[(long long)i * {row} + c];
}}

extern "C" __global__ void __launch_bounds__({SET_THREADS}) replay_set(
    float* tree, float* maxima, const int* __restrict__ slots, const float* __restrict__ values,
    int n, int mode, int* bad) {{
  COPAL_LEVELS;
  copal::set_leaves<{count}, {SET_THREADS}>(tree, maxima, level_at, slots, values, n, mode,
                                            {literal(alpha)}, {literal(eps)}, 1.f, bad);
}}
""")
    names = ("replay_draw", "replay_gather", "replay_weights", "replay_store", "replay_set")
    return Unit("replay", "\n".join(text), names)
