# SPDX-License-Identifier: MIT
"""What a traced tensor can stand for while it is lowered to a Program."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import torch


@dataclass(frozen=True)
class Rows:
    """A row buffer seen as a tensor of shape [B, *shape], or of shape [*shape] without a row axis.

    A buffer of width 1 may stand for a wider `shape`: it is then repeated over the columns.
    """

    buffer: str
    """Name of the buffer."""
    shape: tuple[int, ...]
    """Shape without the row axis."""
    per_row: bool = True
    """False: the tensor has no row axis, it was computed from parameters alone."""

    @property
    def width(self) -> int:
        """Numbers a row."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Transposed:
    """A [width, B] view of rows, which only a product over the rows may read."""

    rows: Rows
    """The [B, width] tensor that was transposed."""


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor, or a reshaped or transposed view of one."""

    network: str
    """The network that holds it."""
    offset: int
    """Where it starts in the flat vector."""
    shape: tuple[int, ...]
    """Shape of the stored tensor, row by row."""
    transposed: bool = False
    """True: a matrix read with its axes exchanged."""


@dataclass(frozen=True)
class Const:
    """A tensor that depends on no input."""

    tensor: torch.Tensor
    """Its value."""


@dataclass(frozen=True)
class Term:
    """One sum over rows: of `x`, or of the outer products of `x` and `y`."""

    x: str
    """Buffer, [B, m]."""
    y: str | None = None
    """Buffer [B, n]; None: no outer product."""
    scale: Fraction = Fraction(1)
    """Factor of the sum; exact, so that a mean times the batch size is the sum again."""


@dataclass(frozen=True)
class Summed:
    """A tensor that is a sum over rows, as every gradient is; only linear operations may follow."""

    terms: tuple[Term, ...]
    """Its summands."""
    shape: tuple[int, ...]
    """Its shape."""

    def scaled(self, factor: Fraction) -> Summed:
        """This tensor times a number."""
        return replace(self, terms=tuple(replace(t, scale=t.scale * factor) for t in self.terms))

    @property
    def transposed(self) -> Summed:
        """This matrix with its axes exchanged; an outer product's factors change places."""
        terms = tuple(replace(t, x=t.y, y=t.x) if t.y is not None else t for t in self.terms)
        return Summed(terms, self.shape[::-1])


Value = Rows | Transposed | Parameter | Const | Summed
