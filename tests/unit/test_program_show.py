# SPDX-License-Identifier: MIT
"""What a Program costs, and `copal program show`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gymnasium.spaces import Box, Discrete

from copal import algorithms, cli
from copal.errors import ProgramError, UnknownNameError
from copal.program import Adam, Buffer, Dense, Network, Op, Phase, Program, Update
from copal.program.cost import cost
from copal.program.show import chosen, parts_from_json, parts_of, to_dict, to_text

DENSE = {"network": "q", "weight": 0, "bias": 6, "fan_in": 3, "fan_out": 2}


@pytest.fixture
def program() -> Program:
    """One dense layer, half the square of its sum, and the gradient of that."""
    return Program(
        name="small",
        networks=(Network("q", 8, (Dense(0, 6, 3, 2),)),),
        inputs=(Buffer("obs", 3),),
        ops=(
            Op("dense", ("obs",), Buffer("y", 2), DENSE),
            Op("row_sum", ("y",), Buffer("s", 1)),
            Op("tanh", ("y",), Buffer("t", 2)),
            Op("concat", ("s", "s"), Buffer("g", 2)),
            Op("dense_grad_weight", ("g", "obs"), None, {**DENSE, "bias": -1}),
            Op("sum_over_rows", ("g",), None, {"offset": 6}),
        ),
        outputs={"loss": "s", "td_error": "s"},
        gradient="q",
    )


def test_operations_are_counted(program: Program) -> None:
    """Dense: two a weight and one a bias; elementwise one a number; copies none."""
    counted = cost(program, 10)
    assert [op.flops for op in counted.ops] == [140, 20, 20, 0, 120, 20]
    assert counted.flops == 320
    assert counted.dense_flops == 260


def test_bytes_are_counted(program: Program) -> None:
    """Four bytes a number; the gradient is one more vector of the network's size."""
    counted = cost(program, 10)
    assert [op.bytes for op in counted.ops] == [80, 40, 80, 80, 24, 8]
    assert counted.buffer_bytes == 4 * 10 * (3 + 2 + 1 + 2 + 2)
    assert counted.parameter_bytes == 4 * (8 + 8)


def test_sums_over_rows_are_told_apart(program: Program) -> None:
    """Only the gradient's operations cross rows."""
    local = [op.row_local for op in cost(program, 10).ops]
    assert local == [True, True, True, True, False, False]


def test_file_of_each_kind_is_recognised(program: Program) -> None:
    """An Update, a Program, and a policy as a run folder holds it."""
    update = Update("u", (Phase(program, Adam(), every=2),), (), program)
    shown = parts_from_json(update.to_json())
    assert [(p.label, p.every) for p in shown] == [("q", 2), ("policy", 0)]
    assert shown == parts_of(update)
    assert [p.label for p in parts_from_json(program.to_json())] == ["q"]
    saved = json.dumps({"format": 2, "program": program.to_dict()})
    assert [p.program for p in parts_from_json(saved)] == [program]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"program": 3}'])
def test_other_file_is_refused(text: str) -> None:
    """Text that holds no Program."""
    with pytest.raises(ProgramError):
        parts_from_json(text)


def test_unknown_phase_lists_the_known_ones(program: Program) -> None:
    """A typing mistake in `--phase`."""
    parts = parts_of(Update("u", (Phase(program, Adam()),), (), program))
    with pytest.raises(UnknownNameError, match="policy"):
        chosen(parts, "polcy")


@pytest.mark.parametrize("algo", algorithms.names())
def test_every_algorithm_is_shown(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, with continuous or discrete actions, whichever it takes."""
    flags = ["--algo", algo, "--hidden", "8", "--batch-size", "4", "--json"]
    assert cli.main(["program", "show", *flags]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert shown["name"] == algo
    assert shown["programs"][-1]["phase"] == "policy"
    assert shown["total"]["flops_per_update"] > 0
    ops = shown["programs"][0]["ops"]
    assert {op["row_local"] for op in ops} == {True, False}


def test_phase_that_runs_seldom_counts_less() -> None:
    """FLOP of an update are a mean over updates."""
    flags = ["--hidden", "8", "--phase", "actor"]
    config = cli._parse(cli.ShowConfig, "show", ["--algo", "td3", *flags])
    parts = chosen(parts_of(cli._update(config)), "actor")
    assert parts[0].every == 2


def test_text_names_operations_sources_and_totals(capsys: pytest.CaptureFixture[str]) -> None:
    """The table that people read."""
    flags = ["--algo", "sac", "--obs", "5", "--actions", "3", "--hidden", "8", "--phase", "actor"]
    assert cli.main(["program", "show", *flags]) == 0
    text = capsys.readouterr().out
    for expected in ("dense_grad_weight", "[256, 5]", "normal", "summed", "FLOP an update"):
        assert expected in text
    assert "sac, phase `actor` alone, with batch size 256: " in text


def test_total_says_what_it_is_of(program: Program) -> None:
    """Of a whole update, of one phase, or of the policy, which is no part of an update."""
    update = Update("u", (Phase(program, Adam(), every=2),), (), program)
    parts = parts_of(update)
    for phase, of, words in (
        (None, "update", "u with batch size 10: 160 FLOP an update"),
        ("q", "q", "u, phase `q` alone, with batch size 10: 160 FLOP an update"),
        ("policy", "policy", "u, policy alone, with batch size 10: 320 FLOP a batch"),
    ):
        some = chosen(parts, phase)
        assert to_dict("u", some, 10)["total"]["of"] == of
        assert words in to_text("u", some, 10)


@pytest.mark.parametrize("inside", [".", "policy"])
def test_file_may_be_a_run_folder(
    program: Program, inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or a policy folder: its policy is shown; a folder without one is refused."""
    flags = ["program", "show", "--file", str(tmp_path)]
    assert cli.main(flags) == 2
    assert "policy.json" in capsys.readouterr().err
    (tmp_path / inside).mkdir(exist_ok=True)
    saved = {"format": 2, "program": replace(program, gradient=None, ops=program.ops[:3]).to_dict()}
    (tmp_path / inside / "policy.json").write_text(json.dumps(saved))
    assert cli.main(flags) == 0
    text = capsys.readouterr().out
    assert "policy alone" in text
    assert "an update" not in text


def test_spaces_of_an_environment_and_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--env` builds for its spaces; `--file` shows what was saved."""
    flags = ["--algo", "dqn", "--hidden", "8", "--json"]
    assert cli.main(["program", "show", *flags, "--env", "CartPole-v1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["programs"][0]["inputs"][0]["width"] == 4
    algorithm = algorithms.get("dqn")
    settings = algorithm.config(hidden=(8,))
    built = algorithm.build(Box(-1.0, 1.0, (4,)), Discrete(2), settings)
    file = tmp_path / "update.json"
    file.write_text(built.update.to_json())
    assert cli.main(["program", "show", "--file", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["programs"] == shown["programs"]


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "", "[]", "null"])
def test_file_of_something_else_is_a_typed_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However it is nested."""
    (tmp_path / "file.json").write_text(text)
    assert cli.main(["program", "show", "--file", str(tmp_path / "file.json")]) == 1
    assert capsys.readouterr().err.startswith("error: `file`")


@pytest.mark.parametrize(
    "flags",
    [["--algo", "sca"], ["--file", "nowhere.json"], ["--batch-size", "0"], ["--obs", "0"]],
)
def test_wrong_flag_ends_with_an_error(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and a message, nothing on stdout."""
    assert cli.main(["program", "show", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error:")
