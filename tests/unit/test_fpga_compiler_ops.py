# SPDX-License-Identifier: MIT
"""The compiler on one operation at a time, and on random Programs, against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fpga_engine import Engine, engine

from copal.errors import ProgramError
from copal.fpga.compiler import compile_update, supports
from copal.program import OPS, Adam, Buffer, Network, Op, Phase, Program, Update, reference

ROWS = 6
WIDTH = 5

#: Operation, its inputs, its attributes, and the width of its result. x, y, z are [rows, 5], c and
#: d have width 1, p is positive, i holds indices below 5.
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any], int]] = {
    **{
        kind: (kind, ("x", "y"), {}, WIDTH)
        for kind in ("add", "sub", "mul", "div", "minimum", "maximum", "less", "less_equal")
    },
    **{kind: (kind, ("x",), {}, WIDTH) for kind in ("neg", "abs", "sign", "exp", "tanh", "relu")},
    **{f"{kind} column": (kind, ("c", "x"), {}, WIDTH) for kind in ("add", "sub", "mul", "less")},
    "equal": ("equal", ("x", "x"), {}, WIDTH),
    "equal index": ("equal", ("i", "c"), {}, 1),
    "where": ("where", ("x", "y", "z"), {}, WIDTH),
    "where column": ("where", ("c", "y", "d"), {}, WIDTH),
    "log": ("log", ("p",), {}, WIDTH),
    "sqrt": ("sqrt", ("p",), {}, WIDTH),
    "relu_grad": ("relu_grad", ("x", "y"), {}, WIDTH),
    "gather": ("gather", ("x", "i"), {}, 1),
    "scatter": ("scatter", ("c", "i"), {"width": WIDTH}, WIDTH),
    **{kind: (kind, ("x",), {}, 1) for kind in ("row_max", "row_argmax", "row_sum")},
    "row_max column": ("row_max", ("c",), {}, 1),
    "concat": ("concat", ("x", "c", "y"), {}, 2 * WIDTH + 1),
    "concat repeated": ("concat", ("c", "c", "c", "x"), {}, WIDTH + 3),
    "slice": ("slice", ("x",), {"start": 1, "stop": 4}, 3),
    "const": ("const", (), {"value": -0.3}, 1),
    "param": ("param", (), {"network": "n", "offset": 2}, 3),
    "dense": ("dense", ("x",), {"weight": 10, "bias": 30, "fan_in": WIDTH, "fan_out": 4}, 4),
    "dense without bias": (
        "dense", ("x",), {"weight": 10, "bias": -1, "fan_in": WIDTH, "fan_out": 4}, 4,
    ),
    "dense_grad_input": (
        "dense_grad_input", ("x",), {"weight": 10, "bias": -1, "fan_in": 4, "fan_out": WIDTH}, 4,
    ),
}  # fmt: skip

INPUTS = (
    *(Buffer(n, WIDTH) for n in "xyzp"),
    Buffer("c", 1),
    Buffer("d", 1),
    Buffer("i", 1, "int32"),
)
NETWORK = Network("n", 64)


def columns(rows: int, rng: np.random.Generator) -> dict[str, Any]:
    values = {n: rng.normal(size=(rows, WIDTH)).astype(np.float32) for n in "xyz"}
    values["x"][:, 2] = 0
    values["p"] = rng.uniform(0.1, 30, (rows, WIDTH)).astype(np.float32)
    for n in "cd":
        values[n] = rng.integers(-1, 2, (rows, 1)).astype(np.float32)
    values["i"] = rng.integers(0, WIDTH, (rows, 1))
    return values


def update_of(ops: list[Op], outputs: dict[str, str], last: str) -> Update:
    """An Update whose gradient sums `last` over the rows into the first floats of `n`."""
    ops = [*ops, Op("sum_over_rows", (last,), None, {"offset": 0})]
    program = Program("test", (NETWORK,), INPUTS, tuple(ops), outputs, "n")
    return Update("test", (Phase(program, Adam()),), (), program)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [1, ROWS])
def test_operation_alone(name: str, rows: int, rng: np.random.Generator) -> None:
    """Values in V like float32, and integers of them that are summed over the rows."""
    kind, inputs, attrs, width = CASES[name]
    if kind.startswith("dense"):
        attrs = {"network": "n", **attrs}
    out = Buffer("out", width, "int32" if kind == "row_argmax" else "float32")
    head = [Op("const", (), Buffer("zero", 1), {"value": 0.0})]
    after = Op("slice", ("out",), Buffer("first", 1), {"start": 0, "stop": 1})
    ops = [*head, Op(kind, inputs, out, attrs), after]
    update = update_of(ops, {"td_error": "zero", "out": "out"}, "first")
    parameters = {"n": rng.normal(size=64).astype(np.float32)}
    plan = compile_update(update, engine(), rows)
    run = Engine(plan, parameters, rng)
    batch = columns(rows, rng)
    expected = reference.run(update.phases[0].program, parameters, batch)
    got = run.step(batch)[0, "out"]
    want = expected.buffers["out"]
    top = np.abs(want).max(initial=1e-3)
    error = 2.0**-13 if kind.startswith("dense") else 2e-6
    np.testing.assert_allclose(got, want, atol=error * top, rtol=error)
    gradient = expected.gradient / rows
    np.testing.assert_allclose(
        run.gradients[0], gradient, atol=2.0**-13 * max(top, np.abs(gradient).max())
    )


def test_every_operation_has_a_case() -> None:
    """The list above leaves out only those that other tests have."""
    missing = set(OPS) - {kind for kind, *_ in CASES.values()}
    assert missing == {"dense_grad_weight", "sum_over_rows", "opaque"}


def _random_ops(rng: np.random.Generator) -> tuple[list[Op], list[str]]:
    """Operations on whatever is there; `exact` buffers are not rounded to integers anywhere."""
    pool = {b.name: b.width for b in INPUTS if b.dtype == "float32"}
    exact = set(pool)
    ops: list[Op] = []

    def pick(width: int | None = None, only_exact: bool = False) -> str:
        names = [
            n
            for n, w in pool.items()
            if (width is None or w in (1, width)) and (n in exact or not only_exact)
        ]
        return str(rng.choice(names))

    def add(kind: str, inputs: tuple[str, ...], wide: int, **attrs: Any) -> None:
        name = f"b{len(ops)}"
        ops.append(Op(kind, inputs, Buffer(name, wide), attrs))
        if all(i in exact for i in inputs) and not kind.startswith("dense"):
            exact.add(name)
        pool[name] = wide

    for _ in range(30):
        kind = str(
            rng.choice(
                ["add", "sub", "mul", "maximum", "neg", "abs", "tanh", "where", "less", "concat",
                 "slice", "row_sum", "row_max", "gather", "scatter", "dense", "const", "param",
                 "relu", "relu_grad", "dense_grad_input"]
            )
        )  # fmt: skip
        x = pick()
        width = pool[x]
        if kind in ("add", "sub", "mul", "maximum"):
            y = pick(width)
            if pool[y] in (1, width) or width == 1:
                add(kind, (x, y), max(width, pool[y]))
        elif kind in ("neg", "abs", "tanh", "relu"):
            add(kind, (x,), width)
        elif kind in ("less", "relu_grad"):
            y = pick(width, only_exact=True)
            x = pick(width, only_exact=kind == "less")
            add(kind, (x, y), max(pool[x], pool[y]))
        elif kind == "where":
            y, test = pick(width), pick(width, only_exact=True)
            add(kind, (test, x, y), max(width, pool[y], pool[test]))
        elif kind == "concat" and width < 20:
            parts = tuple(pick() for _ in range(int(rng.integers(2, 4))))
            if sum(pool[p] for p in parts) < 30:
                add(kind, parts, sum(pool[p] for p in parts))
        elif kind == "slice":
            start = int(rng.integers(0, width))
            stop = int(rng.integers(start + 1, width + 1))
            add(kind, (x,), stop - start, start=start, stop=stop)
        elif kind in ("row_sum", "row_max"):
            add(kind, (x,), 1)
        elif kind == "gather" and width >= WIDTH:
            add(kind, (x, "i"), 1)
        elif kind == "scatter":
            add(kind, (pick(1), "i"), WIDTH, width=WIDTH)
        elif kind == "const":
            add(kind, (), 1, value=float(rng.normal()))
        elif kind == "param":
            add(kind, (), 3, network="n", offset=60)
        elif kind == "dense" and width == WIDTH:
            add(kind, (x,), 4, network="n", weight=10, bias=30, fan_in=WIDTH, fan_out=4)
        elif kind == "dense_grad_input" and width == 4:
            add(kind, (x,), WIDTH, network="n", weight=10, bias=-1, fan_in=WIDTH, fan_out=4)
    return ops, list(pool)


@pytest.mark.parametrize("number", range(12))
def test_random_program(number: int, rng: np.random.Generator) -> None:
    """Views, flags, shared storage, predicated writes and products in any order."""
    ops, names = _random_ops(rng)
    roles = {f"o{i}": str(n) for i, n in enumerate(rng.choice(names, 6))}
    update = update_of(ops, {"td_error": "c", **roles}, "c")
    parameters = {"n": rng.normal(size=64).astype(np.float32) * 0.5}
    rows = int(rng.choice([1, 4, 7, 13]))
    plan = compile_update(update, engine(), rows)
    batch = columns(rows, rng)
    # In float32: comparisons of numbers that are nearly equal have to come out alike.
    expected = reference.run(update.phases[0].program, parameters, batch, np.float32)
    got = Engine(plan, parameters, rng).step(batch)
    largest = max(np.abs(v).max() for v in expected.buffers.values())
    for role, name in roles.items():
        want = expected.buffers[name]
        np.testing.assert_allclose(got[0, role], want, atol=1e-3 * largest, rtol=1e-3)


def test_lacking_operations_are_named() -> None:
    """Those of the `torch` backend, and functions that the engine was built without."""
    x = Buffer("x", WIDTH)
    opaque = Program(
        "p", (), (x,), (Op("opaque", ("x",), Buffer("o", 1), {"name": "conv"}),), {"o": "o"}
    )
    assert supports(opaque) == "conv"
    tanh = Program("p", (), (x,), (Op("tanh", ("x",), Buffer("o", WIDTH), {}),), {"o": "o"})
    assert supports(tanh) is None
    assert supports(tanh, functions=False) == "tanh"
    update = update_of([*tanh.ops], {"td_error": "c"}, "c")
    with pytest.raises(ProgramError, match=r"tanh.*\n.*functions"):
        compile_update(update, engine(functions=False), ROWS)
