# SPDX-License-Identifier: MIT
"""Every operation of the native executor against the NumPy interpreter in float64."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_cases import BATCH_SIZES, Builder, dense, learner, network, relative

from copal import native as modules
from copal.errors import ProgramError
from copal.program import OPS, Adam, Buffer, Network, Op, Phase, Program, Update
from copal.program.reference import run

WIDTHS = (1, 2, 5, 16, 33, 70)
EMPTY_POLICY = Program("none", (Network("p", 1),), (Buffer("x", 1),), (), {"x": "x"})


def native_outputs(program, parameters, columns, isa):
    """Outputs of a policy, rows as given."""
    policy = modules.load(isa).Policy(program.to_dict())
    return policy.act(parameters["p"], columns["x"])


def one_op(kind, width, rng):
    """A policy whose only input `x` is cut into the operands of one operation, and its input."""
    b = Builder()
    spec = OPS[kind]
    attrs, out, dtype = {}, width, "float32"
    if kind == "dense":
        net = network("p", (width, 7))
        attrs, out = dense(net, net.layers[0]), 7
    elif kind == "dense_grad_input":
        net = network("p", (9, width))
        attrs, out = dense(net, net.layers[0]), 9
    else:
        net = Network("p", 40)
    if kind == "const":
        attrs, out = {"value": 1.5}, 1
    elif kind == "param":
        attrs, out = {"network": "p", "offset": 3}, 5
    elif kind == "slice":
        attrs, out = {"start": width // 3, "stop": width}, width - width // 3
    elif kind in ("gather", "row_max", "row_sum"):
        out = 1
    elif kind == "row_argmax":
        out, dtype = 1, "int32"
    count = 3 if spec.inputs == -1 else spec.inputs
    narrow = int(rng.integers(count)) if count > 1 else -1
    widths = [1 if kind != "concat" and i == narrow else width for i in range(count)]
    if kind in ("gather", "scatter"):
        widths = [width if kind == "gather" else 1, width]
    parts, at = [], 0
    for w in widths:
        parts.append(b.add("slice", "x", width=w, start=at, stop=at + w))
        at += w
    if kind in ("gather", "scatter"):
        parts[1] = b.add("row_argmax", parts[1], dtype="int32")
    if kind == "concat":
        out = sum(widths)
    elif kind not in ("gather",) and count > 1:
        out = max(widths)
    if kind == "scatter":
        result = b.add_scatter(*parts, width)
    else:
        result = b.add(kind, *parts, width=out, dtype=dtype, **attrs)
    program = Program("op", (net,), (Buffer("x", max(at, 1)),), tuple(b.ops), {"out": result})
    return program, max(at, 1)


def values(kind, shape, rng):
    """Inputs inside the operation's domain, some of them equal and some 0."""
    x = rng.standard_normal(shape)
    x[rng.random(shape) < 0.1] = 0
    x = np.round(x, 1) if kind in ("equal", "less", "less_equal", "sign") else x
    if kind == "div":
        x = x + np.sign(x) + (x == 0)
    if kind in ("log", "sqrt"):
        x = np.abs(x) + 0.01
    return x.astype(np.float32)


FORWARD = sorted(set(OPS) - {"dense_grad_weight", "sum_over_rows", "opaque"})


@pytest.mark.parametrize("isa", modules.supported())
@pytest.mark.parametrize("kind", FORWARD)
def test_operation_equals_numpy(kind, isa):
    """Any width, any number of rows, broadcast operands."""
    rng = np.random.default_rng([OPS[kind].inputs + 1, *kind.encode()])
    for width in WIDTHS:
        program, total = one_op(kind, width, rng)
        parameters = {"p": rng.standard_normal(program.networks[0].size).astype(np.float32)}
        for rows in (1, 3, 16, 17, 64, 100):
            columns = {"x": values(kind, (rows, total), rng)}
            expected = run(program, parameters, columns).outputs["out"]
            actual = native_outputs(program, parameters, columns, isa)["out"]
            assert relative(actual.reshape(expected.shape), expected) < 2e-6, (width, rows)


SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 88.72, 88.73, -87.3, -104.0, -103.9, 1.0, 0.999)


@pytest.mark.parametrize("isa", modules.supported())
@pytest.mark.parametrize("kind", ["exp", "log", "tanh", "sqrt"])
def test_transcendental_is_accurate_over_the_whole_range(kind, isa):
    """Relative error of every single value, subnormal and infinite ones among them."""
    rng = np.random.default_rng(1)
    anything = rng.integers(0, 2**32, 40_000, np.uint32).view(np.float32)
    usual = (rng.choice([-1, 1], 40_000) * 10.0 ** rng.uniform(-6, 2.1, 40_000)).astype(np.float32)
    x = np.concatenate([anything, usual, np.array(SPECIAL, np.float32)])
    b = Builder()
    out = b.add(kind, "x")
    program = Program("op", (Network("p", 1),), (Buffer("x", 1),), tuple(b.ops), {"out": out})
    start = {"p": np.zeros(1, np.float32)}
    actual = native_outputs(program, start, {"x": x[:, None]}, isa)["out"][:, 0]
    with np.errstate(all="ignore"):
        expected = getattr(np, kind)(x.astype(np.float64))
        rounded = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(rounded))
    np.testing.assert_array_equal(actual[np.isinf(rounded)], rounded[np.isinf(rounded)])
    finite = np.isfinite(rounded)
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=3e-7, atol=1e-44)


def gradient_update(fan_in, fan_out, *, twice=False):
    """Sums over rows of the product of two inputs; with `twice` the same range is summed twice."""
    net = network("p", (fan_in, fan_out))
    b = Builder()
    for _ in range(2 if twice else 1):
        b.add_sum("dense_grad_weight", "d", "x", **dense(net, net.layers[0]))
        b.add_sum("sum_over_rows", "d", offset=net.layers[0].bias)
    td = b.add("row_sum", "d")
    inputs = (Buffer("x", fan_in), Buffer("d", fan_out))
    program = Program("sums", (net,), inputs, tuple(b.ops), {"td_error": td, "loss": td}, "p")
    policy = Program("none", (net,), (Buffer("x", 1),), (), {"x": "x"})
    return Update("sums", (Phase(program, Adam()),), (), policy)


@pytest.mark.parametrize("gemm", ["auto", "eigen"])
@pytest.mark.parametrize("rows", BATCH_SIZES)
@pytest.mark.parametrize("twice", [False, True])
def test_sums_over_rows_equal_numpy(rows, gemm, twice):
    """Weight and bias gradients of layers of any size; padding never counts."""
    rng = np.random.default_rng(rows)
    for fan_in, fan_out in ((1, 1), (3, 5), (16, 16), (20, 70), (65, 3), (130, 9)):
        update = gradient_update(fan_in, fan_out, twice=twice)
        start = {"p": np.zeros(update.networks()["p"], np.float32)}
        columns = {
            "x": rng.standard_normal((rows, fan_in)).astype(np.float32),
            "d": rng.standard_normal((rows, fan_out)).astype(np.float32),
        }
        expected = run(update.phases[0].program, start, columns).gradient / rows
        actual, _, _ = learner(update, start, rows, gemm=gemm).gradient(columns)
        assert relative(actual, expected) < 3e-6, (fan_in, fan_out)


def test_ranges_that_overlap_in_part_add_up():
    """A sum may begin inside another one's range."""
    b = Builder()
    b.add_sum("sum_over_rows", "x", offset=0)
    b.add_sum("sum_over_rows", "x", offset=2)
    td = b.add("row_sum", "x")
    net = Network("p", 8)
    program = Program("sums", (net,), (Buffer("x", 4),), tuple(b.ops), {"td_error": td}, "p")
    update = Update(
        "sums",
        (Phase(program, Adam()),),
        (),
        Program("none", (net,), (Buffer("x", 1),), (), {"x": "x"}),
    )
    cpu = learner(update, {"p": np.zeros(8, np.float32)}, 2)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for _ in range(2):
        gradient, _, _ = cpu.gradient({"x": x})
        np.testing.assert_array_equal(gradient * 2, [4, 6, 8 + 4, 10 + 6, 8, 10, 0, 0])


def test_int_columns_take_part_in_float_arithmetic():
    """An int32 buffer is converted where an operation computes with numbers."""
    b = Builder()
    k = b.add("row_argmax", "x", dtype="int32")
    out = b.add("add", k, b.add("equal", k, b.add("const", value=2.0)))
    program = Program("op", (Network("p", 1),), (Buffer("x", 5),), tuple(b.ops), {"out": out})
    x = np.eye(5, dtype=np.float32)
    actual = native_outputs(
        program, {"p": np.zeros(1, np.float32)}, {"x": x}, modules.supported()[0]
    )["out"]
    np.testing.assert_array_equal(actual[:, 0], [0, 1, 3, 3, 4])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"width": 3}, "width 4"),
        ({"kind": "sqrtt"}, "sqrtt"),
        ({"inputs": ("nothing",)}, "nothing"),
        ({"dtype": "int32"}, "int32"),
        ({"width": 2**32 + 4}, "width"),
        ({"width": -4}, "width"),
        ({"width": "wide"}, "width"),
        ({"inputs": (5,)}, "inputs"),
        ({"inputs": None}, "inputs"),
    ],
)
def test_malformed_program_is_refused(change, named):
    """The native side checks shapes itself, since memory safety rests on them."""
    plain = Program(
        "p", (Network("p", 1),), (Buffer("x", 4),), (Op("neg", ("x",), Buffer("y", 4)),), {"y": "y"}
    ).to_dict()
    op = plain["ops"][0]
    for key, value in change.items():
        if key in op:
            op[key] = value
        else:
            op["output"][key] = value
    with pytest.raises(ProgramError, match=named):
        modules.native.Policy(plain)


@pytest.mark.parametrize("field", ["networks", "inputs", "ops", "outputs", "gradient"])
@pytest.mark.parametrize("value", [5, 2.5, {"a": 5}])
def test_program_with_a_part_of_another_type_is_refused(field, value):
    """Never a bare cast error."""
    plain = Program(
        "p", (Network("p", 1),), (Buffer("x", 4),), (Op("neg", ("x",), Buffer("y", 4)),), {"y": "y"}
    ).to_dict()
    plain[field] = value
    with pytest.raises(ProgramError, match=field):
        modules.native.Policy(plain)
