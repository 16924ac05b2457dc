# SPDX-License-Identifier: MIT
"""The benchmark of the FPGA engine, with sizes that take a second or two."""

from __future__ import annotations

import json

import pytest

from copal.bench import learner_build
from copal.bench.config import FpgaBench
from copal.bench.verbs import BENCHES, run_fpga
from copal.errors import ConfigError, UnknownNameError
from copal.fpga.compiler import compile_update
from copal.fpga.engine import sized

SMALL = FpgaBench(
    algos=("dqn",),
    hidden=(16,),
    batch_size=8,
    lanes=(16, 64),
    rtl_lanes=(),
    boards=False,
    speed=False,
    gradient_steps=0,
)


def test_cycles_are_those_of_the_compiled_update():
    """Each engine has a row, labelled with where its figure comes from."""
    rows = run_fpga(SMALL).rows
    assert [row["lanes"] for row in rows] == [16, 64]
    built = learner_build.build("dqn", (16,))
    for row in rows:
        plan = compile_update(built.update, sized(built.update, 8, row["lanes"]), 8)
        assert row["cycles"] == plan.cycles()
        assert row["lane_use"] == pytest.approx(plan.macs() / plan.cycles() / row["lanes"])
        assert row["updates_per_s"] == pytest.approx(100e6 / plan.cycles())
        assert row["source"] == "cycle model"


def test_boards_are_compared_with_the_cpu_backend():
    """A network that does not fit a board is a row that names the memory."""
    rows = [row for row in run_fpga(_with(boards=True)).rows if row["op"] == "board"]
    fitting = [row for row in rows if "absent" not in row]
    assert len(rows) == 6
    assert fitting
    for row in fitting:
        assert row["ratio"] == pytest.approx(row["updates_per_s"] / row["cpu_updates_per_s"])
        assert "clock stated" in row["source"]
    assert all("depths" in row["absent"] for row in rows if "absent" in row)


def test_gradients_are_compared_on_batches_of_training():
    """The engine's gradient is near float64's, and not equal to it."""
    rows = run_fpga(_with(gradient_steps=1_200, batches=3, rounds=1)).rows
    found = [row for row in rows if row["op"] == "gradient"]
    assert [row["name"] for row in found] == ["dqn q on CartPole-v1"]
    assert 1e-8 < found[0]["error"] <= found[0]["error_worst"] < 0.2
    assert found[0]["batches"] == 3


def test_report_is_printed_as_tables_and_as_json(capsys: pytest.CaptureFixture[str]):
    """One table a kind of row."""
    assert BENCHES["fpga"].run(SMALL) == 0
    assert "| cycles " in capsys.readouterr().out
    assert BENCHES["fpga"].run(_with(json=True)) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"lanes": (32,)}, ConfigError),
        ({"rtl_lanes": (256,)}, ConfigError),
        ({"algos": ("dqm",)}, UnknownNameError),
        ({"clock_mhz": 0.0}, ConfigError),
        ({"gradient_steps": -1}, ConfigError),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(setting: dict, error: type[Exception]):
    """The error names the setting."""
    with pytest.raises(error, match=next(iter(setting))):
        _with(**setting)


def _with(**settings: object) -> FpgaBench:
    from dataclasses import replace

    return replace(SMALL, **settings)
