# SPDX-License-Identifier: MIT
"""From a Program to instructions without addresses: one pass over its operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from copal.fpga.compiler.draft import Draft, Span, Tensor
from copal.fpga.compiler.fuse import Fusion, fuse, occurrence
from copal.fpga.compiler.product import ProductUnit
from copal.fpga.compiler.scales import ScaleBook
from copal.fpga.compiler.vector import (
    BINARY,
    UNARY,
    Operand,
    Raw,
    Value,
    VectorUnit,
    magnitude,
    negated,
)
from copal.fpga.config import EngineConfig
from copal.fpga.isa import Op as Code
from copal.fpga.isa import Vop
from copal.fpga.parameters import ParameterLayout
from copal.program import Buffer, Op, Program


def lower(
    program: Program,
    phase: int,
    inputs: Mapping[str, Span],
    concats: Mapping[str, Span],
    parameters: ParameterLayout,
    book: ScaleBook,
    config: EngineConfig,
    stride: int,
    *,
    clipped: bool = False,
) -> tuple[list[Draft], dict[str, Span]]:
    """Makes the instructions of a row program.

    Args:
        program: What to run; `supports` has nothing against it.
        phase: Its number in the Update.
        inputs: Where its inputs lie.
        concats: Concatenations that lie around inputs, by buffer name.
        parameters: Where the networks lie.
        book: Gets the exponents.
        config: Of the engine.
        stride: Batch tiles of a block.
        clipped: Whether the norm of the gradient is needed.

    Returns:
        Instructions in the order of the operations, and where each output lies by its role.
    """
    drafts: list[Draft] = []
    unit = ProductUnit(drafts, parameters, book, config, stride, phase, clipped=clipped)
    lowering = _Lowering(program, inputs, concats, drafts, unit, stride)
    for number, op in enumerate(program.ops):
        lowering.lower(number, op)
    outputs = {role: lowering.span(name) for role, name in program.outputs.items()}
    return drafts, outputs


class _Lowering:
    """One pass over one Program."""

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Span],
        concats: Mapping[str, Span],
        drafts: list[Draft],
        product: ProductUnit,
        stride: int,
    ) -> None:
        self._program, self._drafts, self._product = program, drafts, product
        self._fusion: Fusion = fuse(program)
        self._unit = VectorUnit(drafts, stride)
        self._widths = {b.name: b.width for b in program.buffers()}
        self._defined = {op.output.name: op for op in program.ops if op.output is not None}
        self._values: dict[str, Value] = {name: Operand(span) for name, span in inputs.items()}
        self._storage: dict[str, Span] = dict(concats)
        self._plain: dict[str, Span] = {}
        self._integers: dict[str, Tensor] = {}
        self._masks: dict[str, Tensor] = {}
        self._run = {
            i: occurrence(program, i) for i, op in enumerate(program.ops) if op.output is None
        }
        self._summed = set(self._fusion.bias_sums.values())

    def lower(self, number: int, op: Op) -> None:
        """Appends the instructions of one operation."""
        if op.output is None:
            first = len(self._drafts)
            if op.kind == "dense_grad_weight":
                self._dense_grad_weight(number, op)
            elif number not in self._summed:
                self._sum_over_rows(op)
            for draft in self._drafts[first:]:
                if draft.op == Code.PRODUCT:
                    draft.run = self._run[number]
        elif op.output.name not in self._fusion.inside:
            self._define(op, op.output)

    def _define(self, op: Op, out: Buffer) -> None:
        name = out.name
        rule = getattr(self, f"_{op.kind}", None)
        if name in self._fusion.relus | self._fusion.masked:
            self._fused(op, out)
        elif rule is not None:
            rule(op, out)
        elif op.kind in BINARY:
            x, y = (self._operand(i) for i in op.inputs)
            if isinstance(x, float) and isinstance(y, float):
                x = Operand(self.span(op.inputs[0]))
            self._unit.binary(op.kind, self._written(out), x, y)
        elif op.kind in UNARY:
            x = self._operand(op.inputs[0])
            self._unit.emit(UNARY[op.kind], self._written(out), x, note=op.kind)
        else:
            raise AssertionError(op.kind)

    # Where values lie.

    def _place(self, name: str) -> Span:
        """The columns of V that are `name`'s own."""
        if name not in self._storage:
            home = self._fusion.homes.get(name)
            width = self._widths[name]
            if home is None:
                self._storage[name] = self._unit.new(name, width)
            else:
                around, start = home
                self._storage[name] = self._place(around).part(start, start + width)
        return self._storage[name]

    def _written(self, out: Buffer) -> Span:
        """The columns of V that an operation writes its result to."""
        span = self._place(out.name)
        self._values[out.name] = Operand(span)
        return span

    def _operand(self, name: str) -> Operand | float:
        value = self._values[name]
        return Operand(self.span(name)) if isinstance(value, Raw) else value

    def span(self, name: str) -> Span:
        """The columns of V that hold `name` as it is, made if there are none yet."""
        value = self._values[name]
        if isinstance(value, Operand) and not (value.magnitude or value.negative):
            return value.span
        if name not in self._plain:
            self._plain[name] = self._unit.new(name, self._widths[name])
            self._unit.move(self._plain[name], value, note=name)
        return self._plain[name]

    def _as_integers(self, name: str) -> Tensor:
        """The buffer in the operand memories that products read it from."""
        if name not in self._integers:
            needs = self._fusion.needs[name]
            scale = self._product.scale_of(name, needs)
            tensor = self._product.tensor(name, self._widths[name], needs, scale)
            self._integers[name] = tensor
            self._product.quant(self.span(name), tensor)
        return self._integers[name]

    # Products.

    def _dense(self, op: Op, out: Buffer) -> None:
        x = self._as_integers(op.inputs[0])
        result = self._product_result(out)
        self._as_floats(out, result, self._product.dense(op.attrs, out.name, x, result))

    def _dense_grad_input(self, op: Op, out: Buffer) -> None:
        x = self._as_integers(op.inputs[0])
        result = self._product_result(out)
        scale = self._product.dense_grad_input(op.attrs, out.name, x, result)
        self._as_floats(out, result, scale)

    def _as_floats(self, out: Buffer, result: Span | Tensor, scale: str) -> None:
        """What V holds of a product: floats, or integers if those are picked from only."""
        if isinstance(result, Tensor):
            return
        raw = Raw(result, scale)
        if out.name in self._fusion.gathered:
            self._values[out.name] = raw
        else:
            self._unit.move(self._written(out), raw, note=f"float {out.name}")

    def _product_result(self, out: Buffer) -> Span | Tensor:
        """Where a product writes; in V, what follows makes floats of it."""
        name = out.name
        if name in self._fusion.direct:
            needs = self._fusion.needs[name]
            scale = self._product.scale_of(name, needs)
            self._integers[name] = self._product.tensor(name, out.width, needs, scale)
            return self._integers[name]
        return self._place(name)

    def _fused(self, op: Op, out: Buffer) -> None:
        below = self._defined[op.inputs[0]]
        x = self._as_integers(below.inputs[0])
        result = self._product_result(out)
        assert isinstance(result, Tensor)
        if op.kind == "relu":
            mask = self._product.mask(out.name, out.width)
            self._masks[out.name] = mask
            self._product.dense(below.attrs, out.name, x, result, mask)
        else:
            mask = self._masks[op.inputs[1]]
            self._product.dense_grad_input(below.attrs, out.name, x, result, mask)

    def _dense_grad_weight(self, number: int, op: Op) -> None:
        x, y = (self._as_integers(i) for i in op.inputs)
        paired = self._fusion.bias_sums.get(number)
        offset = None if paired is None else int(self._program.ops[paired].attrs["offset"])
        self._product.dense_grad_weight(op.attrs, x, y, offset)

    def _sum_over_rows(self, op: Op) -> None:
        x = self._as_integers(op.inputs[0])
        self._product.sum_over_rows(str(self._program.gradient), op.attrs["offset"], x)

    # Operations that are no plain instruction.

    def _const(self, op: Op, out: Buffer) -> None:
        self._values[out.name] = float(op.attrs["value"])

    def _neg(self, op: Op, out: Buffer) -> None:
        self._values[out.name] = negated(self._operand(op.inputs[0]))

    def _abs(self, op: Op, out: Buffer) -> None:
        self._values[out.name] = magnitude(self._operand(op.inputs[0]))

    def _slice(self, op: Op, out: Buffer) -> None:
        value = self._operand(op.inputs[0])
        if isinstance(value, Operand):
            part = value.span.part(op.attrs["start"], op.attrs["stop"])
            value = Operand(part, value.magnitude, value.negative)
        self._values[out.name] = value

    def _relu(self, op: Op, out: Buffer) -> None:
        x = Operand(self.span(op.inputs[0]))
        self._unit.emit(Vop.MAX, self._written(out), x, 0.0, note="relu")

    def _where(self, op: Op, out: Buffer) -> None:
        condition, y, z = op.inputs
        test = Operand(self.span(condition))
        coalesced = self._fusion.homes.get(z) == (out.name, 0)
        otherwise = None if coalesced else self._operand(z)
        self._unit.where(self._written(out), test, self._operand(y), otherwise)

    def _gather(self, op: Op, out: Buffer) -> None:
        value = self._values[op.inputs[0]]
        x = value if isinstance(value, Raw) else Operand(self.span(op.inputs[0]))
        self._unit.gather(self._written(out), x, Operand(self.span(op.inputs[1])))

    def _scatter(self, op: Op, out: Buffer) -> None:
        x = self._operand(op.inputs[0])
        if isinstance(x, float):
            x = Operand(self.span(op.inputs[0]))
        self._unit.scatter(self._written(out), x, Operand(self.span(op.inputs[1])))

    def _row_max(self, op: Op, out: Buffer) -> None:
        self._unit.fold(Vop.MAX, self._written(out), self.span(op.inputs[0]))

    def _row_sum(self, op: Op, out: Buffer) -> None:
        self._unit.fold(Vop.ADD, self._written(out), self.span(op.inputs[0]))

    def _row_argmax(self, op: Op, out: Buffer) -> None:
        self._unit.argmax(self._written(out), self.span(op.inputs[0]))

    def _param(self, op: Op, out: Buffer) -> None:
        network, offset = str(op.attrs["network"]), int(op.attrs["offset"])
        span = self._written(out)
        for j in range(out.width):
            self._product.broadcast(network, offset + j, span.part(j, j + 1))

    def _concat(self, op: Op, out: Buffer) -> None:
        values = [self._operand(i) for i in op.inputs]
        beside = _joined(values)
        if beside is not None:
            self._values[out.name] = Operand(beside)
            return
        span, start = self._written(out), 0
        for name, width, value in _repeated(op.inputs, self._widths, values):
            part = span.part(start, start + width)
            if value != Operand(part):
                self._unit.move(part, value, note=f"concat {name}")
            start += width


def _joined(values: list[Any]) -> Span | None:
    """The span that plain operands make up, None if they do not lie side by side."""
    first = values[0]
    end = None
    for value in values:
        plain = isinstance(value, Operand) and not (value.magnitude or value.negative)
        if not plain or (end is not None and (value.span.tensor, value.span.start) != end):
            return None
        end = (value.span.tensor, value.span.start + value.span.width)
    width = sum(v.span.width for v in values)
    return Span(first.span.tensor, first.span.start, width)


def _repeated(
    names: tuple[str, ...], widths: Mapping[str, int], values: list[Operand | float]
) -> list[tuple[str, int, Operand | float]]:
    """Parts of a concatenation; a column that is repeated is one part."""
    parts: list[tuple[str, int, Operand | float]] = []
    for name, value in zip(names, values, strict=True):
        if parts and parts[-1][0] == name and widths[name] == 1:
            parts[-1] = (name, parts[-1][1] + 1, value)
        else:
            parts.append((name, widths[name], value))
    return parts
