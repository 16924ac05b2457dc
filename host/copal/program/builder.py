# SPDX-License-Identifier: MIT
"""Collects the operations of a Program: shares equal ones, folds constants, drops dead ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from copal.program.program import GRADIENT_OPS, Buffer, Network, Op, Program

_FOLD: Mapping[str, Callable[..., float]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "minimum": min,
    "maximum": max,
    "less": lambda x, y: float(x < y),
    "less_equal": lambda x, y: float(x <= y),
    "equal": lambda x, y: float(x == y),
    "where": lambda x, y, z: y if x else z,
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: float((x > 0) - (x < 0)),
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "sqrt": math.sqrt,
    "relu": lambda x: max(x, 0.0),
}

_COMMUTATIVE = frozenset({"add", "mul", "minimum", "maximum", "equal"})


class ProgramBuilder:
    """Appends operations one by one; a buffer is known by its name.

    Args:
        inputs: Row inputs that operations may read.
    """

    def __init__(self, inputs: Sequence[Buffer]) -> None:
        self._inputs = tuple(inputs)
        self._buffers = {b.name: b for b in inputs}
        self._ops: list[Op] = []
        self._definition: dict[str, Op] = {}
        self._known: dict[tuple[Any, ...], str] = {}
        self._order = {b.name: i for i, b in enumerate(inputs)}
        self._counts: dict[str, int] = {}

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`."""
        return self._buffers[name]

    def width(self, name: str) -> int:
        """Columns of the buffer called `name`."""
        return self._buffers[name].width

    def const(self, value: float) -> str:
        """A buffer of width 1 that holds `value` in each row."""
        if not math.isfinite(value):
            # A quotient, since JSON has no such numbers and NaN differs from itself.
            dividend = 0.0 if math.isnan(value) else math.copysign(1.0, value)
            return self.emit("div", self.const(dividend), self.const(0))
        return self._append("const", (), {"value": float(value)}, 1)

    def constant_of(self, name: str) -> float | None:
        """The value of a constant buffer, None for any other one."""
        op = self._definition.get(name)
        return op.attrs["value"] if op is not None and op.kind == "const" else None

    def parts_of(self, name: str) -> tuple[str, ...]:
        """The buffers that a concatenation consists of; of any other buffer itself."""
        op = self._definition.get(name)
        return op.inputs if op is not None and op.kind == "concat" else (name,)

    def emit(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """Appends an operation unless a simpler or an equal one gives the same value.

        Returns:
            The name of the buffer that holds its result.
        """
        if kind == "concat":
            inputs = self._merged(inputs)
        simpler = self._simplify(kind, inputs, attrs)
        if simpler is not None:
            return simpler
        if kind in _COMMUTATIVE:
            inputs = tuple(sorted(inputs, key=self._order.__getitem__))
        return self._append(kind, inputs, attrs, self._result_width(kind, inputs, attrs))

    def widen(self, name: str, width: int) -> str:
        """Repeats a buffer of width 1 over `width` columns."""
        if self.width(name) == width:
            return name
        return self.emit("concat", *([name] * width))

    def vector(self, values: Sequence[float]) -> str:
        """A buffer that holds `values` in each row, of width 1 if they are all equal."""
        parts = [self.const(v) for v in values]
        return parts[0] if len(set(parts)) == 1 else self.emit("concat", *parts)

    def add_gradient(self, kind: str, inputs: tuple[str, ...], **attrs: Any) -> None:
        """Appends one of `GRADIENT_OPS`."""
        assert kind in GRADIENT_OPS
        self._ops.append(Op(kind, inputs, None, attrs))

    def finish(
        self,
        name: str,
        networks: Sequence[Network],
        outputs: Mapping[str, str],
        gradient: str | None,
    ) -> Program:
        """The Program of all operations that an output or the gradient needs."""
        ops = self._live(set(outputs.values()))
        read = {i for op in ops for i in op.inputs} | set(outputs.values())
        used = {op.attrs["network"] for op in ops if "network" in op.attrs} | {gradient}
        return Program(
            name=name,
            networks=tuple(n for n in networks if n.name in used),
            inputs=tuple(b for b in self._inputs if b.name in read),
            ops=tuple(ops),
            outputs=dict(outputs),
            gradient=gradient,
        )

    def _live(self, needed: set[str]) -> list[Op]:
        live = []
        for op in reversed(self._ops):
            if op.output is None or op.output.name in needed:
                live.append(op)
                needed.update(op.inputs)
        return live[::-1]

    def _append(
        self, kind: str, inputs: tuple[str, ...], attrs: Mapping[str, Any], width: int
    ) -> str:
        key = (kind, inputs, tuple(sorted(attrs.items())))
        if key not in self._known:
            out = Buffer(self._new_name(kind, attrs), width, _dtype(kind))
            op = Op(kind, inputs, out, dict(attrs))
            self._ops.append(op)
            self._buffers[out.name] = out
            self._definition[out.name] = op
            self._order[out.name] = len(self._order)
            self._known[key] = out.name
        return self._known[key]

    def _new_name(self, kind: str, attrs: Mapping[str, Any]) -> str:
        stem = f"{attrs['network']}_{kind}" if kind == "dense" else kind
        while True:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{self._counts[stem]}"
            if name not in self._buffers:
                return name

    def _result_width(self, kind: str, inputs: tuple[str, ...], attrs: Mapping[str, Any]) -> int:
        widths = [self.width(i) for i in inputs]
        if kind == "dense":
            return int(attrs["fan_out"])
        if kind == "dense_grad_input":
            return int(attrs["fan_in"])
        if kind == "scatter":
            return int(attrs["width"])
        if kind == "slice":
            return int(attrs["stop"] - attrs["start"])
        if kind == "concat":
            return sum(widths)
        if kind in {"gather", "row_max", "row_argmax", "row_sum"}:
            return 1
        return max(widths)

    def param(self, network: str, offset: int, width: int) -> str:
        """A buffer that holds `width` parameters in each row."""
        return self._append("param", (), {"network": network, "offset": offset}, width)

    def _simplify(self, kind: str, inputs: tuple[str, ...], attrs: Mapping[str, Any]) -> str | None:
        if kind == "slice":
            return self._simplify_slice(inputs[0], attrs["start"], attrs["stop"])
        constants = [self.constant_of(i) for i in inputs]
        if kind in _FOLD and None not in constants:
            return self._fold(kind, constants)
        if kind in {"row_max", "row_sum", "concat"} and len(inputs) == 1:
            return inputs[0] if self.width(inputs[0]) == 1 or kind == "concat" else None
        if kind == "where":
            return self._simplify_where(*inputs)
        if kind in {"add", "sub", "mul", "div"}:
            return self._simplify_arithmetic(kind, *inputs)
        if kind == "neg":
            op = self._definition.get(inputs[0])
            return op.inputs[0] if op is not None and op.kind == "neg" else None
        return None

    def _simplify_slice(self, x: str, start: int, stop: int) -> str | None:
        """A slice of everything, of a slice, or of whole parts of a concatenation."""
        op = self._definition.get(x)
        if start == 0 and stop == self.width(x):
            return x
        if op is not None and op.kind == "slice":
            first = op.attrs["start"]
            return self.emit("slice", op.inputs[0], start=first + start, stop=first + stop)
        if op is None or op.kind != "concat":
            return None
        ends = list(itertools.accumulate((self.width(p) for p in op.inputs), initial=0))
        for i, part in enumerate(op.inputs):
            if ends[i] <= start and stop <= ends[i + 1]:
                return self.emit("slice", part, start=start - ends[i], stop=stop - ends[i])
        if start in ends and stop in ends:
            return self.emit("concat", *op.inputs[ends.index(start) : ends.index(stop)])
        return None

    def _merged(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The parts of a concatenation, with neighbouring slices of one buffer joined."""
        merged: list[str] = []
        for part in parts:
            last, op = (self._definition.get(n) for n in (merged[-1] if merged else "", part))
            if (
                last is not None
                and op is not None
                and last.kind == op.kind == "slice"
                and last.inputs == op.inputs
                and last.attrs["stop"] == op.attrs["start"]
            ):
                ends = {"start": last.attrs["start"], "stop": op.attrs["stop"]}
                merged[-1] = self.emit("slice", *op.inputs, **ends)
            else:
                merged.append(part)
        return tuple(merged)

    def _fold(self, kind: str, constants: Sequence[float | None]) -> str | None:
        try:
            return self.const(_FOLD[kind](*constants))
        except (ArithmeticError, ValueError):
            return None  # infinite or NaN: the executors' arithmetic decides which

    def _simplify_arithmetic(self, kind: str, x: str, y: str) -> str | None:
        a, b = self.constant_of(x), self.constant_of(y)
        keeps_x, keeps_y = self.width(x) >= self.width(y), self.width(y) >= self.width(x)
        if kind in {"add", "sub"}:
            if b == 0 and keeps_x:
                return x
            if a == 0 and keeps_y:
                return y if kind == "add" else self.emit("neg", y)
            return None
        if b in (1, -1) and keeps_x:
            return x if b == 1 else self.emit("neg", x)
        if kind == "mul" and a in (1, -1) and keeps_y:
            return y if a == 1 else self.emit("neg", y)
        if a is not None and kind == "mul":
            x, y, b = y, x, a
        return self._merge_factors(kind, x, b) if b else None

    def _merge_factors(self, kind: str, x: str, factor: float) -> str | None:
        """`(x * c) * factor` as one product; factors that undo each other disappear exactly."""
        op = self._definition.get(x)
        if op is None or op.kind != "mul":
            return None
        for i, name in enumerate(op.inputs):
            inner = self.constant_of(name)
            if inner is not None:
                outer = Fraction(factor) if kind == "mul" else 1 / Fraction(factor)
                product = Fraction(inner) * outer
                short = product.limit_denominator(4096)
                if abs(product - short) < abs(product) * Fraction(1, 10**12):
                    product = short
                return self.emit("mul", op.inputs[1 - i], self.const(float(product)))
        return None

    def _simplify_where(self, condition: str, x: str, y: str) -> str | None:
        known = self.constant_of(condition)
        chosen = x if x == y else None if known is None else x if known else y
        if chosen is not None:
            return self.widen_like(chosen, condition, x, y)
        test = self._definition.get(condition)
        if test is None or test.kind != "less_equal" or self.constant_of(x) != 0:
            return None
        value = self._definition.get(test.inputs[0])
        if value is not None and value.kind == "relu" and self.constant_of(test.inputs[1]) == 0:
            y = self.widen_like(y, test.inputs[0])
            return self.emit("relu_grad", y, test.inputs[0])
        return None

    def widen_like(self, name: str, *others: str) -> str:
        """Repeats a buffer of width 1 to the widest of `others`."""
        return self.widen(name, max(self.width(o) for o in others))


def _dtype(kind: str) -> str:
    return "int32" if kind == "row_argmax" else "float32"
