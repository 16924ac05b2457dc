# SPDX-License-Identifier: MIT
"""A plain NumPy interpreter of Programs and Updates: the oracle of every backend."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from copal.errors import LearnerFailedError, SchemaError
from copal.program.diagnosis import failure, find
from copal.program.noise import with_noise
from copal.program.program import Buffer, Op, Program
from copal.program.update import Adam, Phase, Update

Array = NDArray[Any]


@dataclass(frozen=True)
class RowResult:
    """What a Program computes for one batch."""

    outputs: dict[str, Array]
    """Role to values, [B] of width 1, else [B, width]."""
    gradient: Array | None
    """Sum over rows of the flat gradient, [size]; None for a policy."""
    buffers: dict[str, Array]
    """Every buffer by name, [B, width]."""


def _where(x: Array, y: Array, z: Array) -> Array:
    return np.where(x != 0, y, z)


_ELEMENTWISE: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "where": _where,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "relu": lambda x: np.maximum(x, 0),
    "relu_grad": lambda x, y: np.where(y > 0, x, 0),
}


def run(
    program: Program,
    parameters: Mapping[str, Array],
    columns: Mapping[str, Array],
    dtype: DTypeLike = np.float64,
) -> RowResult:
    """Runs `program` on a batch.

    Args:
        program: What to run.
        parameters: Network name to flat vector [size].
        columns: Input name to values, [B] or [B, 1] of width 1, else [B, width].
        dtype: Floating-point type of all arithmetic.

    Raises:
        SchemaError: A network or a column is missing or has the wrong shape.
    """
    with np.errstate(all="ignore"):
        return _Run(program, parameters, columns, np.dtype(dtype)).result()


class _Run:
    """One execution of one Program: its buffers and the gradient summed so far."""

    def __init__(
        self,
        program: Program,
        parameters: Mapping[str, Array],
        columns: Mapping[str, Array],
        dtype: np.dtype[Any],
    ) -> None:
        self._program, self._dtype = program, dtype
        self._parameters = {n.name: _vector(n.name, n.size, parameters) for n in program.networks}
        self._parameters = {k: v.astype(dtype) for k, v in self._parameters.items()}
        self._buffers = {b.name: _column(b, columns).astype(self._type(b)) for b in program.inputs}
        rows = {len(v) for v in self._buffers.values()}
        if len(rows) > 1:
            raise SchemaError("columns", "as many rows in each column", str(sorted(rows)))
        self._rows = rows.pop() if rows else 1
        self._gradient: Array | None = None
        if program.gradient is not None:
            self._gradient = np.zeros(program.network(program.gradient).size, dtype)

    def _type(self, buffer: Buffer) -> np.dtype[Any]:
        return np.dtype(np.int64) if buffer.dtype == "int32" else self._dtype

    def result(self) -> RowResult:
        """Runs every operation in order."""
        for op in self._program.ops:
            inputs = [self._buffers[i] for i in op.inputs]
            if op.output is None:
                self._add_gradient(op, inputs)
                continue
            value = self._value(op, inputs).astype(self._type(op.output))
            expected = (self._rows, op.output.width)
            assert value.shape == expected, f"{op.output.name}: {value.shape}, not {expected}"
            self._buffers[op.output.name] = value
        outputs = {role: self._buffers[name] for role, name in self._program.outputs.items()}
        flat = {k: v[:, 0] if v.shape[1] == 1 else v for k, v in outputs.items()}
        return RowResult(flat, self._gradient, self._buffers)

    def _add_gradient(self, op: Op, inputs: list[Array]) -> None:
        assert self._gradient is not None
        if op.kind == "sum_over_rows":
            part, start = inputs[0].sum(axis=0), op.attrs["offset"]
        else:
            part, start = (inputs[0].T @ inputs[1]).ravel(), op.attrs["weight"]
        self._gradient[start : start + part.size] += part

    def _value(self, op: Op, inputs: list[Array]) -> Array:
        if op.kind in _ELEMENTWISE:
            return np.asarray(_ELEMENTWISE[op.kind](*inputs))
        if op.kind == "param":
            assert op.output is not None
            return self._param(**op.attrs, width=op.output.width)
        rule: Callable[..., Array] = getattr(self, f"_{op.kind}")
        return rule(*inputs, **op.attrs)

    def _weight(self, network: str, weight: int, fan_in: int, fan_out: int) -> Array:
        flat = self._parameters[network][weight : weight + fan_in * fan_out]
        return flat.reshape(fan_out, fan_in)

    def _dense(
        self, x: Array, *, network: str, weight: int, bias: int, fan_in: int, fan_out: int
    ) -> Array:
        product = x @ self._weight(network, weight, fan_in, fan_out).T
        if bias < 0:
            return np.asarray(product)
        return np.asarray(product + self._parameters[network][bias : bias + fan_out])

    def _dense_grad_input(
        self,
        x: Array,
        *,
        network: str,
        weight: int,
        bias: int,  # noqa: ARG002  one set of attributes for every dense operation
        fan_in: int,
        fan_out: int,
    ) -> Array:
        return np.asarray(x @ self._weight(network, weight, fan_in, fan_out))

    def _const(self, *, value: float) -> Array:
        return np.full((self._rows, 1), value)

    def _param(self, *, network: str, offset: int, width: int) -> Array:
        return np.tile(self._parameters[network][offset : offset + width], (self._rows, 1))

    def _gather(self, x: Array, y: Array) -> Array:
        return np.take_along_axis(x, y, axis=1)

    def _scatter(self, x: Array, y: Array, *, width: int) -> Array:
        return np.where(np.arange(width) == y, x, 0)

    def _row_max(self, x: Array) -> Array:
        return np.asarray(x.max(axis=1, keepdims=True))

    def _row_argmax(self, x: Array) -> Array:
        return np.asarray(x.argmax(axis=1)[:, None])

    def _row_sum(self, x: Array) -> Array:
        return np.asarray(x.sum(axis=1, keepdims=True))

    def _concat(self, *inputs: Array) -> Array:
        return np.concatenate(inputs, axis=1)

    def _slice(self, x: Array, *, start: int, stop: int) -> Array:
        return x[:, start:stop]


def _vector(name: str, size: int, parameters: Mapping[str, Array]) -> Array:
    if name not in parameters:
        raise SchemaError(name, "a parameter vector of this network", "none")
    vector = np.asarray(parameters[name])
    if vector.shape != (size,):
        raise SchemaError(name, f"parameters of shape ({size},)", f"shape {vector.shape}")
    return vector


def _column(buffer: Buffer, columns: Mapping[str, Array]) -> Array:
    if buffer.name not in columns:
        raise SchemaError(buffer.name, "a column of this name", ", ".join(columns))
    column = np.asarray(columns[buffer.name])
    if column.ndim == 1 and buffer.width == 1:
        column = column[:, None]
    if column.ndim != 2 or column.shape[1] != buffer.width:
        raise SchemaError(buffer.name, f"shape [B, {buffer.width}]", f"shape {column.shape}")
    return column


class ReferenceLearner:
    """Whole updates in plain NumPy: row programs, mean, clipping, Adam, target networks.

    A batch needs no columns for the inputs of source "normal": their noise is made here.

    Args:
        update: What to run.
        parameters: Network name to flat vector [size]; copied.
        dtype: Floating-point type of all arithmetic.

    Attributes:
        parameters: Network name to its present vector.
        first_moment: Trained network name to Adam's first moment.
        second_moment: Trained network name to Adam's second moment.
        optimiser_steps: Trained network name to Adam steps taken.
        updates: Updates done.
        metrics: Mean of every output of the last update, by role.
    """

    def __init__(
        self,
        update: Update,
        parameters: Mapping[str, Array],
        dtype: DTypeLike = np.float64,
    ) -> None:
        self._update, self._dtype = update, np.dtype(dtype)
        sizes = update.networks()
        self.parameters = {
            n: np.array(_vector(n, size, parameters), self._dtype) for n, size in sizes.items()
        }
        self.first_moment = {n: np.zeros(sizes[n], self._dtype) for n in update.trained()}
        self.second_moment = {n: np.zeros(sizes[n], self._dtype) for n in update.trained()}
        self.optimiser_steps = dict.fromkeys(update.trained(), 0)
        self.updates = 0
        self.metrics: dict[str, float] = {}

    def gradient(self, columns: Mapping[str, Array], phase: int = 0) -> tuple[Array, Array, float]:
        """What one phase would see; changes nothing.

        Returns:
            Gradient of the mean loss [size], TD errors [B], mean loss.
        """
        columns = with_noise(self._update, columns, self.updates)
        result = self._run(self._update.phases[phase], columns)
        td_error = result.outputs["td_error"]
        assert result.gradient is not None
        return result.gradient / len(td_error), td_error, float(result.outputs["loss"].mean())

    def step(self, columns: Mapping[str, Array]) -> Array:
        """Runs one update.

        Returns:
            TD error of each row in the first phase, [B].

        Raises:
            LearnerFailedError: An output or the gradient is not finite; nothing is changed.
        """
        columns = with_noise(self._update, columns, self.updates)
        before = copy.deepcopy(self.__dict__)
        try:
            td_errors = [
                self._step_phase(phase, columns)
                for phase in self._update.phases
                if (self.updates + 1) % phase.every == 0
            ]
        except LearnerFailedError:
            self.__dict__ = before
            raise
        for target in self._update.targets:
            if (self.updates + 1) % target.every == 0:
                follower = self.parameters[target.target]
                follower += target.tau * (self.parameters[target.source] - follower)
        self.updates += 1
        return td_errors[0]

    def _run(self, phase: Phase, columns: Mapping[str, Array]) -> RowResult:
        return run(phase.program, self.parameters, columns, self._dtype)

    def _check_finite(self, phase: Phase, result: RowResult) -> None:
        assert result.gradient is not None
        if all(np.isfinite(v).all() for v in (*result.outputs.values(), result.gradient)):
            return
        found = find(phase.program, self.parameters, result.buffers, result.gradient)
        raise failure(self._update, phase, self.updates, found)

    def _step_phase(self, phase: Phase, columns: Mapping[str, Array]) -> Array:
        result = self._run(phase, columns)
        self._check_finite(phase, result)
        assert result.gradient is not None
        self.metrics.update({role: float(v.mean()) for role, v in result.outputs.items()})
        gradient = result.gradient / len(result.outputs["td_error"])
        if phase.max_grad_norm is not None:
            gradient = gradient * clip_factor(gradient, phase.max_grad_norm)
        name = str(phase.program.gradient)
        self.optimiser_steps[name] += 1
        adam_step(
            phase.optimiser,
            self.optimiser_steps[name],
            gradient,
            self.parameters[name],
            self.first_moment[name],
            self.second_moment[name],
        )
        return result.outputs["td_error"]


def clip_factor(gradient: Array, max_grad_norm: float) -> float:
    """What to multiply a gradient [size] with so that its Euclidean norm is at most the maximum."""
    norm = float(np.sqrt(np.square(gradient, dtype=np.float64).sum()))
    return min(1.0, max_grad_norm / norm) if norm > 0 else 1.0


def adam_step(
    settings: Adam, step: int, gradient: Array, parameters: Array, first: Array, second: Array
) -> None:
    """One step of Adam in place (Kingma and Ba 2015, Algorithm 1); all arrays are [size].

    Args:
        settings: Rates and decays.
        step: Number of this step, from 1.
        gradient: Of the mean loss.
        parameters: Changed.
        first: First moment, changed.
        second: Second moment, changed.
    """
    first += (1 - settings.beta1) * (gradient - first)
    second += (1 - settings.beta2) * (np.square(gradient) - second)
    corrected_first = first / (1 - settings.beta1**step)
    corrected_second = second / (1 - settings.beta2**step)
    parameters -= (
        settings.learning_rate * corrected_first / (np.sqrt(corrected_second) + settings.eps)
    )
