# SPDX-License-Identifier: MIT
"""Names of exponents: which tensors share one, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from copal.errors import ConfigError, ProgramError

ROOM = 2
"""Bits left free in integers of rows: a batch may hold values that are far larger than usual."""
ROOM_OF_WEIGHTS = 0
"""The same of weights: one that grows past a power of two is wrong by less than a step of the
optimiser, for one update."""
ROOM_OF_SUMS = 4
"""The same of 32-bit sums."""


@dataclass(frozen=True)
class Sample:
    """Numbers that a scale has to hold."""

    what: str
    """`buffer` of a phase, `parameters` of a network, or `gradient` of a phase."""
    phase: int
    """Number of the phase; of `parameters` not used."""
    name: str
    """Of the buffer or the network."""
    offset: int = 0
    """First float of parameters or a gradient."""
    size: int = 0
    """Floats of parameters or a gradient."""


@dataclass
class ScaleInfo:
    """One exponent."""

    bits: int
    """Magnitudes stay below 2^bits."""
    room: int
    """Bits of these that are left free, so that values may grow before they saturate."""
    samples: list[Sample] = field(default_factory=list)
    """What it holds."""
    bound: bool = False
    """Whether stored integers depend on it: of weights, and of the inputs of biased layers."""


@dataclass(frozen=True)
class Limit:
    """A result's exponent is at most the sum of two others, so that no shift is negative."""

    result: str
    """The result's exponent."""
    operands: tuple[str, str]
    """Those of the operands."""


class ScaleBook:
    """Collects exponents while instructions are made; `merge` makes one of two."""

    def __init__(self) -> None:
        self._infos: dict[str, ScaleInfo] = {}
        self._parent: dict[str, str] = {}
        self._inputs: dict[tuple[str, int], str] = {}
        self._vectors: dict[tuple[int, str, int], str] = {}
        self._layers: dict[tuple[str, int], int] = {}
        self._limits: list[Limit] = []

    def add(
        self, name: str, bits: int, *samples: Sample, room: int = ROOM, bound: bool = False
    ) -> str:
        """Makes sure that the exponent `name` exists; returns its name."""
        info = self._infos.setdefault(name, ScaleInfo(bits, room))
        info.samples += [s for s in samples if s not in info.samples]
        info.bound |= bound
        return name

    def knows(self, name: str) -> bool:
        """Whether there is an exponent of this name."""
        return name in self._infos

    def merge(self, a: str, b: str) -> None:
        """Lets `a` and `b` be one exponent."""
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[b] = a

    def input_of(self, network: str, weight: int, scale: str) -> None:
        """Ties the input of a biased layer to its other inputs: they share the stored bias."""
        first = self._inputs.setdefault((network, weight), scale)
        self.merge(first, scale)
        self._infos[scale].bound = True

    def vector_gradient(self, phase: int, network: str, offset: int, scale: str) -> None:
        """Says that a bias gradient is summed from integers of this exponent."""
        self.merge(self._vectors.setdefault((phase, network, offset), scale), scale)

    def vector_scale(self, phase: int, network: str, offset: int) -> str | None:
        """The exponent of a bias gradient, None if the phase has none."""
        return self._vectors.get((phase, network, offset))

    def layer(self, network: str, bias: int, weight: int) -> None:
        """Says that the layer with this weight adds this bias.

        Raises:
            ProgramError: Two layers share a bias.
        """
        if self._layers.setdefault((network, bias), weight) != weight:
            got = f"two that add the bias at float {bias} of `{network}`"
            raise ProgramError(network, "one layer a bias", got)

    def bias_terms(self, network: str, bias: int) -> tuple[int, str] | None:
        """The layer with this bias: offset of its weight, exponent of its inputs; None: none."""
        weight = self._layers.get((network, bias))
        return None if weight is None else (weight, self._inputs[network, weight])

    def limit(self, result: str, first: str, second: str) -> None:
        """Keeps the shift of a product from being negative."""
        self._limits.append(Limit(result, (first, second)))

    def _root(self, name: str) -> str:
        while name in self._parent:
            name = self._parent[name]
        return name

    def roots(self) -> dict[str, str]:
        """Every name to the one that stands for it."""
        return {name: self._root(name) for name in self._infos}

    def merged(self) -> dict[str, ScaleInfo]:
        """Exponents after merging, in order of first mention."""
        found: dict[str, ScaleInfo] = {}
        for name, info in self._infos.items():
            one = found.setdefault(self._root(name), ScaleInfo(info.bits, info.room))
            one.room = max(one.room, info.room)
            one.bits = min(one.bits, info.bits)
            one.bound |= info.bound
            one.samples += [s for s in info.samples if s not in one.samples]
        return found

    def limits(self) -> tuple[Limit, ...]:
        """Limits between merged exponents, each once."""
        root = self._root
        return tuple(
            dict.fromkeys(
                Limit(root(x.result), (root(x.operands[0]), root(x.operands[1])))
                for x in self._limits
            )
        )

    def entries(self, available: int) -> dict[str, int]:
        """Every name to its entry of RANGE.

        Raises:
            ConfigError: There are too few entries.
        """
        numbers = {root: i for i, root in enumerate(self.merged())}
        if len(numbers) > available:
            raise ConfigError(
                "depths.range",
                f"at least {len(numbers)} entries",
                f"{available}, {len(numbers) - available} too few",
                "build the engine with more entries of RANGE, 255 at most",
            )
        return {name: numbers[root] for name, root in self.roots().items()}
