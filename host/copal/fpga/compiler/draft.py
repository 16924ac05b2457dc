# SPDX-License-Identifier: MIT
"""What the compiler works on: tensors without an address, instructions without exponents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from copal.fpga.isa import FIELDS, NO_RANGE, Instruction, Op


@dataclass(eq=False)
class Tensor:
    """A value with one column a feature and one lane a row of the batch."""

    name: str
    """For listings."""
    width: int
    """Columns."""
    spaces: frozenset[str]
    """Memories that hold it at one address: `V`, `A`, `B`, `MASK`."""
    words: int
    """Words that it takes in each of them."""
    scale: str | None = None
    """Name of the exponent of its integers, None of float32."""
    address: int | None = None
    """First word, once it is placed."""


@dataclass(frozen=True)
class Span:
    """Neighbouring columns of a tensor."""

    tensor: Tensor
    """Where they lie."""
    start: int
    """First column."""
    width: int
    """Columns."""

    def part(self, start: int, stop: int) -> Span:
        """Columns `start` to `stop` of these."""
        return Span(self.tensor, self.start + start, stop - start)

    def overlaps(self, other: Span) -> bool:
        """Whether both have a column."""
        return (
            self.tensor is other.tensor
            and self.start < other.start + other.width
            and other.start < self.start + self.width
        )


def whole(tensor: Tensor) -> Span:
    """All columns of `tensor`."""
    return Span(tensor, 0, tensor.width)


@dataclass(frozen=True)
class Scale:
    """A field that depends on exponents: a constant plus a sum of exponents."""

    constant: int = 0
    """Added."""
    terms: tuple[tuple[str, int], ...] = ()
    """Names of exponents and their factors."""


@dataclass(eq=False)
class Draft:
    """An instruction whose addresses, rows and exponents are still names."""

    op: Op
    """Kind."""
    fields: dict[str, int]
    """Fields that are known."""
    places: dict[str, tuple[Tensor, int, int]] = field(default_factory=dict)
    """Field to (tensor, words behind its start, divisor of the sum)."""
    rows: dict[str, str] = field(default_factory=dict)
    """Field to what it says of the block: `tiles`, `rows` or `tail`."""
    scales: dict[str, Scale] = field(default_factory=dict)
    """Fields made of exponents."""
    ranged: dict[str, str] = field(default_factory=dict)
    """Range field to the name of the exponent whose values are counted."""
    reads: tuple[Span, ...] = ()
    """What it reads."""
    writes: tuple[Span, ...] = ()
    """What it writes."""
    note: str = ""
    """What it is for."""
    macs_per_row: int = 0
    """Useful products for each row of the block."""
    run: int = 0
    """RUN of the row program that it belongs to."""


@dataclass(frozen=True)
class Geometry:
    """Rows of a block, as the fields of instructions see them."""

    array_size: int
    """P."""
    rows: int
    """Valid rows."""
    stride: int
    """Batch tiles of the layout, NB: words from one column to the next."""

    @property
    def tiles(self) -> int:
        """Batch tiles that hold valid rows."""
        return -(-self.rows // self.array_size)

    def value(self, what: str) -> int:
        """The field that `Draft.rows` names."""
        tail = self.rows % self.array_size
        return {"tiles": self.tiles - 1, "rows": self.rows - 1, "tail": tail}[what]


def finished(draft: Draft, geometry: Geometry, entries: Mapping[str, int]) -> Instruction:
    """The instruction of a placed draft, exponent fields zero.

    Args:
        draft: All its tensors have addresses.
        geometry: Of the block.
        entries: Exponent name to entry of RANGE.
    """
    names = [name for name, _, _ in FIELDS[draft.op]]
    fields = dict.fromkeys((n for n in names if n.startswith("range")), NO_RANGE) | draft.fields
    for name, (tensor, behind, divisor) in draft.places.items():
        assert tensor.address is not None, f"{draft.note}: {tensor.name} has no address"
        fields[name] = (tensor.address + behind) // divisor
    fields |= {name: geometry.value(what) for name, what in draft.rows.items()}
    fields |= {name: entries.get(scale, NO_RANGE) for name, scale in draft.ranged.items()}
    macs = draft.macs_per_row * geometry.rows
    return Instruction(draft.op, fields, note=draft.note, macs=macs)


def in_run(drafts: list[Draft], run: int) -> list[Draft]:
    """Those of one RUN, in order."""
    return [d for d in drafts if d.run == run]


def renamed(scale: Scale, names: Mapping[str, str]) -> Scale:
    """The same sum over the names that stand for its exponents."""
    return replace(scale, terms=tuple((names.get(n, n), k) for n, k in scale.terms))
