# SPDX-License-Identifier: MIT
"""The Program: a static list of operations over rows that every executor runs alike.

A Program computes, for each row of a batch on its own, forward passes, target, TD error, weighted
loss and backward pass. Only the gradient crosses rows: the operations named in `GRADIENT_OPS` *sum*
over rows into one flat float32 vector. Dividing by the batch size, the optimiser and the averaging
of target networks belong to the reduce step (`copal.program.update`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from copal.errors import ProgramError

VERSION = 1


@dataclass(frozen=True)
class OpSpec:
    """What an operation kind takes and what it computes."""

    inputs: int
    """Number of buffers it reads."""
    attrs: tuple[str, ...]
    """Names of its attributes, all of them required."""
    text: str
    """Formula, with x, y, z for the inputs in order and r for the row."""


_DENSE = ("network", "weight", "bias", "fan_in", "fan_out")

#: Every operation kind. Buffers are [rows, width]; an elementwise operand of width 1 is broadcast
#: over the columns of the other one. Truth values are float32 0 and 1.
OPS: Mapping[str, OpSpec] = {
    "dense": OpSpec(1, _DENSE, "out = x W^T + b; W is [fan_out, fan_in]; bias -1: no bias"),
    "dense_grad_input": OpSpec(1, _DENSE, "out = x W, for x the gradient of a dense output"),
    "dense_grad_weight": OpSpec(
        2, _DENSE, "gradient[weight] += x^T y; x: output gradient, y: input"
    ),
    "sum_over_rows": OpSpec(
        1, ("offset",), "gradient[offset : offset + width] += sum over rows of x"
    ),
    "const": OpSpec(0, ("value",), "out = value, width 1"),
    "param": OpSpec(
        0, ("network", "offset"), "out[r, j] = network[offset + j], the same in each row"
    ),
    "add": OpSpec(2, (), "x + y"),
    "sub": OpSpec(2, (), "x - y"),
    "mul": OpSpec(2, (), "x * y"),
    "div": OpSpec(2, (), "x / y"),
    "minimum": OpSpec(2, (), "min(x, y)"),
    "maximum": OpSpec(2, (), "max(x, y)"),
    "less": OpSpec(2, (), "1 if x < y else 0"),
    "less_equal": OpSpec(2, (), "1 if x <= y else 0"),
    "equal": OpSpec(2, (), "1 if x == y else 0"),
    "where": OpSpec(3, (), "y if x != 0 else z"),
    "neg": OpSpec(1, (), "-x"),
    "abs": OpSpec(1, (), "|x|"),
    "sign": OpSpec(1, (), "-1, 0 or 1"),
    "exp": OpSpec(1, (), "e^x"),
    "log": OpSpec(1, (), "natural logarithm"),
    "tanh": OpSpec(1, (), "tanh x"),
    "sqrt": OpSpec(1, (), "square root"),
    "relu": OpSpec(1, (), "max(x, 0)"),
    "relu_grad": OpSpec(2, (), "x if y > 0 else 0; y is the relu's output"),
    "gather": OpSpec(2, (), "out[r, 0] = x[r, y[r, 0]]; y is int32"),
    "scatter": OpSpec(2, ("width",), "out[r, j] = x[r, 0] if j == y[r, 0] else 0; y is int32"),
    "row_max": OpSpec(1, (), "largest of the row, width 1"),
    "row_argmax": OpSpec(1, (), "index of the first largest of the row, width 1, int32"),
    "row_sum": OpSpec(1, (), "sum of the row, width 1"),
    "concat": OpSpec(-1, (), "inputs side by side"),
    "slice": OpSpec(1, ("start", "stop"), "x[:, start:stop]"),
    "opaque": OpSpec(-1, ("name",), "an ATen operation that only the `torch` backend has"),
}

#: Where an input comes from.
SOURCES: Mapping[str, str] = {
    "batch": "the column of this name",
    "normal": "standard normal numbers that the learner makes (`copal.program.noise`), unless the "
    "batch has a column of this name",
}

#: Operations whose result is a part of the flat gradient and not a row buffer.
GRADIENT_OPS = frozenset({"dense_grad_weight", "sum_over_rows"})


@dataclass(frozen=True)
class Buffer:
    """A named value with one row a transition."""

    name: str
    """Unique in its Program; of an input, the batch column that it is loaded from."""
    width: int
    """Columns; scalars have width 1."""
    dtype: str = "float32"
    """`float32`, or `int32` for indices."""
    source: str = "batch"
    """Of an input, a key of `SOURCES`."""


@dataclass(frozen=True)
class Dense:
    """Where one dense layer lies in its network's flat vector."""

    weight: int
    """Offset of W, stored as [fan_out, fan_in] row by row."""
    bias: int
    """Offset of b, or -1 without one."""
    fan_in: int
    """Inputs of the layer."""
    fan_out: int
    """Outputs of the layer."""


@dataclass(frozen=True)
class Network:
    """One flat float32 parameter vector."""

    name: str
    """Unique in its Program, `q` or `q_target` for instance."""
    size: int
    """Number of floats."""
    layers: tuple[Dense, ...] = ()
    """Its dense layers in the order of their offsets."""


@dataclass(frozen=True)
class Op:
    """One operation. `output` is None for those in `GRADIENT_OPS`."""

    kind: str
    """A key of `OPS`."""
    inputs: tuple[str, ...]
    """Names of the buffers it reads."""
    output: Buffer | None
    """The buffer it defines; each is defined once."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Values of the attributes that `OPS` asks for."""


@dataclass(frozen=True)
class Program:
    """A typed, static list of operations on named row buffers.

    Raises:
        ProgramError: An operation is unknown, reads an undefined buffer, defines one twice, lacks
            an attribute, or points outside its network.
    """

    name: str
    """Shown to the user."""
    networks: tuple[Network, ...]
    """Every parameter vector that is read."""
    inputs: tuple[Buffer, ...]
    """Row inputs, in the order of the batch's columns."""
    ops: tuple[Op, ...]
    """Operations in order of execution."""
    outputs: Mapping[str, str]
    """Role to buffer: `td_error` and `loss` of an update; `q` and `action` of a policy."""
    gradient: str | None = None
    """Network whose gradient is summed, None for a policy."""

    def __post_init__(self) -> None:
        _check(self)

    def buffers(self) -> Iterator[Buffer]:
        """Inputs, then what the operations define, in order."""
        yield from self.inputs
        for op in self.ops:
            if op.output is not None:
                yield op.output

    def network(self, name: str) -> Network:
        """The network called `name`."""
        return next(n for n in self.networks if n.name == name)

    def opaque(self) -> str | None:
        """Name of an operation that only the `torch` backend runs; None if there is none."""
        names = (str(op.attrs["name"]) for op in self.ops if op.kind == "opaque")
        return next(names, None)

    def flops_per_row(self) -> int:
        """Floating-point operations of the dense products, a multiply and an add counted as two."""
        dense = (o for o in self.ops if o.kind.startswith("dense"))
        return sum(2 * int(o.attrs["fan_in"]) * int(o.attrs["fan_out"]) for o in dense)

    def to_dict(self) -> dict[str, Any]:
        """The Program as plain lists, dictionaries, strings and numbers."""
        return {"version": VERSION, **asdict(self)}

    def to_json(self) -> str:
        """The Program as JSON, one line."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Program:
        """Inverse of `to_dict`.

        Raises:
            ProgramError: The version is another one, or the content is malformed.
        """
        if not isinstance(data, Mapping):
            raise ProgramError("program", "a dictionary", type(data).__name__)
        if data.get("version") != VERSION:
            raise ProgramError("version", str(VERSION), str(data.get("version")))
        try:
            return cls(
                name=data["name"],
                networks=tuple(
                    Network(n["name"], n["size"], tuple(Dense(**d) for d in n["layers"]))
                    for n in data["networks"]
                ),
                inputs=tuple(Buffer(**b) for b in data["inputs"]),
                ops=tuple(
                    Op(
                        o["kind"],
                        tuple(o["inputs"]),
                        Buffer(**o["output"]) if o["output"] else None,
                        dict(o["attrs"]),
                    )
                    for o in data["ops"]
                ),
                outputs=dict(data["outputs"]),
                gradient=data["gradient"],
            )
        except (KeyError, TypeError) as e:
            raise ProgramError("program", "a Program as `to_dict` writes it", repr(e)) from e

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Inverse of `to_json`.

        Raises:
            ProgramError: As `from_dict`, or the text is no JSON.
        """
        return cls.from_dict(parse("program", text))


def parse(field: str, text: str) -> Any:
    """The JSON value in `text`.

    Raises:
        ProgramError: It is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as e:
        raise ProgramError(field, "JSON", str(e)) from e


def _check(program: Program) -> None:
    sizes = {n.name: n.size for n in program.networks}
    known = {b.name: b.width for b in program.inputs}
    for b in program.inputs:
        if b.source not in SOURCES:
            raise ProgramError(b.name, f"a source of {tuple(SOURCES)}", f"`{b.source}`")
    for i, op in enumerate(program.ops):
        where = f"ops[{i}] {op.kind}"
        spec = OPS.get(op.kind)
        if spec is None:
            raise ProgramError(where, "a kind of `copal.program.OPS`", f"`{op.kind}`")
        if spec.inputs not in (-1, len(op.inputs)):
            raise ProgramError(where, f"{spec.inputs} inputs", str(len(op.inputs)))
        undefined = [name for name in op.inputs if name not in known]
        if undefined:
            raise ProgramError(where, "inputs defined before", f"`{undefined[0]}`")
        if set(op.attrs) != set(spec.attrs):
            raise ProgramError(where, f"attributes {spec.attrs}", str(tuple(op.attrs)))
        if (op.output is None) != (op.kind in GRADIENT_OPS):
            raise ProgramError(where, "an output buffer unless it is a gradient", str(op.output))
        _check_offsets(where, op, known, sizes, program.gradient)
        if op.output is not None:
            if op.output.name in known:
                raise ProgramError(where, "a new buffer", f"`{op.output.name}` again")
            known[op.output.name] = op.output.width
    missing = [b for b in program.outputs.values() if b not in known]
    if missing:
        raise ProgramError("outputs", "buffers of the Program", f"`{missing[0]}`")


def _check_offsets(
    where: str,
    op: Op,
    widths: Mapping[str, int],
    sizes: Mapping[str, int],
    gradient: str | None,
) -> None:
    a = op.attrs
    if op.kind in GRADIENT_OPS and gradient not in sizes:
        raise ProgramError(where, "a network named by `gradient`", str(gradient))
    network = a.get("network", gradient)
    if "network" in a and network not in sizes:
        raise ProgramError(where, f"a network of {tuple(sizes)}", f"`{network}`")
    for start, count in _ranges(op, widths):
        if start < 0 or start + count > sizes[str(network)]:
            expected = f"offsets inside {sizes[str(network)]} floats"
            raise ProgramError(where, expected, f"{start} to {start + count}")


def _ranges(op: Op, widths: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """First float and number of floats of each part of a flat vector that `op` touches."""
    a = op.attrs
    if op.kind.startswith("dense"):
        yield a["weight"], a["fan_in"] * a["fan_out"]
        if a["bias"] >= 0:
            yield a["bias"], a["fan_out"]
    elif op.kind == "param" and op.output is not None:
        yield a["offset"], op.output.width
    elif op.kind == "sum_over_rows":
        yield a["offset"], widths[op.inputs[0]]
