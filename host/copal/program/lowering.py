# SPDX-License-Identifier: MIT
"""Lowers a traced ATen graph to the operations of a Program.

Each traced tensor becomes one of the values of `copal.program.values`; the row axis is followed
through the graph by position, never by size. `copal.program.rules` holds one rule an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from copal.errors import CaptureError
from copal.program.builder import ProgramBuilder
from copal.program.columns import broadcast
from copal.program.tracing import source_of
from copal.program.values import Const, Parameter, Rows, Summed, Transposed, Value

ROW_HINT = "rows of a batch must not depend on each other: work along the last axis only"


class Lowering:
    """Walks one graph.

    Args:
        builder: Receives the operations.
        values: What each placeholder of the graph stands for, in order.
        rules: ATen operation to the function that lowers a call of it.
        rows: Batch size that was traced.
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        values: Sequence[Value],
        rules: Mapping[str, Callable[[Call], Any]],
        rows: int,
    ) -> None:
        self._builder = builder
        self._rows = rows
        self._rules = rules
        self._placeholders = list(values)
        self._env: dict[fx.Node, Any] = {}

    def run(self, graph: fx.GraphModule) -> list[Value]:
        """Lowers every operation that an output needs.

        Returns:
            What the outputs of the graph stand for, in order.

        Raises:
            CaptureError: An operation has no counterpart in a Program.
        """
        graph.graph.eliminate_dead_code()
        placeholders = iter(self._placeholders)
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                self._env[node] = next(placeholders)
            elif node.op == "get_attr":
                self._env[node] = Const(getattr(graph, str(node.target)))
            elif node.op == "call_function":
                self._env[node] = self._lower(node)
            elif node.op == "output":
                return [self._env[n] for n in node.args[0]]
        raise AssertionError("a graph ends with its output")

    def _lower(self, node: fx.Node) -> Any:
        if getattr(node.target, "__name__", "") == "getitem":
            source, index = node.args
            assert isinstance(source, fx.Node)
            assert isinstance(index, int)
            return self._env[source][index]
        call = Call(node, self._env, self._builder, self._rows)
        if torch.Tag.nondeterministic_seeded in call.target.tags:
            raise call.refuse(
                "draws random numbers",
                "pass the noise in as an input column; take dropout out of the network",
            )
        if call.is_constant():
            return call.evaluate()
        rule = self._rules.get(call.kind)
        if rule is None:
            raise call.refuse("has no counterpart in a Program")
        return rule(call)


#: Operations that turn a Python number into a tensor; it keeps all its digits.
_NUMBERS = ("full", "scalar_tensor")


class Call:
    """One ATen call of the graph: its arguments by name, and helpers shared by the rules."""

    def __init__(
        self, node: fx.Node, env: dict[fx.Node, Any], builder: ProgramBuilder, batch_size: int
    ) -> None:
        self.node = node
        self.batch_size = batch_size
        self.builder = builder
        assert isinstance(node.target, OpOverload)
        self.target = node.target
        self._schema = node.target._schema  # noqa: SLF001  torch has no public name for it
        self.kind = self._schema.name.removeprefix("aten::")
        if self.kind != "_to_copy":
            self.kind = self.kind.removesuffix("_copy")
        self.args = self._bind(env)

    def _bind(self, env: dict[fx.Node, Any]) -> dict[str, Any]:
        bound = {}
        for i, argument in enumerate(self._schema.arguments):
            if i < len(self.node.args):
                value: Any = self.node.args[i]
            else:
                value = self.node.kwargs.get(argument.name, argument.default_value)
            bound[argument.name] = fx.node.map_arg(value, env.__getitem__)
        return bound

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the traced result, row axis included."""
        return tuple(self.node.meta["val"].shape)

    def is_constant(self) -> bool:
        """True if the result depends on no input, no parameter and not on the batch size."""
        if any(_depends(a) for a in self.args.values()):
            return False
        return self.kind not in ("sum", "mean") or not self.has_rows(self["self"])

    def has_rows(self, value: Value) -> bool:
        """True if the first axis of `value` is that of the rows."""
        if isinstance(value, Const):
            return value.tensor.shape[:1] == (self.batch_size,)
        return isinstance(value, Rows) and value.per_row

    def evaluate(self) -> Any:
        """The result of a call whose arguments are all constant."""
        plain = {k: _plain(v) for k, v in self.args.items()}
        if self.kind in _NUMBERS and plain["dtype"] == torch.float32:
            plain["dtype"] = torch.float64
        names = [a.name for a in self._schema.arguments if not a.kwarg_only]
        result = self.target(
            *(plain[n] for n in names), **{k: v for k, v in plain.items() if k not in names}
        )
        if isinstance(result, torch.Tensor):
            return Const(result)
        return tuple(Const(r) for r in result)

    def refuse(self, why: str, hint: str = "") -> CaptureError:
        """The error that says why this call cannot be captured, with the line it came from."""
        return CaptureError(
            str(self.target),
            "an operation on each row that a Program has (`copal.program.OPS`)",
            f"one that {why}, from {source_of(self.node)}",
            hint or "with `opaque=True` in `assemble` it trains with `--backend torch`",
        )

    def rows(self, value: Value) -> Rows:
        """`value` as a row tensor."""
        if isinstance(value, Rows):
            return value
        if isinstance(value, Const) and self.has_rows(value):
            shape = tuple(value.tensor.shape[1:])
            return Rows(self.row_constant(value.tensor, shape, per_row=True), shape)
        if isinstance(value, Parameter) and not value.transposed:
            shape = value.shape
            width = Rows("", shape).width
            buffer = self.builder.param(value.network, value.offset, width)
            return Rows(buffer, shape, per_row=False)
        if isinstance(value, Summed):
            raise self.refuse("uses a sum or mean over the rows of a batch", ROW_HINT)
        if isinstance(value, Transposed):
            raise self.refuse("exchanges the row axis with another one", ROW_HINT)
        raise self.refuse("uses a matrix of weights outside a dense product")

    def float_rows(self, value: Value) -> Rows:
        """`value` as a row tensor of numbers, not of indices."""
        rows = self.rows(value)
        if self.builder.buffer(rows.buffer).dtype != "float32":
            raise self.refuse(
                "computes with integers", "integers may only index: gather, scatter, one_hot"
            )
        return rows

    def full(self, rows: Rows) -> str:
        """The buffer of `rows` with all its columns."""
        return self.builder.widen(rows.buffer, rows.width)

    def row_constant(self, tensor: torch.Tensor, shape: tuple[int, ...], per_row: bool) -> str:
        """The buffer of a constant that is broadcast to [B, *shape] or [*shape]."""
        full = (self.batch_size, *shape) if per_row else shape
        try:
            whole = tensor.expand(full)
        except RuntimeError:
            raise self.refuse("broadcasts a constant over the rows", ROW_HINT) from None
        if per_row:
            if not torch.equal(torch.nan_to_num(whole), torch.nan_to_num(whole[:1]).expand(full)):
                raise self.refuse("uses a constant that differs from row to row", ROW_HINT)
            whole = whole[0]
        values = [float(v) for v in whole.flatten().tolist()]
        return self.builder.vector(values)

    def operand(self, value: Any, shape: tuple[int, ...], per_row: bool) -> str:
        """The buffer of an elementwise operand, broadcast to [B, *shape] or [*shape]."""
        if isinstance(value, Const):
            return self.row_constant(value.tensor, shape, per_row)
        if isinstance(value, int | float | bool):
            return self.builder.const(float(value))
        rows = self.float_rows(value)
        own = rows.shape
        if rows.per_row:
            if len(own) != len(shape):
                raise self.refuse(
                    "combines each row with every other one: [B] with [B, 1] broadcasts to [B, B]",
                    "give both operands the same number of axes: `squeeze(1)` or `unsqueeze(1)`",
                )
        else:
            while len(own) > len(shape) and own[0] == 1:
                own = own[1:]
            own = (1,) * (len(shape) - len(own)) + own
        if own != shape and rows.width != 1:
            return broadcast(self.builder, replace(rows, shape=own), shape).buffer
        return rows.buffer


def _depends(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_depends(v) for v in value)
    return isinstance(value, Rows | Transposed | Parameter | Summed)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.tensor if isinstance(value, Const) else value
