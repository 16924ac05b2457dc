# SPDX-License-Identifier: MIT
"""The GPU check: what it judges, what it leaves empty, and its timing code over a fake CuPy."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from copal.bench import gpu_check
from copal.bench.gpu import correct, replay, sanitizer, update
from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.errors import ConfigError, UnknownNameError
from copal.gpu import learner, source, status
from copal.gpu.device import Pointer, Unit
from copal.gpu.emulate import EmulatedDevice
from fake_cupy import FakeCupy, install

SHORT = ("--device", "emulate", "--algos", "dqn", "--batch-sizes", "256", "--widths", "256")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """A GPU that interprets PTX."""
    return install(monkeypatch, 2**28)


def test_check_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compared with float64 on the CPU; figures that need a GPU are counted, none is guessed."""
    file = tmp_path / "check.json"
    assert gpu_check.main([*SHORT, "--json", str(file), "--seed", "7"]) == 0
    shown = capsys.readouterr().out.splitlines()
    report = json.loads(file.read_text())
    compared = [row for row in report["rows"] if row["part"] == "correct"]
    assert [row["seed"] for row in compared] == [correct.STORED_SEED, 7]
    for row in compared:
        assert row["ok"]
        assert row["same_bits"]
        assert 0 < max(row["gradient"], row["td_error"], row["parameters"]) < 1e-5
    others_ = [row for row in report["rows"] if row["part"] != "correct"]
    assert {row["part"] for row in others_} == {"update", "replay", "train", "sanitize"}
    assert all(row["absent"] == NOT_MEASURED for row in others_)
    assert len(shown) == 2 + len(compared) + 1
    assert shown[-1].startswith(f"{len(others_)} further figures: {NOT_MEASURED}")
    assert not any(NOT_MEASURED in line for line in shown[:-1])
    assert (report["machine"]["device"], report["machine"]["seed"]) == ("emulate", 7)


def test_wrong_kernel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A relu that lets everything through is found, named in the table, and exits with 1."""

    def broken(plan: Any) -> Unit:
        good = source.unit(plan)
        assert "v < 0.f ? 0.f : v" in good.source
        return Unit(good.name, good.source.replace("v < 0.f ? 0.f : v", "v"), good.kernels)

    monkeypatch.setattr(learner, "unit", broken)
    assert gpu_check.main([*SHORT, "--parts", "correct", "--json", "None"]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("WRONG") == 2
    assert "something is WRONG" in printed.err


@pytest.mark.parametrize("key", ["gradient", "td_error", "parameters", "same_bits"])
def test_every_error_is_judged(key: str) -> None:
    """Too large, NaN or other bits: each alone is wrong; a device that fails is too."""
    good = {"gradient": 1e-7, "td_error": 1e-7, "parameters": 1e-7, "same_bits": True}
    assert correct._judged(good)["ok"]
    for bad in (1e-4, float("nan")):
        assert not correct._judged({**good, key: False if key == "same_bits" else bad})["ok"]
    assert not correct._judged({"absent": "illegal memory access"})["ok"]
    assert correct._judged({"absent": "no time left"})["ok"]


def test_poisoned_memory() -> None:
    """Fresh memory holds NaN, and the device's other calls are its own."""
    device: Any = correct.Poisoned(EmulatedDevice())
    found = np.zeros(4, np.float32)
    device.download(found, Pointer(device.allocate("new", 16)))
    device.mark().wait()
    assert np.isnan(found).all()
    assert device.name == "emulate"
    device.close()


def test_time_runs_out() -> None:
    """What does not fit is a line that says so; what fails does not lose the others."""
    now = [0.0]
    budget = Budget(10, lambda: now[0])
    assert list(budget.rows({"a": 1}, 5, lambda: {"us": 2.0})) == [{"a": 1, "us": 2.0}]

    def fail() -> dict[str, Any]:
        raise RuntimeError("out of memory\nat line 3")

    assert list(budget.rows({"a": 1}, 5, fail)) == [{"a": 1, "absent": "out of memory"}]
    now[0] = 6
    assert list(budget.rows({"a": 1}, 5, fail)) == [{"a": 1, "absent": "no time left"}]
    now[0] = 60
    assert budget.left_s == 0


def test_update_times(cuda: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours by events on the device, theirs with the reason where torch sees no GPU."""
    monkeypatch.setattr(update, "_BLOCK_US", 1.0)
    monkeypatch.setattr(update, "_BLOCKS", 2)
    monkeypatch.setattr(update, "MANY", 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = GpuCheck(batch_sizes=(9,), widths=(12,))
    rows = list(update.rows(config, Budget(1000)))
    assert [row["name"] for row in rows] == [*update.OURS, *update.THEIRS[:2]]
    for row in rows[:3]:
        assert row["us_min"] <= row["us"]
        assert row["ratio"] > 0
    assert rows[0]["ratio"] == 1
    assert all("sees no CUDA GPU" in row["absent"] for row in rows[3:])
    assert "gradient_0" in cuda.launched
    assert "relative" not in gpu_check.table(rows)


def test_replay_times(cuda: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours on the device and on the CPU; TorchRL's with the reason where it is missing."""
    for name, value in {"ROWS": 70, "BATCH_SIZE": 9, "_BLOCK_S": 1e-4}.items():
        monkeypatch.setattr(replay, name, value)
    monkeypatch.setitem(sys.modules, "tensordict", None)
    rows = list(replay.rows(GpuCheck(), Budget(1000)))
    assert [row["name"] for row in rows] == list(replay.NAMES)
    assert all(0 < row["us_min"] <= row["us"] for row in rows[:2]), rows
    assert "tensordict" in rows[2]["absent"]
    assert {"replay_draw", "replay_set"} <= set(cuda.launched)


def test_correctness_on_a_cuda_device(cuda: FakeCupy) -> None:
    """The same comparison through CuPy's face, with PTX that is interpreted."""
    config = GpuCheck(algos=("dqn",), small=True)
    rows = list(correct.rows(config, Budget(1000), 11))
    assert [row["ok"] for row in rows] == [True, True], rows


def test_no_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3, the reason, and what works without one."""
    monkeypatch.setattr(status, "status", lambda: status.Status("no NVIDIA driver: install one"))
    assert gpu_check.main([]) == 3
    error = capsys.readouterr().err
    assert "no NVIDIA driver" in error
    assert "--device emulate" in error


@pytest.mark.parametrize(
    ("output", "figures"),
    [
        ("echo '========= ERROR SUMMARY: 0 errors'", {"errors": 0, "ok": True}),
        ("echo 'ERROR SUMMARY: 3 errors'; exit 1", {"errors": 3, "ok": False}),
        ("echo 'RACECHECK SUMMARY: 2 hazards displayed (2 errors)'", {"errors": 2, "ok": False}),
        ("echo 'ERROR SUMMARY: 0 errors'; exit 1", {"errors": 0, "ok": False}),
        ("echo 'no such option'", {"absent": "no such option", "ok": False}),
    ],
)
def test_sanitizer(tmp_path: Path, output: str, figures: dict[str, Any]) -> None:
    """Its count of errors and its exit status both count."""
    assert sanitizer.sanitize(_sanitizer(tmp_path, output), "memcheck", 60.0) == figures


def test_sanitizer_that_hangs(tmp_path: Path) -> None:
    """It is given up, and nothing is said to be wrong."""
    program = _sanitizer(tmp_path, "exec sleep 60")
    figures = {"absent": "not finished within 1 s", "ok": True}
    assert sanitizer.sanitize(program, "memcheck", 1.0) == figures


def _sanitizer(folder: Path, script: str) -> str:
    """A program in the place of compute-sanitizer."""
    program = folder / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_sanitizer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each tool, and nothing is wrong."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    rows = list(sanitizer.rows(GpuCheck(), Budget(100)))
    assert [row["name"].split()[-1] for row in rows] == list(sanitizer.TOOLS)
    assert gpu_check.right(rows)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"device": "tpu"}, UnknownNameError),
        ({"parts": ("speed",)}, UnknownNameError),
        ({"algos": ("ppo",)}, UnknownNameError),
        ({"batch_sizes": ()}, ConfigError),
        ({"widths": (0,)}, ConfigError),
        ({"budget_s": 0}, ConfigError),
        ({"seed": -1}, ConfigError),
    ],
)
def test_bad_settings(settings: dict[str, Any], error: type[Exception]) -> None:
    """Named before anything runs."""
    with pytest.raises(error, match=f"`{next(iter(settings))}`"):
        GpuCheck(**settings)
