# SPDX-License-Identifier: MIT
"""PTX types as NumPy dtypes, operands as bits, and what an interpreted program may do wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ptx.machine import Machine

Array = npt.NDArray[Any]
Lanes = npt.NDArray[np.intp] | None
"""Indices of the lanes that execute, None: all of them."""

Run = Callable[["Machine", Lanes], None]
"""An instruction: does its work for some lanes."""

DTYPES = {
    "pred": np.dtype(np.bool_),
    **{f"{k}{n}": np.dtype(f"u{n // 8}") for k in "ub" for n in (8, 16, 32, 64)},
    **{f"s{n}": np.dtype(f"i{n // 8}") for n in (8, 16, 32, 64)},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


class PtxError(Exception):
    """The program did what no correct program does; names the kernel, the line and the text."""


def wide(kind: str) -> np.dtype[np.generic]:
    """The type of twice the width: what `mul.wide` and `mul.hi` compute in."""
    return DTYPES[f"{kind[0]}{2 * int(kind[1:])}"]


def cast(value: Array, dtype: np.dtype[np.generic]) -> Array:
    """The bits of a value as another type; to another width by dropping or extending them."""
    if value.dtype == dtype:
        return value
    if value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)
    bits = value if value.dtype.kind in "iub" else value.view(f"u{value.dtype.itemsize}")
    narrow = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "f" else dtype
    return bits.astype(narrow).view(dtype)
