# SPDX-License-Identifier: MIT
"""Small helpers to write files so that a crash leaves either the old or the new one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import CheckpointError, reason

Arrays = Mapping[str, NDArray[Any]]


def sync(path: Path) -> None:
    """Waits until the file or folder at `path` is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Replaces the file at `path` in one step."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text)
        sync(temporary)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object) -> None:
    """Replaces the file at `path` with `value` as indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Writes a safetensors file.

    Raises:
        CheckpointError: It cannot be written, on a full disk for instance.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, path)
    except SafetensorError as e:
        raise CheckpointError(str(path), "a file that can be written", reason(e)) from e


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Reads a safetensors file.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as e:
        raise CheckpointError(path.name, "a whole safetensors file", reason(e)) from e


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of the file at `path`, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
