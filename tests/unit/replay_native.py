# SPDX-License-Identifier: MIT
"""Builds the C++ tests of the replay buffer and drives its tree by ctypes."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from copal.native import supported

NATIVE = Path(__file__).parents[2] / "host" / "native"
FANOUTS = (2, 4, 8, 16, 32, 64)


def isa_flags() -> dict[str, list[str]]:
    """Instruction sets that this processor runs, with the compiler's flags for each."""
    return {
        isa: [f"-march=x86-64-{isa}"] if platform.machine() in ("x86_64", "AMD64") else []
        for isa in supported()
    }


def build(source: str, target: Path, *flags: str) -> Path:
    """Compiles `host/native/tests/<source>` to `target`; skips the test without a compiler."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    path = str(NATIVE / "tests" / source)
    command = [compiler, "-std=c++20", f"-I{NATIVE}", *flags, path, "-pthread", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return target


class Tree:
    """The native priority tree of one instruction set."""

    def __init__(self, library: ctypes.CDLL, fanout: int, capacity: int) -> None:
        self._lib, self.capacity = library, capacity
        self._tree = ctypes.c_void_p(library.tree_new(fanout, ctypes.c_uint64(capacity)))

    def __del__(self) -> None:
        self._lib.tree_delete(self._tree)

    def update(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        slots = np.ascontiguousarray(slots, np.uint64)
        priorities = np.ascontiguousarray(priorities, np.float32)
        n = ctypes.c_uint64(len(slots))
        self._lib.tree_update(self._tree, n, _pointer(slots), _pointer(priorities))

    def fill(self, first: int, n: int, priority: float) -> None:
        self._lib.tree_fill(
            self._tree, ctypes.c_uint64(first), ctypes.c_uint64(n), ctypes.c_float(priority)
        )

    def descend(self, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        masses = np.array(masses, np.float64)
        slots, priorities = np.empty(len(masses), np.uint64), np.empty(len(masses), np.float32)
        self._lib.tree_descend(
            self._tree,
            ctypes.c_uint64(len(masses)),
            _pointer(masses),
            _pointer(slots),
            _pointer(priorities),
        )
        return slots.astype(np.int64), priorities

    @property
    def total(self) -> float:
        return float(self._lib.tree_total(self._tree))

    @property
    def maximum(self) -> float:
        return float(self._lib.tree_maximum(self._tree))

    @property
    def nbytes(self) -> int:
        return int(self._lib.tree_nbytes(self._tree))

    @property
    def address(self) -> int:
        return int(self._lib.tree_leaves(self._tree))

    @property
    def leaves(self) -> np.ndarray:
        pointer = ctypes.cast(self.address, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, (self.capacity,)).copy()


def load(path: Path) -> ctypes.CDLL:
    """Opens a build of `ctypes/sum_tree.cpp`."""
    lib = ctypes.CDLL(str(path))
    lib.tree_new.restype = ctypes.c_void_p
    lib.tree_total.restype = ctypes.c_double
    lib.tree_maximum.restype = ctypes.c_float
    lib.tree_leaves.restype = ctypes.c_void_p
    lib.tree_nbytes.restype = ctypes.c_uint64
    return lib


def power(lib: ctypes.CDLL, x: np.ndarray, y: float) -> np.ndarray:
    """x^y as the buffer computes it, float32."""
    out = np.empty_like(x)
    lib.power(ctypes.c_uint64(len(x)), _pointer(x), ctypes.c_float(y), _pointer(out))
    return out


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
