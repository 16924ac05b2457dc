# SPDX-License-Identifier: MIT
"""A Program's buffers and numbers as C++."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from copal.program import Buffer, Program


def identifiers(program: Program) -> Mapping[str, str]:
    """Buffer name to a C++ name that nothing else has."""
    return {b.name: f"b{i}_{_word(b.name)}" for i, b in enumerate(program.buffers())}


def network_identifiers(program: Program) -> Mapping[str, str]:
    """Network name to a C++ name that nothing else has."""
    return {n.name: f"n{i}_{_word(n.name)}" for i, n in enumerate(program.networks)}


def literal(value: float, dtype: str = "float32") -> str:
    """A number as C++ text of its type, exact."""
    if dtype == "int32":
        return str(int(value))
    number = np.float32(value)
    if not np.isfinite(number):
        return f"__int_as_float({int(number.view(np.int32))})"
    text = f"{number:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.f"


def double(value: float) -> str:
    """A double as C++ text, exact."""
    text = repr(float(value))
    return text if any(c in text for c in ".e") else f"{text}.0"


def c_type(buffer: Buffer) -> str:
    """`int` or `float`."""
    return "int" if buffer.dtype == "int32" else "float"


def _word(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_]", "_", name)
