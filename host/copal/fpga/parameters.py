# SPDX-License-Identifier: MIT
"""Where the numbers of flat parameter vectors lie in the engine's W, T, M, S and BIAS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from copal.errors import ProgramError
from copal.program import Network, Op, Program, Update

Kind = Literal["weight", "vector", "rest"]


@dataclass(frozen=True)
class Segment:
    """A part of a network's flat vector, and of its target's: one matrix or one vector."""

    network: str
    """Network whose numbers lie in W."""
    target: str | None
    """Network that follows it, in T at the same address."""
    kind: Kind
    """`weight` [rows, cols] in tiles; `vector`, a bias or what `param` reads; `rest`: unused."""
    offset: int
    """First float in the flat vector."""
    rows: int
    """Outputs of a weight; floats of a vector."""
    cols: int = 1
    """Inputs of a weight; 1 of a vector."""
    address: int = 0
    """First word in W, T, M, S and, of a weight, G."""
    bias: int = 0
    """First word of a vector in BIAS and GB."""
    bias_target: int = 0
    """First word of the target's vector in BIAS."""
    norm: int | None = None
    """First word in G of a vector's gradient as a matrix [rows, 1], with all bits of a sum: what
    the norm of a clipped gradient is made of."""
    copy: int | None = None
    """First row in A of the integers of a weight, None if no product reads them."""
    copy_target: int | None = None
    """The same of the target's weight."""

    @property
    def size(self) -> int:
        """Floats."""
        return self.rows * self.cols

    @property
    def name(self) -> str:
        """Shown to the user."""
        return f"{self.network}[{self.offset}:{self.offset + self.size}]"

    def tiles(self, p: int) -> tuple[int, int]:
        """Tiles of a weight down and across, for an array of p x p lanes."""
        return -(-self.rows // p), -(-self.cols // p)

    def words(self, p: int) -> int:
        """Words of p floats."""
        if self.kind == "weight":
            down, across = self.tiles(p)
            return down * across * p
        return -(-self.rows // p)


@dataclass(frozen=True)
class ParameterLayout:
    """All segments of an Update's networks, in the order of their addresses."""

    array_size: int
    """P."""
    segments: tuple[Segment, ...]
    """Every float of every network is in exactly one, targets beside their sources."""
    sizes: Mapping[str, int]
    """Network name to floats."""
    sources: Mapping[str, str]
    """Target name to the name of the network that it follows."""
    words: int
    """Words used of each of W, T, M, S and G."""
    bias_words: int
    """Words used of BIAS and GB."""
    copy_rows: int
    """Rows used of each bank of A."""

    def of(self, network: str) -> tuple[Segment, ...]:
        """The segments of a network or of the network that it follows."""
        source = self.sources.get(network, network)
        return tuple(s for s in self.segments if s.network == source)

    def find(self, network: str, offset: int, kind: Kind | None = None) -> Segment:
        """The segment of `network` that holds float `offset`.

        Raises:
            ProgramError: It is not of this kind.
        """
        for s in self.of(network):
            if s.offset <= offset < s.offset + s.size and kind in (None, s.kind):
                return s
        raise ProgramError(network, f"a {kind} at float {offset}", "another part of the network")

    def index(self, network: str) -> NDArray[np.int64]:
        """Position in a memory of W, T, M, S, taken as one row of floats, of each float [size]."""
        p = self.array_size
        index = np.empty(self.sizes[network], np.int64)
        for s in self.of(network):
            row, col = np.divmod(np.arange(s.size), s.cols)
            if s.kind == "weight":
                across = s.tiles(p)[1]
                word = ((row // p) * across + col // p) * p + row % p
                place = word * p + col % p
            else:
                place = row
            index[s.offset : s.offset + s.size] = s.address * p + place
        return index

    def in_target(self, network: str) -> bool:
        """Whether a network lies in T; else it lies in W."""
        return network in self.sources

    def pack(self, vectors: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """One memory, float32 [words, P], from flat vectors by network; the rest is zero."""
        memory = np.zeros(self.words * self.array_size, np.float32)
        for network, vector in vectors.items():
            memory[self.index(network)] = vector
        return memory.reshape(self.words, self.array_size)

    def unpack(self, network: str, memory: NDArray[np.float32]) -> NDArray[np.float32]:
        """The flat vector [size] of a network out of one memory, float32 [words, P]."""
        return np.asarray(memory, np.float32).reshape(-1)[self.index(network)]


def layout(update: Update, p: int) -> ParameterLayout:
    """Gives every network its place.

    Args:
        update: What is to run.
        p: Lanes of a row of the array.

    Raises:
        ProgramError: The targets do not fit the engine's scheme, or two operations read
            overlapping parts of a network in different ways.
    """
    networks = {n.name: n for q in _programs(update) for n in q.networks}
    sources = _sources(update, networks)
    followers = {source: target for target, source in sources.items()}
    segments: list[Segment] = []
    for name, network in networks.items():
        if name not in sources:
            names = {name, followers.get(name, name)}
            segments += _segments(network, followers.get(name), names, update)
    return _addressed(segments, networks, sources, update, p)


def _programs(update: Update) -> list[Program]:
    return [phase.program for phase in update.phases] + [update.policy]


def _sources(update: Update, networks: Mapping[str, Network]) -> dict[str, str]:
    sources: dict[str, str] = {}
    trained = update.trained()
    for t in update.targets:
        for name in (t.source, t.target):
            if name not in networks:
                raise ProgramError(f"target {t.target}", "networks that are read", f"`{name}`")
        if t.target in sources or t.source in sources.values():
            got = f"`{t.target}` follows `{t.source}` beside another pair"
            raise ProgramError("targets", "one follower a network", got)
        if t.target in trained or networks[t.source].size != networks[t.target].size:
            got = f"`{t.target}` and `{t.source}`"
            raise ProgramError("targets", "an untrained follower of the same size", got)
        sources[t.target] = t.source
    chained = sorted(set(sources) & set(sources.values()))
    if chained:
        raise ProgramError("targets", "a source that follows none itself", f"`{chained[0]}`")
    return sources


def _segments(
    network: Network, target: str | None, names: set[str], update: Update
) -> list[Segment]:
    """Cuts a network where operations on it, or on its target, ask for."""
    parts: dict[int, tuple[Kind, int, int]] = {}
    for program in _programs(update):
        widths = {b.name: b.width for b in program.buffers()}
        for op in program.ops:
            if str(op.attrs.get("network", program.gradient)) in names:
                for offset, part in _parts(op, widths):
                    if parts.setdefault(offset, part) != part:
                        _overlap(network.name, offset)
    found, end = [], 0
    for offset, (kind, rows, cols) in sorted(parts.items()):
        if offset < end:
            _overlap(network.name, offset)
        if offset > end:
            found.append(Segment(network.name, target, "rest", end, offset - end))
        found.append(Segment(network.name, target, kind, offset, rows, cols))
        end = offset + rows * cols
    if end < network.size:
        found.append(Segment(network.name, target, "rest", end, network.size - end))
    return found


def _overlap(network: str, offset: int) -> None:
    got = f"two that overlap at float {offset} of `{network}`"
    raise ProgramError(network, "one matrix or vector at a place of a network", got)


def _parts(op: Op, widths: Mapping[str, int]) -> list[tuple[int, tuple[Kind, int, int]]]:
    a = op.attrs
    if op.kind.startswith("dense"):
        found: list[tuple[int, tuple[Kind, int, int]]]
        found = [(a["weight"], ("weight", a["fan_out"], a["fan_in"]))]
        if a["bias"] >= 0:
            found.append((a["bias"], ("vector", a["fan_out"], 1)))
        return found
    if op.kind == "param" and op.output is not None:
        return [(a["offset"], ("vector", op.output.width, 1))]
    if op.kind == "sum_over_rows":
        return [(a["offset"], ("vector", widths[op.inputs[0]], 1))]
    return []


def _addressed(
    segments: list[Segment],
    networks: Mapping[str, Network],
    sources: Mapping[str, str],
    update: Update,
    p: int,
) -> ParameterLayout:
    """Gives the segments their addresses, one after the other."""
    read = {
        (str(op.attrs["network"]), int(op.attrs["weight"]))
        for phase in update.phases
        for op in phase.program.ops
        if op.kind in ("dense", "dense_grad_input")
    }
    clipped = {p.program.gradient for p in update.phases if p.max_grad_norm is not None}
    words = bias_words = copy_rows = 0
    placed = []
    for s in segments:
        s = replace(s, address=words)
        words += s.words(p)
        if s.kind == "vector":
            s = replace(s, bias=bias_words, bias_target=bias_words)
            bias_words += s.words(p)
            if s.network in clipped:
                s = replace(s, norm=words)
                words += s.tiles(p)[0] * p
            if s.target:
                s = replace(s, bias_target=bias_words)
                bias_words += s.words(p)
        if (s.network, s.offset) in read:
            s = replace(s, copy=copy_rows)
            copy_rows += s.words(p)
        if (s.target, s.offset) in read:
            s = replace(s, copy_target=copy_rows)
            copy_rows += s.words(p)
        placed.append(s)
    sizes = {name: n.size for name, n in networks.items()}
    return ParameterLayout(p, tuple(placed), sizes, sources, words, bias_words, copy_rows)
