# SPDX-License-Identifier: MIT
"""NVRTC: the cache, the figures, the errors. No GPU."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from copal.errors import BackendUnavailableError, ConfigError, GpuCompileError
from copal.gpu import compiler
from copal.gpu.device import Unit

GOOD = """
extern "C" __global__ void __launch_bounds__(64) scale(float* x, int n) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n) x[threadIdx.x] = 2.f * tile[63 - threadIdx.x];
}
extern "C" __global__ void fill(float* x) { x[threadIdx.x] = 1.f; }
"""
UNIT = Unit("example", GOOD, ("scale", "fill"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("COPAL_CACHE", str(tmp_path))
    return tmp_path / "gpu"


@pytest.mark.parametrize("architecture", compiler.ARCHITECTURES)
def test_figures_of_every_kernel(architecture: str) -> None:
    """Registers, spills, stack and shared memory; PTX and machine code for the architecture."""
    compiled = compiler.compile_unit(UNIT, architecture)
    assert set(compiled.resources) == {"scale", "fill"}
    scale = compiled.resources["scale"]
    assert (scale.shared_bytes, scale.spill_bytes, scale.stack_bytes) == (256, 0, 0)
    assert 4 <= scale.registers <= 32
    assert compiled.resources["fill"].shared_bytes == 0
    assert f".target {architecture}" in compiled.ptx
    assert compiled.cubin.read_bytes()[:4] == b"\x7fELF"


def test_second_compilation_is_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By source and architecture; nothing unfinished is left."""
    first = compiler.compile_unit(UNIT, "sm_90")
    other = compiler.compile_unit(UNIT, "sm_80")
    changed = compiler.compile_unit(Unit("example", GOOD + "\n", UNIT.kernels), "sm_90")
    assert len({first.cubin, other.cubin, changed.cubin}) == 3

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "_compile", refuse)
    assert compiler.compile_unit(UNIT, "sm_90") == first
    assert sorted(p.name for p in cache.iterdir() if p.is_dir()) == sorted(
        c.cubin.parent.name for c in (first, other, changed)
    )


def test_a_killed_compilation_is_swept(cache: Path) -> None:
    """By the next one of the same unit."""
    kept = compiler.compile_unit(UNIT, "sm_90").cubin.parent
    shutil.rmtree(kept)
    kept.with_name(f"{kept.name}.abc").mkdir()
    assert compiler.compile_unit(UNIT, "sm_90").cubin.parent == kept
    assert [p for p in cache.iterdir() if p.is_dir()] == [kept]


def test_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is named; nothing of the kernels stays there."""

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compiler, "_compile", full)
    with pytest.raises(ConfigError, match=r"`COPAL_CACHE`.*No space left"):
        compiler.compile_unit(UNIT, "sm_90")
    assert [p.suffix for p in cache.iterdir()] == [".lock"]


def test_error_names_kernel_file_and_line(cache: Path) -> None:
    """The generated source is kept and the line is the one with the error."""
    source = GOOD.replace("x[threadIdx.x] = 1.f", "\n  y[threadIdx.x] = 1.f")
    with pytest.raises(GpuCompileError, match='identifier "y" is undefined') as caught:
        compiler.compile_unit(Unit("example", source, UNIT.kernels), "sm_90")
    assert caught.value.field == "fill"
    assert "sm_90" in caught.value.expected
    place = caught.value.got.split(": ")[0]
    file, line = place.rsplit(":", 1)
    assert Path(file).parent == cache / "failed"
    assert "y[threadIdx.x]" in Path(file).read_text().splitlines()[int(line) - 1]
    assert [p.name for p in cache.iterdir() if p.is_dir()] == ["failed"]


def test_error_of_the_assembler() -> None:
    """A kernel with more shared memory than there is: named by the assembler, without a line."""
    source = GOOD.replace("tile[64]", "tile[64000]")
    with pytest.raises(GpuCompileError, match="shared") as caught:
        compiler.compile_unit(Unit("example", source, UNIT.kernels), "sm_90")
    assert caught.value.field == "scale"


def test_function_of_a_line() -> None:
    """The last one that began, kernels and device functions alike."""
    lines = GOOD.splitlines()
    assert compiler.function_at(GOOD, 1) is None
    assert compiler.function_at(GOOD, 5) == "scale"
    assert compiler.function_at(GOOD, len(lines)) == "fill"
    helper = "template <int N>\nCOPAL_DEVICE float4 load(const float* p) {\n  return p[0];\n}\n"
    assert compiler.function_at(helper, 3) == "load"


def test_nvrtc_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed error with the command, for the package and for the library."""

    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(compiler.importlib, "import_module", absent)
    with pytest.raises(BackendUnavailableError, match="cuda-bindings is not installed") as caught:
        compiler.compile_unit(UNIT, "sm_90")
    assert "pip install 'copal-rl[gpu]'" in caught.value.hint
    assert "not installed" in str(compiler.missing())

    class NoLibrary:
        @staticmethod
        def nvrtcVersion() -> None:  # noqa: N802
            raise RuntimeError("Failed to load libnvrtc\nsearched: here")

    monkeypatch.setattr(compiler.importlib, "import_module", lambda _: NoLibrary)
    with pytest.raises(BackendUnavailableError, match=r"cannot be loaded \(Failed to load"):
        compiler.compile_unit(UNIT, "sm_90")


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [((8, 0), "sm_80"), ((9, 0), "sm_90"), ((12, 0), "sm_120"), ((8, 6), "sm_86")],
)
def test_architecture_of_a_gpu(capability: tuple[int, int], architecture: str) -> None:
    """Its own."""
    assert compiler.target(capability) == architecture


def test_gpu_that_nvrtc_does_not_know() -> None:
    """An older one is refused; a later minor number gets the code of an earlier one."""
    assert compiler.target((8, 5)) == "sm_80"
    with pytest.raises(BackendUnavailableError, match=r"got 6\.1"):
        compiler.target((6, 1))
