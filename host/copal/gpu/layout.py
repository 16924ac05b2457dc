# SPDX-License-Identifier: MIT
"""How a network's flat vector lies on the device.

The weights of a dense layer are transposed to [fan_in, fan_out], and both are padded with zeros to
multiples of four, so that neighbouring threads read neighbouring 16 bytes, forward and backward.
Everything else stays in its order. Weights of which other operations see parts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copal.program import Network, Op, Program, Update

FLOATS = 4
"""Alignment of what is read 16 bytes at a time."""


def pad(n: int, to: int = FLOATS) -> int:
    """`n`, rounded up to a multiple of `to`."""
    return -(-n // to) * to


@dataclass(frozen=True)
class Place:
    """Where one part of a vector lies."""

    offset: int
    """First float on the device."""
    plain: bool = False
    """Of weights: they lie as in the flat vector."""


@dataclass(frozen=True)
class VectorLayout:
    """A network's vector on the device."""

    network: str
    """Its name."""
    size: int
    """Floats of the flat vector."""
    padded: int
    """Floats on the device, a multiple of four."""
    index: NDArray[np.int64]
    """Place of each flat float, [size]."""
    weights: Mapping[tuple[int, int, int], Place]
    """Flat offset, fan_in and fan_out of dense weights to their place."""

    def pack(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vector as the device has it, float32 [padded], zeros between."""
        packed = np.zeros(self.padded, np.float32)
        packed[self.index] = flat
        return packed

    def unpack(self, packed: NDArray[np.float32]) -> NDArray[np.float32]:
        """Inverse of `pack`, float32 [size]."""
        return packed[self.index]

    def at(self, offset: int) -> int:
        """Place of a flat float outside padded weights; what follows it follows there, too."""
        return int(self.index[offset])


def layouts(update: Update) -> dict[str, VectorLayout]:
    """The layout of every network that a phase or a target of `update` has."""
    programs = [phase.program for phase in update.phases]
    networks = {n.name: n for program in programs for n in program.networks}
    sizes = update.networks()
    for target in update.targets:
        for name in (target.source, target.target):
            networks.setdefault(name, Network(name, sizes[name]))
    ranges: dict[str, set[tuple[int, int, int]]] = {name: set() for name in networks}
    others: dict[str, set[tuple[int, int]]] = {name: set() for name in networks}
    for program in programs:
        _collect(program, ranges, others)
    # Averaging goes number by number: both have to lie alike, along a chain of targets as well.
    for target in update.targets * len(update.targets):
        both = ranges[target.source] | ranges[target.target]
        ranges[target.source] = ranges[target.target] = both
        seen = others[target.source] | others[target.target]
        others[target.source] = others[target.target] = seen
    return {name: _layout(networks[name], ranges[name], others[name]) for name in networks}


def _collect(
    program: Program,
    ranges: Mapping[str, set[tuple[int, int, int]]],
    others: Mapping[str, set[tuple[int, int]]],
) -> None:
    """Adds what the operations of `program` see of each network."""
    widths = {b.name: b.width for b in program.buffers()}
    for op in program.ops:
        a = op.attrs
        if op.kind.startswith("dense"):
            ranges[a["network"]].add((a["weight"], a["fan_in"], a["fan_out"]))
            if a["bias"] >= 0:
                others[a["network"]].add((a["bias"], a["fan_out"]))
        elif op.kind == "param":
            others[a["network"]].add((a["offset"], _width(op)))
        elif op.kind == "sum_over_rows":
            others[str(program.gradient)].add((a["offset"], widths[op.inputs[0]]))


def _width(op: Op) -> int:
    assert op.output is not None
    return op.output.width


def _layout(
    network: Network, ranges: Iterable[tuple[int, int, int]], others: Iterable[tuple[int, int]]
) -> VectorLayout:
    shapes = sorted(ranges)
    taken = [(start, start + fan_in * fan_out) for start, fan_in, fan_out in shapes]
    parts = [(start, start + count) for start, count in others]
    plain = {
        shape
        for shape, (start, stop) in zip(shapes, taken, strict=True)
        if any(a < stop and start < b for a, b in parts)
        or sum(a < stop and start < b for a, b in taken) > 1
    }
    index = np.zeros(network.size, np.int64)
    weights: dict[tuple[int, int, int], Place] = {}
    flat = device = 0
    for shape in shapes:
        start, fan_in, fan_out = shape
        if shape in plain:
            continue
        index[flat:start] = device + np.arange(start - flat)
        device = pad(device + start - flat)
        rows, columns = np.arange(fan_out)[:, None], np.arange(fan_in)
        flat = start + fan_in * fan_out
        index[start:flat] = (device + columns * pad(fan_out) + rows).ravel()
        weights[shape] = Place(device)
        device += pad(fan_in) * pad(fan_out)
    index[flat:] = device + np.arange(network.size - flat)
    padded = max(pad(device + network.size - flat), FLOATS)
    weights |= {shape: Place(int(index[shape[0]]), plain=True) for shape in plain}
    return VectorLayout(network.name, network.size, padded, index, weights)
