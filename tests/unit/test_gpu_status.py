# SPDX-License-Identifier: MIT
"""Why a GPU cannot be used: every reason by name, and a process that hangs or dies."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copal.gpu import compiler, status

GOOD = {
    "cupy": "14.2.0",
    "driver": 13010,
    "runtime": 13020,
    "gpus": [["NVIDIA H200", 9, 0, 132, 150_000_000_000]],
}


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No answer is left over, in either direction; the user's choice of a GPU plays no part."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    status.status.cache_clear()
    yield
    status.status.cache_clear()


def _cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Puts a module `cupy` in front of any other, also for child processes."""
    (tmp_path / "cupy.py").write_text(text)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(compiler, "missing", lambda: None)


FAKE = """
__version__ = "14.2.0"
class cuda:
    class runtime:
        driverGetVersion = staticmethod(lambda: {driver})
        runtimeGetVersion = staticmethod(lambda: 13020)
        @staticmethod
        def getDeviceCount():
            {count}
        getDeviceProperties = staticmethod(lambda number: dict(
            name=b"Test GPU", major=9, minor=0, multiProcessorCount=7, totalGlobalMem=10**9))
"""


def test_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reason, and the GPUs; asked once, and CuPy stays out of this process."""
    _cupy(tmp_path, monkeypatch, FAKE.format(driver=13020, count="return 2"))
    found = status.status()
    assert found.reason is None
    assert found.gpus == (status.Gpu("Test GPU", (9, 0), 7, 10**9),) * 2
    assert "cupy" not in sys.modules
    monkeypatch.setattr(subprocess, "run", None)
    assert status.unavailable() is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FAKE.format(driver=0, count="raise RuntimeError('insufficient')"), "no NVIDIA driver"),
        (
            "raise ImportError('libnvrtc.so.13: not found')",
            r"cannot be imported \(ImportE",
        ),
        ("import os; os._exit(3)", r"ended its process \(exit status 3\)"),
        ("import os, sys; sys.stderr.write('bad\\nworse\\n'); os.abort()", r"process \(worse\)"),
        (FAKE.format(driver=13020, count="return 0"), "a driver but no GPU"),
        (FAKE.format(driver=12040, count="return 1"), r"too old: it has CUDA 12\.4, CuPy 14\.2\.0"),
    ],
)
def test_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    """Each cause is told from the others, whatever CuPy does to its process."""
    _cupy(tmp_path, monkeypatch, text)
    assert re.search(reason, str(status.unavailable()))


def test_driver_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after a time."""
    _cupy(tmp_path, monkeypatch, "import threading; threading.Event().wait()")
    monkeypatch.setattr(status, "TIMEOUT_S", 1.0)
    assert "did not answer within 1 s" in str(status.unavailable())


def test_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy first, then NVRTC; both with the command, and nothing is started."""
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setattr(status.importlib.util, "find_spec", lambda _: None)
    assert status.unavailable() == "CuPy is not installed: pip install 'copal-rl[gpu]'"
    status.status.cache_clear()
    monkeypatch.setattr(status.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(compiler, "missing", lambda: "cuda-bindings is not installed: pip ...")
    assert str(status.unavailable()).startswith("cuda-bindings is not installed")


def test_gpu_that_is_too_old() -> None:
    """Named with what it has and what is needed."""
    found = status.judge({**GOOD, "gpus": [["Tesla T4", 7, 5, 40, 10**10]]})
    assert found.reason == "Tesla T4 is too old: compute capability 7.5, 8.0 is needed"
    assert found.gpus[0].capability == (7, 5)


def test_newer_driver_than_cupy_and_older_minor() -> None:
    """Only the major version of CUDA counts."""
    assert status.judge(GOOD).reason is None
    assert status.judge({**GOOD, "driver": 14000}).reason is None


def test_gpu_hidden_by_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that hides it is named with its value."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    found = status.judge({**GOOD, "gpus": [], "error": "cudaErrorNoDevice"})
    assert "(cudaErrorNoDevice): CUDA_VISIBLE_DEVICES is `-1`" in str(found.reason)


def test_driver_that_refuses() -> None:
    """Its own words."""
    assert "unknown error" in str(status.judge({**GOOD, "error": "unknown error"}).reason)
