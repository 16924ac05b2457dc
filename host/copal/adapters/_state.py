# SPDX-License-Identifier: MIT
"""A buffer as bytes, for frameworks whose checkpoints hold values and not files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from copal.replay import PrioritizedReplay


def pack(replay: PrioritizedReplay) -> bytes:
    """The whole state of a buffer, as `PrioritizedReplay.save` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replay"
        replay.save(path)
        return path.read_bytes()


def unpack(data: bytes) -> PrioritizedReplay:
    """The buffer that `pack` described.

    Raises:
        CheckpointError: The bytes are not those of a buffer.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replay"
        path.write_bytes(data)
        return PrioritizedReplay.load(path)
