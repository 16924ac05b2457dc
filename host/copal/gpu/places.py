# SPDX-License-Identifier: MIT
"""Gives row buffers places in shared memory, and in a workspace of global memory what is left over.

A place is free again once the last step that reads its buffer is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copal.errors import ConfigError

SHARED, WORKSPACE = "shared", "workspace"


@dataclass(frozen=True)
class Lifetime:
    """When a buffer is needed."""

    name: str
    """The buffer."""
    floats: int
    """Its size, a multiple of four."""
    first: int
    """Step that writes it."""
    last: int
    """Last step that reads it."""


@dataclass(frozen=True)
class RowPlace:
    """Where a buffer lies."""

    memory: str
    """`shared` or `workspace`."""
    offset: int
    """First float."""
    floats: int
    """Size."""

    def overlaps(self, other: RowPlace) -> bool:
        """Whether both have a float in common."""
        return (
            self.memory == other.memory
            and self.offset < other.offset + other.floats
            and other.offset < self.offset + self.floats
        )


@dataclass(frozen=True)
class Placement:
    """Places of all buffers of a Program."""

    places: Mapping[str, RowPlace]
    """By buffer."""
    shared_floats: int
    """Shared memory of a block."""
    workspace_floats: int
    """Global memory of a block."""


def place(lifetimes: Sequence[Lifetime], shared_floats: int) -> Placement:
    """Places buffers; the largest leave shared memory until the others fit.

    Args:
        lifetimes: What has to be kept.
        shared_floats: Shared memory that a block has.

    Raises:
        ConfigError: `shared_floats` is below 0.
    """
    if shared_floats < 0:
        raise ConfigError("shared_floats", "at least 0", str(shared_floats))
    outside: set[str] = set()
    while True:
        inside = _pack([b for b in lifetimes if b.name not in outside], SHARED)
        used = _end(inside)
        if used <= shared_floats:
            break
        # A large buffer frees most; of those as large, the one that lives longest.
        moved = max(
            (b for b in lifetimes if b.name not in outside),
            key=lambda b: (b.floats, b.last - b.first, b.name),
        )
        outside.add(moved.name)
    spilled = _pack([b for b in lifetimes if b.name in outside], WORKSPACE)
    return Placement({**inside, **spilled}, used, _end(spilled))


def _end(places: Mapping[str, RowPlace]) -> int:
    return max((p.offset + p.floats for p in places.values()), default=0)


def _pack(lifetimes: Sequence[Lifetime], memory: str) -> dict[str, RowPlace]:
    """First fit, large ones first."""
    found: dict[str, RowPlace] = {}
    done: list[Lifetime] = []
    for b in sorted(lifetimes, key=lambda b: (-b.floats, b.first, b.name)):
        busy = sorted(
            (found[o.name].offset, found[o.name].offset + o.floats)
            for o in done
            if o.first <= b.last and b.first <= o.last
        )
        at = 0
        for start, stop in busy:
            if at + b.floats <= start:
                break
            at = max(at, stop)
        found[b.name] = RowPlace(memory, at, b.floats)
        done.append(b)
    return found
