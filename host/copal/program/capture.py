# SPDX-License-Identifier: MIT
"""Captures the gradient of a PyTorch loss, or the forward pass of a policy, as a Program.

The loss is traced twice, with two batch sizes: a Program that depends on the batch size would not
be one over rows, so the two must agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.func import grad

from copal.errors import CaptureError
from copal.program import (  # noqa: F401  register their rules
    column_rules,
    formula_rules,
    pick_rules,
    shape_rules,
)
from copal.program.arguments import Batch, Networks
from copal.program.builder import ProgramBuilder
from copal.program.lowering import Lowering
from copal.program.modules import network_of, parameter_offsets
from copal.program.program import Buffer, Op, Program
from copal.program.rules import RULES
from copal.program.tracing import forget_line, located, trace
from copal.program.values import Const, Parameter, Rows, Summed, Value

#: `loss(nets, batch)` returns the losses [B], the TD errors [B], and optionally named rows [B].
Loss = Callable[[Any, Any], Any]

_PER_ROW = "return the loss of each row, [B]: the executor sums it and divides by B"


def capture(
    loss: Loss,
    networks: Mapping[str, nn.Module],
    inputs: Sequence[Buffer],
    *,
    gradient: str,
    name: str,
    opaque: bool = False,
) -> Program:
    """Captures a loss and its gradient.

    Args:
        loss: `loss(nets, batch)` returns the losses float [B] and the TD errors float [B], and may
            return a dictionary of further values [B] to report. A mean over the batch, a 0-d
            tensor, is taken as well.
        networks: Network name to module; several names may share one module.
        inputs: Columns that the loss may read. One of width 1 is seen as [B], int32 as int64.
        gradient: The network to differentiate by; the others are constants.
        name: Shown to the user.
        opaque: Let operations without counterpart pass: the Program then consists of `opaque`
            operations that name the first of them, and only the `torch` backend can run the loss.

    Returns:
        A Program with the outputs `loss`, `td_error` and the named ones. Its gradient is that of
        the *sum* of the losses of the rows.

    Raises:
        CaptureError: An operation has no counterpart in a Program, or rows depend on each other.
            Names the ATen operation and the line that it came from.
    """
    if gradient not in networks:
        raise CaptureError("gradient", f"one of {', '.join(networks)}", f"`{gradient}`")
    names: list[str] = []

    def traced(
        parameters: dict[str, dict[str, torch.Tensor]], columns: dict[str, torch.Tensor], rows: int
    ) -> list[torch.Tensor]:
        def total(trained: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
            nets = Networks(networks, {**parameters, gradient: trained})
            row_loss, td_error, extras = _unpack(
                located(f"loss of {name}", loss, nets, Batch(columns))
            )
            row_loss = row_loss if row_loss.ndim else row_loss * rows
            names[:] = ["loss", "td_error", *extras]
            return row_loss.sum(), [row_loss, td_error, *extras.values()]

        gradients, results = grad(total, has_aux=True)(parameters[gradient])
        forget_line()
        return [*results, *gradients.values()]

    def lowered(rows: int) -> Program:
        builder = ProgramBuilder(inputs)
        values = _values(traced, networks, inputs, rows, builder)
        results, gradients = values[: len(names)], values[len(names) :]
        _emit_gradients(builder, networks[gradient], gradient, gradients)
        outputs = {n: _row_output(builder, n, v) for n, v in zip(names, results, strict=True)}
        layouts = [network_of(n, m) for n, m in networks.items()]
        return builder.finish(name, layouts, outputs, gradient)

    def stand_in(operation: str) -> Program:
        outputs = [Buffer(n, 1) for n in names or ("loss", "td_error")]
        return _stand_in(name, networks, inputs, outputs, operation, gradient)

    return _same_for_two_sizes(lowered, networks, inputs, stand_in if opaque else None)


def capture_policy(
    forward: Callable[[Any, Any], Any],
    networks: Mapping[str, nn.Module],
    inputs: Sequence[Buffer],
    outputs: Sequence[str],
    *,
    name: str,
    opaque: bool = False,
) -> Program:
    """Captures a forward pass.

    Args:
        forward: `forward(nets, batch)` returns one tensor [B] or [B, width] for each output.
        networks: Network name to module.
        inputs: Columns that it may read.
        outputs: Names of the results, `q` and `action` for instance.
        name: Shown to the user.
        opaque: As in `capture`.

    Raises:
        CaptureError: An operation has no counterpart in a Program, or rows depend on each other.
    """

    def traced(
        parameters: dict[str, dict[str, torch.Tensor]], columns: dict[str, torch.Tensor], _: int
    ) -> list[torch.Tensor]:
        results = located(name, forward, Networks(networks, parameters), Batch(columns))
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        if len(results) != len(outputs):
            raise CaptureError("outputs", f"{len(outputs)} results", str(len(results)))
        return results

    def lowered(rows: int) -> Program:
        builder = ProgramBuilder(inputs)
        values = _values(traced, networks, inputs, rows, builder)
        named = {n: _row_output(builder, n, v) for n, v in zip(outputs, values, strict=True)}
        return builder.finish(name, [network_of(n, m) for n, m in networks.items()], named, None)

    def stand_in(operation: str) -> Program:
        columns = {b.name: _zeros(b, 2) for b in inputs}
        with torch.no_grad():
            results = forward(Networks(networks), Batch(columns))
        results = [results] if isinstance(results, torch.Tensor) else results
        buffers = [
            Buffer(n, r[0].numel(), "float32" if r.is_floating_point() else "int32")
            for n, r in zip(outputs, results, strict=True)
        ]
        return _stand_in(name, networks, inputs, buffers, operation, None)

    return _same_for_two_sizes(lowered, networks, inputs, stand_in if opaque else None)


def _stand_in(
    name: str,
    networks: Mapping[str, nn.Module],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    operation: str,
    gradient: str | None,
) -> Program:
    """A Program that says what is computed from what, and that only PyTorch can."""
    read = tuple(b.name for b in inputs)
    return Program(
        name=name,
        networks=tuple(network_of(n, m) for n, m in networks.items()),
        inputs=tuple(inputs),
        ops=tuple(
            Op("opaque", read, replace(b, name=f"opaque_{b.name}"), {"name": operation})
            for b in outputs
        ),
        outputs={b.name: f"opaque_{b.name}" for b in outputs},
        gradient=gradient,
    )


def _same_for_two_sizes(
    lowered: Callable[[int], Program],
    networks: Mapping[str, nn.Module],
    inputs: Sequence[Buffer],
    stand_in: Callable[[str], Program] | None,
) -> Program:
    _refuse_batch_norm(networks)
    sizes = {n for m in networks.values() for p in m.parameters() for n in p.shape}
    sizes |= {b.width for b in inputs}
    first, second = itertools.islice((p for p in _primes(61) if p not in sizes), 2)
    try:
        program = lowered(first)
    except CaptureError as error:
        if stand_in is None or not error.field.startswith(("aten.", "torch.")):
            raise
        return stand_in(error.field)
    if not _agree(program, lowered(second)):
        raise CaptureError(
            "loss", "a loss that does not depend on the batch size", "one that does", _PER_ROW
        )
    return program


def _refuse_batch_norm(networks: Mapping[str, nn.Module]) -> None:
    # It changes its running statistics while it is traced, which PyTorch refuses less readably.
    for network, module in networks.items():
        for path, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001
                raise CaptureError(
                    "aten.native_batch_norm",
                    "operations on each row alone",
                    f"`{type(part).__name__}` in network `{network}`, layer `{path}`",
                    "normalise each row alone, or scale the observations",
                )


def _agree(first: Program, second: Program) -> bool:
    """Whether two Programs are the same but for the last digits of their constants."""
    constants = [
        [float(op.attrs["value"]) for op in program.ops if op.kind == "const"]
        for program in (first, second)
    ]
    if len(constants[0]) != len(constants[1]):
        return False
    pairs = zip(*constants, strict=True)
    return _without_values(first) == _without_values(second) and all(
        math.isclose(x, y, rel_tol=1e-6) for x, y in pairs
    )


def _without_values(program: Program) -> list[Op]:
    return [replace(op, attrs={}) if op.kind == "const" else op for op in program.ops]


def _primes(start: int) -> Iterator[int]:
    for n in itertools.count(start):
        if all(n % d for d in range(2, int(n**0.5) + 1)):
            yield n


def _values(
    function: Callable[..., list[torch.Tensor]],
    networks: Mapping[str, nn.Module],
    inputs: Sequence[Buffer],
    rows: int,
    builder: ProgramBuilder,
) -> list[Value]:
    tensors: list[torch.Tensor] = []
    values: list[Value] = []
    paths: list[tuple[str, str]] = []
    for network, module in networks.items():
        offsets = parameter_offsets(module)
        for path, parameter in module.named_parameters():
            tensors.append(parameter.detach().clone())
            values.append(Parameter(network, offsets[path], tuple(parameter.shape)))
            paths.append((network, path))
    for column in inputs:
        tensors.append(_zeros(column, rows))
        values.append(Rows(column.name, tuple(tensors[-1].shape[1:])))

    def flat(*arguments: torch.Tensor) -> list[torch.Tensor]:
        parameters: dict[str, dict[str, torch.Tensor]] = {n: {} for n in networks}
        for (network, path), tensor in zip(paths, arguments[: len(paths)], strict=True):
            parameters[network][path] = tensor
        columns = {c.name: t for c, t in zip(inputs, arguments[len(paths) :], strict=True)}
        return function(parameters, columns, rows)

    return Lowering(builder, values, RULES, rows).run(trace(flat, tensors))


def _zeros(column: Buffer, rows: int) -> torch.Tensor:
    """A column as a loss sees it."""
    shape = (column.width,) if column.width > 1 else ()
    dtype = torch.int64 if column.dtype == "int32" else torch.float32
    return torch.zeros((rows, *shape), dtype=dtype)


def _unpack(result: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    expected = "(row_losses, td_errors) or (row_losses, td_errors, {name: rows})"
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise CaptureError("loss", expected, type(result).__name__)
    row_loss, td_error = result[:2]
    extras = result[2] if len(result) == 3 else {}
    if not isinstance(extras, Mapping):
        raise CaptureError("loss", expected, f"a third value that is a {type(extras).__name__}")
    for name, value in {"row_losses": row_loss, "td_errors": td_error, **extras}.items():
        if not isinstance(value, torch.Tensor):
            raise CaptureError(name, "a tensor [B]", type(value).__name__)
        if value.ndim != 1 and not (name == "row_losses" and value.ndim == 0):
            raise CaptureError(name, "a tensor [B]", f"{value.ndim} axes", _PER_ROW)
    if {"loss", "td_error"} & set(extras):
        raise CaptureError("extras", "other names than loss and td_error", str(list(extras)))
    return row_loss, td_error, dict(extras)


def _row_output(builder: ProgramBuilder, name: str, value: Value) -> str:
    if isinstance(value, Summed) and not value.shape:
        parts = [_scaled(builder, t.x, float(t.scale)) for t in value.terms]
        total = parts[0]
        for part in parts[1:]:
            total = builder.emit("add", total, part)
        return total
    if isinstance(value, Const) and bool((value.tensor == value.tensor.flatten()[0]).all()):
        return builder.const(float(value.tensor.flatten()[0]))
    if not isinstance(value, Rows) or not value.per_row:
        raise CaptureError(name, "a value for each row", type(value).__name__, _PER_ROW)
    return builder.widen(value.buffer, value.width)


def _scaled(builder: ProgramBuilder, buffer: str, factor: float) -> str:
    return builder.emit("mul", buffer, builder.const(factor))


def _emit_gradients(
    builder: ProgramBuilder, module: nn.Module, network: str, values: Sequence[Value]
) -> None:
    offsets = parameter_offsets(module)
    for (path, parameter), value in zip(module.named_parameters(), values, strict=True):
        if isinstance(value, Const) and not bool(value.tensor.any()):
            continue
        if not isinstance(value, Summed):
            raise CaptureError(
                f"gradient of {network}.{path}",
                "a sum over the rows of a batch",
                "a term that no row contributes to, weight decay for instance",
                "add the term to the loss of each row",
            )
        for term in value.terms:
            width = builder.width(term.x)
            if term.y is None:
                x = _scaled(builder, term.x, float(term.scale))
                builder.add_gradient("sum_over_rows", (x,), offset=offsets[path])
                continue
            x, y = term.x, term.y
            if width <= builder.width(y):
                x = _scaled(builder, x, float(term.scale))
            else:
                y = _scaled(builder, y, float(term.scale))
            builder.add_gradient(
                "dense_grad_weight",
                (x, y),
                network=network,
                weight=offsets[path],
                bias=-1,
                fan_in=builder.width(y),
                fan_out=width,
            )
        assert value.shape == tuple(parameter.shape)
