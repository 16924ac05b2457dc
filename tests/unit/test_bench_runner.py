# SPDX-License-Identifier: MIT
"""The rounds of a benchmark, against stand-in drivers that answer without measuring anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from copal.bench.process import Driver, DriverFailedError, child_environment
from copal.bench.runner import (
    Cell,
    Measured,
    absent_rows,
    cost_slower,
    interleave,
    rate_slower,
    ratio,
)

STAND_IN = """
import json, os, sys
name, journal, costs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
print(json.dumps({"ready": True, "versions": {name: "1"}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    with open(journal, "a") as file:
        file.write(f"{name} {request['op']} {request['n']}\\n")
    cost = costs.pop(0) if len(costs) > 1 else costs[0]
    print(json.dumps({**request, "us": cost} if cost else {"absent": "gave up"}), flush=True)
"""


def python(code: str, *arguments: str) -> list[str]:
    """A command that runs a piece of Python."""
    return [sys.executable, "-c", code, *arguments]


def stand_in(name: str, journal: Path, costs: str) -> Driver:
    """A driver that answers `costs` one after the other and notes each request."""
    return Driver(name, python(STAND_IN, name, str(journal), costs))


def test_every_cell_is_measured_once_a_round_in_a_turning_order(tmp_path: Path) -> None:
    """Neighbours in time are compared, and nobody is always first."""
    journal = tmp_path / "journal"
    drivers = [stand_in(name, journal, "[5.0]") for name in ("copal-cpu", "b", "c")]
    cells = [Cell("cycle", 32), Cell("sample", 256)]
    measured = interleave(drivers, cells, rounds=3, setup_timeout_s=60)
    assert journal.read_text().splitlines() == [
        f"{name} {op}"
        for order in (("copal-cpu", "b", "c"), ("b", "c", "copal-cpu"), ("c", "copal-cpu", "b"))
        for op in ("cycle 32", "sample 256")
        for name in order
    ]
    assert {key: len(answers) for key, answers in measured.values.items()} == {
        (name, cell): 3 for name in ("copal-cpu", "b", "c") for cell in cells
    }
    assert measured.versions["b"] == {"b": "1"}


def test_ratio_is_the_median_of_the_ratios_within_each_round(tmp_path: Path) -> None:
    """A machine that gets ten times slower in the middle of a run changes no ratio."""
    drivers = [
        stand_in("copal-cpu", tmp_path / "j", "[10.0, 100.0, 10.0]"),
        stand_in("peer", tmp_path / "j", "[30.0, 200.0, 40.0]"),
    ]
    cell = Cell("cycle", 32)
    measured = interleave(drivers, [cell], rounds=3, setup_timeout_s=60)
    assert ratio(measured, "peer", cell, "us", cost_slower) == 3.0
    assert ratio(measured, "copal-cpu", cell, "us", cost_slower) == 1.0


def test_rates_compare_the_other_way_round() -> None:
    """A ratio above 1 says that a row is slower than copal, for costs and for rates."""
    cell = Cell("rate", 1.0)
    measured = Measured(
        values={
            ("copal-cpu", cell): [{"env_steps_per_s": 3000.0}],
            ("peer", cell): [{"env_steps_per_s": 500.0}],
        }
    )
    assert ratio(measured, "peer", cell, "env_steps_per_s", rate_slower) == 6.0


def test_without_a_baseline_there_is_no_ratio(tmp_path: Path) -> None:
    """A figure alone is still a figure."""
    cell = Cell("cycle", 32)
    measured = interleave([stand_in("peer", tmp_path / "j", "[3.0]")], [cell], 1, 60)
    assert measured.values[("peer", cell)][0]["us"] == 3.0
    assert ratio(measured, "peer", cell, "us", cost_slower) is None


def test_a_driver_that_gives_up_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    """Its reason is kept, its earlier answers too."""
    drivers = [
        stand_in("copal-cpu", tmp_path / "j", "[1.0]"),
        stand_in("peer", tmp_path / "j", "[2.0, 0]"),
    ]
    cell = Cell("cycle", 32)
    measured = interleave(drivers, [cell], rounds=3, setup_timeout_s=60)
    assert absent_rows(measured, rows=8) == [{"name": "peer", "rows": 8, "absent": "gave up"}]
    assert len(measured.values[("copal-cpu", cell)]) == 3
    assert len(measured.values[("peer", cell)]) == 1


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (python("raise ImportError('no such peer')"), "ImportError: no such peer"),
        (python("print('hello', flush=True)"), "not JSON: hello"),
        (python("import time; time.sleep(600)"), "set up: no answer within 0.3 s"),
        (["/nowhere/python"], "No such file"),
    ],
    ids=["import", "noise", "silence", "missing"],
)
def test_a_driver_that_cannot_start_says_why(command: list[str], reason: str) -> None:
    """The reason names what happened; the process is gone afterwards."""
    with Driver("peer", command) as driver, pytest.raises(DriverFailedError) as failed:
        driver.start(timeout_s=0.3 if "sleep" in command[-1] else 60)
    assert reason in str(failed.value)


def test_a_driver_that_dies_between_requests_is_noticed(tmp_path: Path) -> None:
    """A request to a dead process fails with its last words, it does not hang."""
    code = "print('{\"ready\": true}', flush=True); input(); raise MemoryError('full')"
    with Driver("peer", python(code)) as driver:
        driver.start(60)
        with pytest.raises(DriverFailedError, match="MemoryError: full"):
            driver.request("cycle", 32, timeout_s=60)
        with pytest.raises(DriverFailedError):
            driver.request("cycle", 32, timeout_s=60)


def test_a_request_before_the_start_is_refused() -> None:
    """There is nothing to ask."""
    with pytest.raises(DriverFailedError, match="not running"):
        Driver("peer", python("")).request("cycle", 32, timeout_s=1)


def test_children_run_one_thread_with_default_kernels() -> None:
    """Variables that would change NumPy's kernels or mix environments do not reach a child."""
    child = child_environment(
        {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "1", "PYTHONPATH": "x", "PATH": "p"}
    )
    assert child == {
        "PATH": "p",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
