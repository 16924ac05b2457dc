# SPDX-License-Identifier: MIT
"""The NumPy interpreter against values written by hand, one Program an operation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from copal.errors import LearnerFailedError, SchemaError
from copal.program import OPS, Adam, Buffer, Network, Op, Phase, Program, Target, Update
from copal.program.reference import ReferenceLearner, clip_factor, run

X = [[1.0, -2.0, 0.5], [-0.25, 4.0, 4.0]]
Y = [[2.0, -2.0, 0.25], [0.5, 1.0, -4.0]]
POSITIVE = [[1.0, 4.0, 0.25], [9.0, 2.0, 1.0]]
#: One layer, W = [[1, 2, 3], [4, 5, 6]], b = [10, 20], then two lone parameters.
FLAT = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 20.0, 0.5, -0.5]
LAYER = {"network": "net", "weight": 0, "bias": 6, "fan_in": 3, "fan_out": 2}

#: Kind, inputs, attributes, width of the result, expected values.
CASES: list[tuple[str, list[Any], dict[str, Any], int, list[list[float]]]] = [
    ("dense", [X], LAYER, 2, [[8.5, 17.0], [29.75, 63.0]]),
    ("dense", [X], {**LAYER, "bias": -1}, 2, [[-1.5, -3.0], [19.75, 43.0]]),
    ("dense_grad_input", [[[1.0, 0.0], [2.0, -1.0]]], LAYER, 3, [[1, 2, 3], [-2, -1, 0]]),
    ("const", [], {"value": 2.5}, 1, [[2.5], [2.5]]),
    ("param", [], {"network": "net", "offset": 8}, 2, [[0.5, -0.5], [0.5, -0.5]]),
    ("add", [X, Y], {}, 3, [[3, -4, 0.75], [0.25, 5, 0]]),
    ("add", [X, [[1.0], [2.0]]], {}, 3, [[2, -1, 1.5], [1.75, 6, 6]]),
    ("sub", [X, Y], {}, 3, [[-1, 0, 0.25], [-0.75, 3, 8]]),
    ("mul", [X, Y], {}, 3, [[2, 4, 0.125], [-0.125, 4, -16]]),
    ("mul", [[[3.0], [-1.0]], X], {}, 3, [[3, -6, 1.5], [0.25, -4, -4]]),
    ("div", [X, Y], {}, 3, [[0.5, 1, 2], [-0.5, 4, -1]]),
    ("minimum", [X, Y], {}, 3, [[1, -2, 0.25], [-0.25, 1, -4]]),
    ("maximum", [X, Y], {}, 3, [[2, -2, 0.5], [0.5, 4, 4]]),
    ("less", [X, Y], {}, 3, [[1, 0, 0], [1, 0, 0]]),
    ("less_equal", [X, Y], {}, 3, [[1, 1, 0], [1, 0, 0]]),
    ("equal", [X, Y], {}, 3, [[0, 1, 0], [0, 0, 0]]),
    ("where", [[[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]], X, Y], {}, 3, [[1, -2, 0.5], [0.5, 4, -4]]),
    ("neg", [X], {}, 3, [[-1, 2, -0.5], [0.25, -4, -4]]),
    ("abs", [X], {}, 3, [[1, 2, 0.5], [0.25, 4, 4]]),
    ("sign", [[[3.0, 0.0, -0.1]] * 2], {}, 3, [[1, 0, -1]] * 2),
    ("exp", [[[0.0, 1.0, -1.0]] * 2], {}, 3, [[1, math.e, 1 / math.e]] * 2),
    ("log", [[[1.0, math.e, 0.5]] * 2], {}, 3, [[0, 1, -math.log(2)]] * 2),
    ("tanh", [[[0.0, 0.5, -50.0]] * 2], {}, 3, [[0, math.tanh(0.5), -1]] * 2),
    ("sqrt", [POSITIVE], {}, 3, [[1, 2, 0.5], [3, math.sqrt(2), 1]]),
    ("relu", [X], {}, 3, [[1, 0, 0.5], [0, 4, 4]]),
    ("relu_grad", [Y, X], {}, 3, [[2, 0, 0.25], [0, 1, -4]]),
    ("gather", [X, "index"], {}, 1, [[0.5], [-0.25]]),
    ("scatter", [[[7.0], [8.0]], "index"], {"width": 4}, 4, [[0, 0, 7, 0], [8, 0, 0, 0]]),
    ("row_max", [X], {}, 1, [[1], [4]]),
    ("row_argmax", [X], {}, 1, [[0], [1]]),
    ("row_sum", [X], {}, 1, [[-0.5], [7.75]]),
    ("concat", [X, [[5.0], [6.0]]], {}, 4, [[1, -2, 0.5, 5], [-0.25, 4, 4, 6]]),
    ("slice", [X], {"start": 1, "stop": 3}, 2, [[-2, 0.5], [4, 4]]),
]


def one_op(
    kind: str, inputs: list[Any], attrs: dict[str, Any], width: int
) -> tuple[Program, dict[str, np.ndarray]]:
    """A Program of a single operation, and columns for it."""
    buffers = [Buffer("rows", 1)]
    columns: dict[str, np.ndarray] = {"rows": np.zeros(2)}
    for i, values in enumerate(inputs):
        if values == "index":
            buffers.append(Buffer("index", 1, "int32"))
            columns["index"] = np.array([2, 0])
        else:
            columns[f"in{i}"] = np.array(values)
            buffers.append(Buffer(f"in{i}", columns[f"in{i}"].shape[1]))
    dtype = "int32" if kind == "row_argmax" else "float32"
    names = tuple(b.name for b in buffers[1:])
    op = Op(kind, names, Buffer("out", width, dtype), attrs)
    program = Program("case", (Network("net", len(FLAT)),), tuple(buffers), (op,), {"out": "out"})
    return program, columns


@pytest.mark.parametrize(("kind", "inputs", "attrs", "width", "expected"), CASES)
def test_operation_gives_value_written_by_hand(
    kind: str, inputs: list[Any], attrs: dict[str, Any], width: int, expected: list[list[float]]
) -> None:
    """The formula in `OPS`, on two rows."""
    program, columns = one_op(kind, inputs, attrs, width)
    out = run(program, {"net": np.array(FLAT)}, columns).outputs["out"]
    np.testing.assert_allclose(out.reshape(2, width), expected, rtol=1e-14)


def test_cases_hold_every_operation_with_a_row_result() -> None:
    """No operation is left out above."""
    assert {c[0] for c in CASES} == set(OPS) - {"dense_grad_weight", "sum_over_rows", "opaque"}


def gradient_program() -> Program:
    """Both gradient operations, the weight's one twice: gradients add up."""
    attrs = {**LAYER, "bias": -1}
    ops = (
        Op("dense_grad_weight", ("g", "x"), None, attrs),
        Op("dense_grad_weight", ("g", "x"), None, attrs),
        Op("sum_over_rows", ("g",), None, {"offset": 6}),
    )
    inputs = (Buffer("x", 3), Buffer("g", 2))
    return Program("case", (Network("net", 10),), inputs, ops, {"td_error": "x"}, "net")


def test_gradient_is_summed_over_rows() -> None:
    """The outer products and the rows, each at its offset."""
    columns = {"x": np.array(X), "g": np.array([[1.0, 0.0], [2.0, -1.0]])}
    gradient = run(gradient_program(), {"net": np.zeros(10)}, columns).gradient
    assert gradient is not None
    expected = [1.0, 12.0, 17.0, 0.5, -8.0, -8.0, 3.0, -1.0, 0.0, 0.0]
    np.testing.assert_array_equal(gradient, expected)


def test_dtype_is_that_of_all_arithmetic() -> None:
    """Float32 on request: 2^24 + 1 is not a float32."""
    program, columns = one_op("add", [[[2.0**24]] * 2, [[1.0]] * 2], {}, 1)
    double = run(program, {"net": np.array(FLAT)}, columns)
    single = run(program, {"net": np.array(FLAT)}, columns, np.float32)
    assert double.outputs["out"].tolist() == [2**24 + 1] * 2
    assert single.outputs["out"].dtype == np.float32
    assert single.outputs["out"].tolist() == [2**24] * 2


@pytest.mark.parametrize(
    ("field", "columns"),
    [
        ("x", {"g": np.zeros((2, 2))}),
        ("x", {"x": np.zeros((2, 4)), "g": np.zeros((2, 2))}),
        ("x", {"x": np.zeros(3), "g": np.zeros((2, 2))}),
        ("columns", {"x": np.zeros((3, 3)), "g": np.zeros((2, 2))}),
    ],
)
def test_wrong_column_is_refused(field: str, columns: dict[str, np.ndarray]) -> None:
    """Missing, of another width, without columns, of another length."""
    with pytest.raises(SchemaError) as caught:
        run(gradient_program(), {"net": np.zeros(10)}, columns)
    assert caught.value.field == field


@pytest.mark.parametrize("parameters", [{}, {"net": np.zeros(9)}, {"net": np.zeros((10, 1))}])
def test_wrong_parameters_are_refused(parameters: dict[str, np.ndarray]) -> None:
    """A vector for each network, of its size."""
    columns = {"x": np.zeros((1, 3)), "g": np.zeros((1, 2))}
    with pytest.raises(SchemaError, match="`net`"):
        run(gradient_program(), parameters, columns)


def linear_update(**phase: Any) -> Update:
    """One parameter p, target t; gradient of the mean is the mean of the input `x`."""
    ops = (
        Op("param", (), Buffer("p", 1), {"network": "net", "offset": 0}),
        Op("mul", ("p", "x"), Buffer("loss", 1), {}),
        Op("sum_over_rows", ("x",), None, {"offset": 0}),
    )
    networks = (Network("net", 1), Network("slow", 1))
    roles = {"td_error": "x", "loss": "loss"}
    program = Program("line", networks, (Buffer("x", 1),), ops, roles, "net")
    policy = Program("act", networks[:1], (Buffer("x", 1),), (), {"q": "x"})
    adam = Adam(learning_rate=0.1)
    return Update(
        "line", (Phase(program, adam, **phase),), (Target("net", "slow", 0.25, 2),), policy
    )


def test_first_adam_step_is_the_learning_rate() -> None:
    """Bias correction makes the first step that long, whatever the gradient."""
    learner = ReferenceLearner(linear_update(), {"net": np.ones(1), "slow": np.ones(1)})
    td_error = learner.step({"x": np.array([3.0, 5.0])})
    assert td_error.tolist() == [3.0, 5.0]
    assert learner.parameters["net"] == pytest.approx(0.9)
    assert learner.first_moment["net"] == pytest.approx(0.4)
    assert learner.second_moment["net"] == pytest.approx(0.016)
    assert learner.metrics == {"td_error": 4.0, "loss": 4.0}


def test_target_follows_every_second_update() -> None:
    """Averaging at updates 1, 3, ... as `every` says, with the network as it then is."""
    learner = ReferenceLearner(linear_update(), {"net": np.ones(1), "slow": np.ones(1)})
    learner.step({"x": np.ones(2)})
    assert learner.parameters["slow"] == 1.0
    learner.step({"x": np.ones(2)})
    assert learner.parameters["slow"] == pytest.approx(1 + 0.25 * (0.8 - 1))


def test_gradient_is_clipped_after_the_mean() -> None:
    """The moments hold the clipped gradient."""
    update = linear_update(max_grad_norm=0.5)
    learner = ReferenceLearner(update, {"net": np.ones(1), "slow": np.ones(1)})
    learner.step({"x": np.array([3.0, 5.0])})
    assert learner.first_moment["net"] == pytest.approx(0.05)
    assert clip_factor(np.array([3.0, 4.0]), 10.0) == 1.0
    assert clip_factor(np.array([3.0, 4.0]), 1.0) == pytest.approx(0.2)
    assert clip_factor(np.zeros(2), 1.0) == 1.0


def test_delayed_phase_runs_in_its_turn() -> None:
    """A second phase with `every=2`, as delayed policies have, sees the first one's step."""
    first = linear_update().phases[0]
    delayed = Phase(first.program, Adam(learning_rate=1.0), every=2)
    update = Update("two", (first, delayed), (), linear_update().policy)
    learner = ReferenceLearner(update, {"net": np.ones(1), "slow": np.ones(1)})
    learner.step({"x": np.ones(2)})
    assert learner.optimiser_steps == {"net": 1}
    learner.step({"x": np.ones(2)})
    assert learner.optimiser_steps == {"net": 3}
    assert learner.updates == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_update_that_is_not_finite_changes_nothing(value: float) -> None:
    """Also what an earlier phase of the same update did is taken back."""
    bad = linear_update()
    learner = ReferenceLearner(bad, {"net": np.ones(1), "slow": np.ones(1)})
    learner.step({"x": np.ones(2)})
    before = {k: np.array(v) for k, v in learner.parameters.items()}
    with pytest.raises(LearnerFailedError, match="line"):
        learner.step({"x": np.array([1.0, value])})
    assert learner.parameters == before
    assert (learner.updates, learner.optimiser_steps) == (1, {"net": 1})
    learner.step({"x": np.ones(2)})
    assert learner.updates == 2
