# SPDX-License-Identifier: MIT
"""A Program as data: JSON, checks at construction, and life without PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from copal import algorithms
from copal.algorithms.dqn import DqnConfig
from copal.errors import ProgramError
from copal.program import Buffer, Network, Op, Program, Update
from copal.program.builder import ProgramBuilder
from copal.program.reference import ReferenceLearner

WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked here")

sys.meta_path.insert(0, Blocker())
import numpy as np
import copal.algorithms, copal.backends, copal.program
from copal.program import Update
from copal.program.reference import ReferenceLearner

folder = sys.argv[1]
update = Update.from_json(open(folder + "/update.json").read())
arrays = np.load(folder + "/arrays.npz")
networks = {n: arrays[n] for n in update.networks()}
columns = {b.name: arrays[b.name] for b in update.phases[0].program.inputs}
learner = ReferenceLearner(update, networks)
for _ in range(3):
    learner.step(columns)
np.save(folder + "/result.npy", learner.parameters["q"])
assert copal.backends.get("torch").unavailable() is not None
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def update() -> Update:
    """A small captured Update of double DQN."""
    space = gym.spaces.Box(-1.0, 1.0, (3,))
    config = DqnConfig(hidden=(6, 5))
    return algorithms.get("double-dqn").build(space, gym.spaces.Discrete(4), config).update


def test_json_gives_the_same_program_back(update: Update) -> None:
    """Bit by bit, constants included."""
    program = update.phases[0].program
    assert Program.from_json(program.to_json()) == program
    assert json.loads(program.to_json())["version"] == 1


def test_another_version_is_refused(update: Update) -> None:
    """A file of another version says which."""
    for thing in (update.policy, update):
        data = json.loads(thing.to_json())
        data["version"] = 99
        with pytest.raises(ProgramError, match="expected 1, got 99"):
            type(thing).from_json(json.dumps(data))


@pytest.mark.parametrize("lost", ["networks", "inputs", "ops", "outputs", "gradient", "name"])
def test_json_with_a_part_missing_is_refused(update: Update, lost: str) -> None:
    """A typed error, not a KeyError."""
    data = update.policy.to_dict()
    del data[lost]
    with pytest.raises(ProgramError, match=lost):
        Program.from_dict(data)


@pytest.mark.parametrize("kind", [Program, Update])
@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null"])
def test_text_that_is_no_program_is_refused(kind: type[Program | Update], text: str) -> None:
    """Whatever is in the file."""
    with pytest.raises(ProgramError, match=r"program|update"):
        kind.from_json(text)


@pytest.mark.parametrize("part", ["phases", "targets", "policy"])
def test_update_with_a_part_missing_is_refused(update: Update, part: str) -> None:
    """Null counts as missing."""
    data = json.loads(update.to_json())
    data[part] = None
    with pytest.raises(ProgramError, match=r"program|update"):
        Update.from_json(json.dumps(data))


def test_saved_update_runs_without_torch(update: Update, tmp_path: Path) -> None:
    """A fresh interpreter where importing torch fails loads, checks and trains."""
    rng = np.random.default_rng(3)
    arrays = {n: rng.normal(size=s).astype(np.float32) for n, s in update.networks().items()}
    for buffer in update.phases[0].program.inputs:
        shape = (16, buffer.width) if buffer.width > 1 else (16,)
        index = buffer.dtype == "int32"
        arrays[buffer.name] = rng.integers(4, size=shape) if index else rng.random(shape)
    (tmp_path / "update.json").write_text(update.to_json())
    np.savez(tmp_path / "arrays.npz", **arrays)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    learner = ReferenceLearner(update, {n: arrays[n] for n in update.networks()})
    for _ in range(3):
        learner.step(arrays)
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), learner.parameters["q"])


def program(*ops: Op, **other: Any) -> Program:
    """A Program on two inputs and a network of 10 floats."""
    parts: dict[str, Any] = {
        "name": "case",
        "networks": (Network("net", 10),),
        "inputs": (Buffer("x", 3), Buffer("y", 3)),
        "ops": ops,
        "outputs": {},
    }
    return Program(**{**parts, **other})


OUT = Buffer("out", 3)
DENSE = {"network": "net", "weight": 0, "bias": 6, "fan_in": 3, "fan_out": 2}


@pytest.mark.parametrize(
    ("op", "word"),
    [
        (Op("addd", ("x", "y"), OUT), "`addd`"),
        (Op("add", ("x",), OUT), "2 inputs"),
        (Op("add", ("x", "z"), OUT), "`z`"),
        (Op("add", ("x", "y"), OUT, {"value": 1}), "attributes"),
        (Op("add", ("x", "y"), None), "output buffer"),
        (Op("add", ("x", "y"), Buffer("x", 3)), "`x` again"),
        (Op("dense", ("x",), OUT, {**DENSE, "network": "no"}), "`no`"),
        (Op("dense", ("x",), OUT, {**DENSE, "bias": 9}), "offsets inside 10"),
        (Op("dense", ("x",), OUT, {**DENSE, "weight": -1}), "offsets inside 10"),
        (Op("param", (), OUT, {"network": "net", "offset": 8}), "offsets inside 10"),
        (Op("param", (), OUT, {"network": "net", "offset": -1}), "offsets inside 10"),
        (Op("sum_over_rows", ("x",), None, {"offset": 0}), "named by `gradient`"),
    ],
)
def test_malformed_operation_is_refused(op: Op, word: str) -> None:
    """Each check of the constructor, with the position of the operation."""
    with pytest.raises(ProgramError) as caught:
        program(op)
    assert caught.value.field.startswith("ops[0]")
    assert word in str(caught.value)


def test_gradient_outside_its_network_is_refused() -> None:
    """A sum of width 3 fits at offset 7 of 10 floats and not at 8."""
    fits = Op("sum_over_rows", ("x",), None, {"offset": 7})
    assert program(fits, gradient="net").ops == (fits,)
    with pytest.raises(ProgramError, match="offsets inside 10"):
        program(replace(fits, attrs={"offset": 8}), gradient="net")


def test_output_without_buffer_is_refused() -> None:
    """Roles name buffers of the Program."""
    with pytest.raises(ProgramError, match="`outputs`"):
        program(outputs={"q": "nothing"})


def test_flops_count_dense_products(update: Update) -> None:
    """Double DQN of 3-6-5-4: three forward passes, one backward, products only."""
    products = [3 * 6, 6 * 5, 5 * 4]
    forward, weights, inputs = 3 * sum(products), sum(products), sum(products[1:])
    assert update.phases[0].program.flops_per_row() == 2 * (forward + weights + inputs)


def test_builder_shares_folds_and_drops() -> None:
    """Equal operations once, in either order; constants computed; dead ones left out."""
    b = ProgramBuilder([Buffer("x", 3), Buffer("y", 3), Buffer("z", 1)])
    total = b.emit("add", "x", "y")
    assert b.emit("add", "y", "x") == total
    assert b.emit("sub", "x", "y") != b.emit("sub", "y", "x")
    assert b.emit("mul", "x", b.const(1)) == "x"
    assert b.emit("neg", b.emit("neg", "x")) == "x"
    assert b.emit("add", b.const(0), "x") == "x"
    assert b.width(b.emit("mul", "x", "z")) == 3
    half = b.emit("div", b.const(1), b.const(2))
    assert b.constant_of(half) == 0.5
    scaled = b.emit("mul", b.emit("mul", "x", b.const(61)), b.const(1 / 61))
    assert scaled == "x"
    assert b.constant_of(b.emit("div", b.const(1), b.const(0))) is None
    result = b.finish("case", (), {"out": total}, None)
    assert [op.kind for op in result.ops] == ["add"]
    assert [i.name for i in result.inputs] == ["x", "y"]


def test_builder_avoids_names_of_inputs() -> None:
    """A column may be called as the builder would call its own buffers."""
    b = ProgramBuilder([Buffer("add_1", 1), Buffer("x", 1)])
    assert b.emit("add", "add_1", "x") == "add_2"


def test_networks_of_an_update_come_in_order_of_first_use(update: Update) -> None:
    """Sizes by name, trained ones apart."""
    size = 3 * 6 + 6 + 6 * 5 + 5 + 5 * 4 + 4
    assert list(update.networks().items()) == [("q", size), ("q_target", size)]
    assert update.trained() == ("q",)
    assert replace(update, name="other").networks() == update.networks()
