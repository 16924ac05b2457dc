# SPDX-License-Identifier: MIT
"""C++ of a light step: a warp works through its row.

A buffer of width 1 is a variable that every lane has. Wider ones are formed in loops over the
columns; operations of one width share a loop, so that a chain of formulas stays in registers. What
is read across columns, or later, lies in memory; a `__syncwarp` stands before such a read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from copal.gpu.layout import VectorLayout, pad
from copal.gpu.names import c_type, identifiers, literal, network_identifiers
from copal.gpu.segments import Light, Store
from copal.program import Buffer, Op, Program

_FORMULAS: Mapping[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "minimum": "copal::minimum({0}, {1})",
    "maximum": "copal::maximum({0}, {1})",
    "less": "({0} < {1} ? 1.f : 0.f)",
    "less_equal": "({0} <= {1} ? 1.f : 0.f)",
    "equal": "({0} == {1} ? 1.f : 0.f)",
    "where": "({0} != 0 ? {1} : {2})",
    "neg": "-({0})",
    "abs": "fabsf({0})",
    "sign": "copal::sign({0})",
    "exp": "expf({0})",
    "log": "logf({0})",
    "tanh": "tanhf({0})",
    "sqrt": "sqrtf({0})",
    "relu": "copal::relu({0})",
    "relu_grad": "({1} > 0.f ? {0} : 0.f)",
}
_OVER_ROW = frozenset({"row_max", "row_argmax", "row_sum", "gather"})


def constants(program: Program) -> dict[str, float]:
    """Values of `const` buffers by name."""
    ops = (op for op in program.ops if op.kind == "const" and op.output is not None)
    return {op.output.name: op.attrs["value"] for op in ops if op.output is not None}


class RowCode:
    """Writes the body of one light step.

    Args:
        program: What the step is of.
        layouts: Layouts of networks.
        stored: Buffers that have a place in memory.
        padded: Of these, those that dense products read: what is behind their width is zero.
        outputs: Role to C++ of the place of its first row.

    Attributes:
        demanded: Buffers that were read from memory.
    """

    def __init__(
        self,
        program: Program,
        layouts: Mapping[str, VectorLayout],
        stored: Collection[str],
        padded: Collection[str],
        outputs: Mapping[str, str],
    ) -> None:
        self._buffers = {b.name: b for b in program.buffers()}
        self._names, self._networks = identifiers(program), network_identifiers(program)
        self._constants = constants(program)
        self._layouts, self._outputs = layouts, outputs
        self._stored, self._padded = stored, padded
        self.demanded: set[str] = set()
        self._lines: list[str] = []
        self._scalars: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._loop_width = 0
        self._loop: list[str] = []
        self._loop_values: dict[str, str] = {}

    def body(self, step: Light) -> list[str]:
        """The lines inside the loop over rows."""
        for item in step.ops:
            if isinstance(item, Store):
                self._store_output(item)
            elif item.kind == "concat":
                self._concat(item)
            elif item.output is not None and item.output.width == 1:
                self._define_scalar(item, item.output)
            elif item.output is not None:
                self._define_wide(item, item.output)
        self._close()
        return self._lines

    # Reading

    def _memory(self, name: str, column: str) -> str:
        buffer = self._buffers[name]
        self.demanded.add(name)
        at = f"{self._names[name]}[row * {pad(buffer.width)} + {column}]"
        return f"__float_as_int({at})" if buffer.dtype == "int32" else at

    def _scalar(self, name: str) -> str:
        if name in self._constants:
            return literal(self._constants[name], self._buffers[name].dtype)
        if name not in self._scalars:
            buffer = self._buffers[name]
            self._scalars[name] = variable = f"s_{self._names[name]}"
            self._lines.append(f"const {c_type(buffer)} {variable} = {self._memory(name, '0')};")
        return self._scalars[name]

    def _wide(self, name: str) -> str:
        if name in self._loop_values:
            return self._loop_values[name]
        return self._memory(name, "c")

    def _operand(self, name: str) -> str:
        return self._scalar(name) if self._buffers[name].width == 1 else self._wide(name)

    def _settle(self, names: Sequence[str], *, across: bool = False) -> None:
        """Makes what other lanes have written of these buffers readable.

        Args:
            names: Buffers.
            across: Whether they are read at other columns than those of a lane.
        """
        wide = [n for n in names if self._buffers[n].width > 1 and n in self._dirty]
        if any(across or n not in self._loop_values for n in wide):
            self._close()
            self._lines.append("__syncwarp();")
            self._dirty.clear()

    # Loops over columns

    def _open(self, width: int) -> None:
        if self._loop_width != width:
            self._close()
            self._loop_width = width

    def _close(self) -> None:
        if self._loop:
            head = f"for (int c = lane; c < {self._loop_width}; c += 32) {{"
            self._lines += [head, *(f"  {line}" for line in self._loop), "}"]
        self._loop, self._loop_values, self._loop_width = [], {}, 0

    # Defining

    def _define_scalar(self, op: Op, output: Buffer) -> None:
        if op.kind == "const":
            if output.name in self._stored:
                self._keep_scalar(output, self._scalar(output.name))
            return
        expression = self._expression(op, output)
        variable = self._scalars[output.name] = f"s_{self._names[output.name]}"
        self._lines.append(f"const {c_type(output)} {variable} = {expression};")
        if output.name in self._stored:
            self._keep_scalar(output, variable)

    def _keep_scalar(self, output: Buffer, value: str) -> None:
        bits = f"__int_as_float({value})" if output.dtype == "int32" else value
        at = f"{self._names[output.name]}[row * 4"
        if output.name in self._padded:
            self._lines.append(f"if (lane < 4) {at} + lane] = lane == 0 ? {bits} : 0.f;")
        else:
            self._lines.append(f"if (lane == 0) {at}] = {bits};")

    def _define_wide(self, op: Op, output: Buffer) -> None:
        if op.kind != "slice":
            self._settle(op.inputs)
        else:
            self._settle(op.inputs, across=True)
        self._open(output.width)
        expression = self._expression(op, output)
        variable = f"v_{self._names[output.name]}"
        self._loop.append(f"const {c_type(output)} {variable} = {expression};")
        self._loop_values[output.name] = variable
        if output.name in self._stored:
            self._keep_wide(output, variable, "c")
            self._zero_padding(output)

    def _keep_wide(self, output: Buffer, value: str, column: str) -> None:
        bits = f"__int_as_float({value})" if output.dtype == "int32" else value
        at = f"{self._names[output.name]}[row * {pad(output.width)} + {column}]"
        self._loop.append(f"{at} = {bits};")
        self._dirty.add(output.name)

    def _zero_padding(self, output: Buffer) -> None:
        behind = pad(output.width) - output.width
        if behind and output.name in self._padded:
            at = f"{self._names[output.name]}[row * {pad(output.width)} + {output.width} + lane]"
            self._lines.append(f"if (lane < {behind}) {at} = 0.f;")

    def _concat(self, op: Op) -> None:
        assert op.output is not None
        self._zero_padding(op.output)
        start = 0
        for name in op.inputs:
            width = self._buffers[name].width
            value = self._cast(name, op.output)
            if width == 1:
                bits = f"__int_as_float({value()})" if op.output.dtype == "int32" else value()
                at = f"{self._names[op.output.name]}[row * {pad(op.output.width)} + {start}]"
                self._lines.append(f"if (lane == 0) {at} = {bits};")
            else:
                self._settle([name])
                self._open(width)
                self._keep_wide(op.output, value(), f"{start} + c")
            start += width
        self._dirty.add(op.output.name)

    def _store_output(self, item: Store) -> None:
        buffer = self._buffers[item.buffer]
        to = f"{self._outputs[item.role]} + (first + row) * {buffer.width}"
        if buffer.width == 1:
            value = self._scalar(item.buffer)
            # In no loop: the value is there before any loop that is open.
            self._lines.append(
                f"if (lane == 0 && row < rows) copal::output({to}, {value}, status);"
            )
            return
        self._settle([item.buffer])
        self._open(buffer.width)
        value = self._wide(item.buffer)
        self._loop.append(f"if (row < rows) copal::output({to} + c, {value}, status);")

    # Formulas

    def _cast(self, name: str, output: Buffer) -> Callable[[], str]:
        """The operand as a formula for `output` takes it."""
        number = self._buffers[name].dtype == "int32" and output.dtype != "int32"
        return lambda: f"(float)({self._operand(name)})" if number else self._operand(name)

    def _expression(self, op: Op, output: Buffer) -> str:
        if op.kind in _OVER_ROW:
            return self._over_row(op)
        if op.kind == "param":
            return self._param(op, output)
        if op.kind == "slice":
            return self._slice(op, output)
        if op.kind == "scatter":
            x, index = (self._operand(name) for name in op.inputs)
            column = "0" if output.width == 1 else "c"
            return f"({index} == {column} ? {x} : 0)"
        operands = [self._cast(name, output)() for name in op.inputs]
        formula = _FORMULAS[op.kind].format(*operands)
        return f"(int)({formula})" if output.dtype == "int32" else formula

    def _over_row(self, op: Op) -> str:
        name = op.inputs[0]
        width = self._buffers[name].width
        if width == 1:
            value = self._scalar(name)
            if op.kind == "gather":
                return f"({self._scalar(op.inputs[1])} == 0 ? {value} : copal::not_a_number())"
            return "0" if op.kind == "row_argmax" else value
        self._settle([name], across=True)
        self.demanded.add(name)
        row = f"{self._names[name]} + row * {pad(width)}"
        index = f", {self._scalar(op.inputs[1])}" if op.kind == "gather" else ""
        return f"copal::{op.kind}<{width}>({row}{index})"

    def _param(self, op: Op, output: Buffer) -> str:
        network = op.attrs["network"]
        at = self._layouts[network].at(op.attrs["offset"])
        column = "" if output.width == 1 else " + c"
        return f"{self._networks[network]}[{at}{column}]"

    def _slice(self, op: Op, output: Buffer) -> str:
        name, start = op.inputs[0], op.attrs["start"]
        if self._buffers[name].width == 1:
            return self._scalar(name)
        self._settle([name], across=True)
        return self._memory(name, str(start) if output.width == 1 else f"{start} + c")
