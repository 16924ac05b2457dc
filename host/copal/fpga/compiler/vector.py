# SPDX-License-Identifier: MIT
"""Makes the instructions that work on columns of V: one method an operation of Programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from copal.fpga.compiler.draft import Draft, Scale, Span, Tensor, whole
from copal.fpga.isa import Op, Vop


@dataclass(frozen=True)
class Operand:
    """Columns with what is done to each number when it is read: magnitude first, then sign."""

    span: Span
    """Where the numbers lie."""
    magnitude: bool = False
    """Whether their signs are dropped."""
    negative: bool = False
    """Whether they are negated."""


@dataclass(frozen=True)
class Raw:
    """Columns of int32 sums that have yet to become floats."""

    span: Span
    """Where the integers lie."""
    scale: str
    """Their exponent."""


Value = Operand | Raw | float

#: Operation of Programs to that of the vector unit, for those with two operands.
BINARY: Mapping[str, Vop] = {
    "add": Vop.ADD,
    "sub": Vop.ADD,
    "mul": Vop.MUL,
    "div": Vop.DIV,
    "minimum": Vop.MIN,
    "maximum": Vop.MAX,
    "less": Vop.LT,
    "less_equal": Vop.LE,
    "equal": Vop.EQ,
    "relu_grad": Vop.RELUG,
}
#: The same for those with one operand.
UNARY: Mapping[str, Vop] = {
    "sign": Vop.SIGN,
    "exp": Vop.EXP,
    "log": Vop.LOG,
    "tanh": Vop.TANH,
    "sqrt": Vop.SQRT,
}

#: `pred`: write only where y is not zero, only where y equals the constant.
_NOT_ZERO, _EQUAL = 1, 2


class VectorUnit:
    """Appends VECTOR instructions to a list.

    Args:
        drafts: Grows.
        stride: Batch tiles, the words from one column to the next.
    """

    def __init__(self, drafts: list[Draft], stride: int) -> None:
        self.drafts, self.stride = drafts, stride

    def new(self, name: str, width: int) -> Span:
        """A fresh tensor in V."""
        return whole(Tensor(name, width, frozenset("V"), width * self.stride))

    def emit(
        self,
        vop: Vop,
        out: Span,
        x: Operand | Raw | float,
        y: Operand | float | None = None,
        *,
        pred: int = 0,
        compared: float | None = None,
        scale: Scale | None = None,
        note: str = "",
    ) -> None:
        """Appends one instruction. At most one constant among `x`, `y` and `compared`.

        Args:
            vop: What to compute.
            out: Where to.
            x: First operand; of width 1 it is the same in all columns.
            y: Second operand, or the condition of `pred`.
            pred: As the instruction's field.
            compared: What `y` is compared with.
            scale: Exponent of ITOF.
            note: For listings.
        """
        draft = Draft(Op.VECTOR, {"vop": int(vop), "cols": out.width - 1}, note=note)
        draft.rows["nt"] = "tiles"
        draft.fields["d_c"] = self.stride
        draft.places["d_base"] = (out.tensor, out.start * self.stride, 1)
        reads = []
        for name, operand in (("x", x), ("y", y)):
            if operand is None:
                continue
            if isinstance(operand, (float, int)):
                draft.fields |= {f"{name}_imm": 1, "imm": bits(operand)}
                continue
            span = operand.span
            reads.append(span)
            draft.places[f"{name}_base"] = (span.tensor, span.start * self.stride, 1)
            draft.fields[f"{name}_c"] = self.stride if span.width > 1 else 0
            if isinstance(operand, Operand):
                draft.fields[f"{name}_abs"] = int(operand.magnitude)
                draft.fields[f"{name}_neg"] = int(operand.negative)
        if compared is not None:
            draft.fields["imm"] = bits(compared)
        if scale is not None:
            draft.scales["exponent"] = scale
        draft.fields["pred"] = pred
        draft.reads, draft.writes = tuple(reads), (out,)
        self.drafts.append(draft)

    def move(
        self,
        out: Span,
        value: Value,
        condition: Operand | None = None,
        *,
        pred: int = 0,
        compared: float | None = None,
        note: str = "",
    ) -> None:
        """Writes `value` to `out`, where the condition holds; `pred` and so on as in `emit`."""
        vop, scale = Vop.MOV, None
        if isinstance(value, Raw):
            vop, scale = Vop.ITOF, Scale(0, ((value.scale, 1),))
        self.emit(vop, out, value, condition, pred=pred, compared=compared, scale=scale, note=note)

    def binary(self, kind: str, out: Span, x: Operand | float, y: Operand | float) -> None:
        """An operation of `BINARY`; not both operands are constants."""
        if kind == "sub":
            y = negated(y)
        self.emit(BINARY[kind], out, x, y, note=kind)

    def where(self, out: Span, condition: Operand, y: Value, z: Value | None) -> None:
        """`out` = `y` where the condition is not zero; elsewhere `z`, None: what is there."""
        if z is not None:
            self.move(out, z, note="where: otherwise")
        self.move(out, y, condition, pred=_NOT_ZERO, note="where")

    def gather(self, out: Span, x: Operand | Raw, index: Operand) -> None:
        """Column `index` of `x`, row by row."""
        for j in range(x.span.width):
            part = replace(x, span=x.span.part(j, j + 1))
            if j == 0:
                self.move(out, part, note="gather")
            else:
                self.move(out, part, index, pred=_EQUAL, compared=float(j), note="gather")

    def scatter(self, out: Span, x: Operand, index: Operand) -> None:
        """`x` in column `index`, zero in the others."""
        for j in range(out.width):
            column = out.part(j, j + 1)
            self.emit(Vop.SELZ, column, x, index, compared=float(j), note="scatter")

    def fold(self, vop: Vop, out: Span, x: Span) -> None:
        """All columns of `x` joined by an operation with any order, as a tree."""
        pieces = [x]
        while sum(p.width for p in pieces) > 1:
            widest = max(pieces, key=lambda p: p.width)
            half = max(widest.width // 2, 1)
            if widest.width > 1:
                pieces.remove(widest)
                a, b = widest.part(0, half), widest.part(half, 2 * half)
                if widest.width % 2:
                    pieces.append(widest.part(2 * half, widest.width))
            else:
                a, b = pieces.pop(0), pieces.pop(0)
            last = half == 1 and not pieces
            result = out if last else self.new("fold", half)
            self.emit(vop, result, Operand(a), Operand(b), note=f"fold {vop.name}")
            pieces.append(result)
        if x.width == 1:
            self.move(out, Operand(x))

    def argmax(self, out: Span, x: Span) -> None:
        """Number of the first column that holds the row's largest value."""
        largest, found = self.new("largest", 1), self.new("found", x.width)
        self.fold(Vop.MAX, largest, x)
        self.emit(Vop.EQ, found, Operand(x), Operand(largest), note="argmax")
        self.move(out, float(x.width - 1), note="argmax")
        for j in range(x.width - 2, -1, -1):
            here = Operand(found.part(j, j + 1))
            self.move(out, float(j), here, pred=_NOT_ZERO, note="argmax")


def negated(value: Operand | float) -> Operand | float:
    """The value with the other sign."""
    if isinstance(value, Operand):
        return replace(value, negative=not value.negative)
    return -value


def magnitude(value: Operand | float) -> Operand | float:
    """The value without its sign."""
    if isinstance(value, Operand):
        return Operand(value.span, magnitude=True)
    return abs(value)


def bits(value: float) -> int:
    """A float32 as its 32 bits."""
    return int(np.float32(value).view(np.uint32))
