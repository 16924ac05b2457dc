# SPDX-License-Identifier: MIT
"""Every device function, run on the CPU, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_cases import Builder, dense, network, relative
from gpu_cases import TOLERANCE, RandomProgram, start, update_of

from copal.errors import LearnerFailedError
from copal.gpu.emulate import EmulatedDevice
from copal.program import OPS, Buffer, Network, Op, Program, Update
from copal.program.reference import ReferenceLearner, run

FORWARD = sorted(set(OPS) - {"dense_grad_weight", "sum_over_rows", "opaque"})


def check(program: Program, batch_size: int, rng: np.random.Generator, **options: Any) -> None:
    """Runs an update of `program` on random numbers and compares everything that comes out."""
    update = update_of(program)
    vectors = {
        n: rng.normal(size=size).astype(np.float32) / 3 for n, size in update.networks().items()
    }
    batch = {
        b.name: rng.normal(size=(batch_size, b.width)).astype(np.float32) for b in program.inputs
    }
    seed = int(rng.integers(2**31))
    learner = start(update, vectors, batch_size, device=EmulatedDevice(seed), **options)
    reference = ReferenceLearner(update, vectors)
    gradient, td_error, _ = learner.gradient([batch])
    expected, expected_td, _ = reference.gradient(batch)
    assert relative(gradient[0], expected) < TOLERANCE
    assert relative(td_error[0], expected_td) < TOLERANCE
    learner.run([[batch]])
    wanted = run(program, vectors, batch).outputs
    for (_, role), values in learner.outputs().items():
        assert relative(values, wanted[role].reshape(values.shape)) < TOLERANCE, role
    reference.step(batch)
    for name, vector in reference.parameters.items():
        assert relative(learner.vector("parameters", name), vector) < TOLERANCE
    learner.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_equal_numpy(seed: int) -> None:
    """Every operation, on narrow and wide buffers, in an order that nobody has thought of."""
    shape = np.random.default_rng(seed)
    program = RandomProgram(shape, [(1, 3, 65), (4, 7, 40), (2, 5, 33)][seed])
    kinds = [*FORWARD, *FORWARD]
    shape.shuffle(kinds)
    program.grow(kinds)
    rng = np.random.default_rng()
    check(program.program(30), [37, 5, 1][seed], rng, threads=[96, 64, 128][seed])


SHAPES = ((1, 1), (3, 5), (8, 256), (256, 4), (65, 3), (3, 65), (130, 70), (33, 36))


@pytest.mark.parametrize(
    ("rows", "threads", "batch"), [(8, 256, 37), (16, 64, 40), (1, 32, 3), (2, 96, 5), (4, 128, 9)]
)
def test_dense_products_equal_numpy(rows: int, threads: int, batch: int) -> None:
    """Outputs, input gradients and weight gradients of layers of any size."""
    b = Builder()
    inputs, outputs, layers, at = [], {}, [], 0
    for i, (fan_in, fan_out) in enumerate(SHAPES):
        layer = network("p", (fan_in, fan_out)).layers[0]
        layer = type(layer)(at + layer.weight, at + layer.bias, fan_in, fan_out)
        at += fan_in * fan_out + fan_out
        layers.append(layer)
        inputs += [Buffer(f"x{i}", fan_in), Buffer(f"g{i}", fan_out)]
    net = Network("p", at, tuple(layers))
    for i, layer in enumerate(layers):
        a = dense(net, layer)
        out = b.add("dense", f"x{i}", width=layer.fan_out, **a)
        outputs[f"out{i}"] = b.add("relu", out, width=layer.fan_out) if i % 2 else out
        back = b.add("dense_grad_input", f"g{i}", width=layer.fan_in, **a)
        outputs[f"back{i}"] = back
        if i % 2:
            outputs[f"back{i}"] = b.add("relu_grad", back, f"x{i}", width=layer.fan_in)
        b.add_sum("dense_grad_weight", f"g{i}", f"x{i}", **a)
        b.add_sum("sum_over_rows", f"g{i}", offset=layer.bias)
    td = b.add("row_sum", "g0")
    roles = {"td_error": td, "loss": td, **outputs}
    program = Program("dense", (net,), tuple(inputs), tuple(b.ops), roles, "p")
    check(program, batch, np.random.default_rng(), rows=rows, threads=threads)


def test_weights_that_other_operations_see_equal_numpy() -> None:
    """Weights read as numbers, or by two layers of other shapes, lie as the Program has them."""
    b = Builder()
    net = Network("p", 50)
    first = {"network": "p", "weight": 2, "bias": 26, "fan_in": 4, "fan_out": 6}
    other = {"network": "p", "weight": 8, "bias": -1, "fan_in": 6, "fan_out": 3}
    y = b.add("dense", "x", width=6, **first)
    z = b.add("dense", y, width=3, **other)
    back = b.add("dense_grad_input", y, width=4, **first)
    seen = b.add("param", width=9, network="p", offset=0)
    both = b.add("mul", seen, b.add("row_sum", z), width=9)
    b.add_sum("dense_grad_weight", y, "x", **first)
    b.add_sum("dense_grad_weight", z, y, **other)
    b.add_sum("sum_over_rows", both, offset=1)
    td = b.add("row_sum", both)
    outputs = {"td_error": td, "loss": td, "z": z, "back": back}
    program = Program("shared", (net,), (Buffer("x", 4),), tuple(b.ops), outputs, "p")
    check(program, 21, np.random.default_rng())


def test_an_index_out_of_range_is_a_failure() -> None:
    """A row has no such number: nothing is read from elsewhere."""
    b = Builder()
    index = b.add("slice", "index", width=1, dtype="int32", start=0, stop=1)
    picked = b.add("gather", "x", index)
    b.add_sum("sum_over_rows", picked, offset=0)
    outputs = {"td_error": picked, "loss": picked}
    inputs = (Buffer("x", 3), Buffer("index", 2, "int32"))
    update = update_of(Program("pick", (Network("p", 1),), inputs, tuple(b.ops), outputs, "p"))
    learner = start(update, {"p": np.zeros(1, np.float32)}, 2)
    columns = {"x": np.ones((2, 3), np.float32), "index": np.array([[2, 0], [3, 0]])}
    with pytest.raises(LearnerFailedError, match="index 3 is out of bounds"):
        learner.run([[columns]])


def test_every_operation_kind_is_covered() -> None:
    """A kind that is new to Programs must come with a device function."""
    program = RandomProgram(np.random.default_rng(1), (1, 3, 9))
    program.grow(FORWARD)
    kinds = {op.kind for op in program.program(5).ops}
    assert set(OPS) - {"opaque"} <= kinds


def test_programs_name_their_parts_as_they_like() -> None:
    """Names need not be those of C++."""
    op = Op("neg", ("an input",), Buffer("int", 1), {})
    outputs = {"td_error": "int", "loss": "int"}
    grad = Op("sum_over_rows", ("int",), None, {"offset": 0})
    program = Program(
        "my loss", (Network("p/q", 1),), (Buffer("an input", 1),), (op, grad), outputs, "p/q"
    )
    update = update_of(program)
    assert isinstance(update, Update)
    learner = start(update, {"p/q": np.zeros(1, np.float32)}, 1)
    td = learner.run([[{"an input": np.array([2.0], np.float32)}]])
    assert td.tolist() == [[[-2.0]]]
