# SPDX-License-Identifier: MIT
"""Test benches of the RTL, a short set: small engines, short soaks; `make sim` runs all."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from copal import cli
from copal.errors import BackendUnavailableError, UnknownNameError
from copal.fpga import simulate, tools

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("port", "vec", "engine")
"""Devices under test of every test run; the others run in `make sim`."""


@pytest.mark.parametrize("name", SHORT)
def test_device_under_test_passes(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Every cocotb test of the device passes under fresh random stalls."""
    seed = int(rng.integers(1 << 31))
    config = simulate.SimulateConfig(seconds=0.5, out=tmp_path)
    result = simulate.simulate(name, config, seed)
    text = result.log.read_text(errors="replace")
    assert result.failed == 0, f"seed {seed}\n{text[-4000:]}"
    assert result.tests >= 1


def test_every_device_has_its_test_bench() -> None:
    """Each device under test has a folder with a test module, and there are no other folders."""
    folders = {p.parent.name for p in (ROOT / "sim").glob("*/test_*.py")}
    benches = {dut.bench for dut in simulate.DUTS.values()}
    assert folders == benches
    for name in benches:
        assert (ROOT / "sim" / name / f"test_{name}.py").is_file()


def test_a_simulation_that_ends_early_counts_as_failed(tmp_path: Path) -> None:
    """No results file: one test, one failure."""
    assert simulate._counts(tmp_path / "results.xml") == (1, 1)


def test_failed_tests_are_counted(tmp_path: Path) -> None:
    """Failures and errors count, whatever their suite; no test at all is a failure too."""
    path = tmp_path / "results.xml"
    path.write_text(
        "<testsuites><testsuite><testcase/><testcase><failure/></testcase></testsuite>"
        "<testsuite><testcase><error/></testcase></testsuite></testsuites>"
    )
    assert simulate._counts(path) == (3, 2)
    path.write_text("<testsuites/>")
    assert simulate._counts(path) == (1, 1)


def test_missing_tools_are_named_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 3, the packages that are missing, and how to get them."""
    found = importlib.util.find_spec
    hidden = {"xls", "cocotb"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in hidden else found(name)
    )
    with pytest.raises(BackendUnavailableError, match="xls-python, cocotb not installed") as error:
        simulate.run(simulate.SimulateConfig(dut="port"))
    assert error.value.exit_code == 3
    assert tools.PIP in str(error.value)


def test_missing_compilers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that pip does not have are asked of the system."""
    monkeypatch.setattr(tools.shutil, "which", lambda _: None)
    reason = tools.missing([], ["g++", "make"])
    assert reason == "g++, make not found: apt-get install g++ make"


def test_unknown_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name lists the near ones."""
    with pytest.raises(UnknownNameError, match="`port`"):
        simulate.run(simulate.SimulateConfig(dut="prt"))
    assert cli.main(["simulate", "--dut", "prt"]) == 2
    for seconds in ("-1", "nan", "inf"):
        assert cli.main(["simulate", "--seconds", seconds]) == 2
    assert "port" in capsys.readouterr().err
