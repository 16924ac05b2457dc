# SPDX-License-Identifier: MIT
"""The emulation notices what a GPU would hang on, leave undefined, or do in another order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import algorithm_cases as cases
import numpy as np
import pytest
from cpu_cases import batch as dqn_batch
from cpu_cases import dqn_update
from cpu_cases import parameters as dqn_parameters
from gpu_algorithms import case_of
from gpu_cases import bits, start

from copal.backends.gpu import GpuBackend
from copal.errors import (
    BackendUnavailableError,
    ConfigError,
    GpuCompileError,
    GpuError,
    GpuMemoryError,
)
from copal.gpu import emulate
from copal.gpu.device import Launch, Pointer, Unit
from copal.gpu.emulate import EmulatedDevice

HERE = Path(__file__).parent
BASE = (emulate.builds.root("kernels", "base.cuh") / "kernels" / "base.cuh").read_text()
_WARPS = "const int lane = threadIdx.x % 32;"


def unit(body: str) -> Unit:
    """A unit with one kernel of this body, `float* out` and `int n`."""
    kernel = f'extern "C" __global__ void k(float* out, int n) {{\n{body}\n}}\n'
    return Unit("test", BASE + kernel, ("k",))


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    """A device, closed afterwards."""
    made = EmulatedDevice()
    yield made
    made.close()


def play(
    device: EmulatedDevice, body: str, *, n: int = 0, threads: int = 64, shared: int = 256
) -> np.ndarray:
    """Runs a kernel on two blocks; what it left in `out`, float32 [128]."""
    device.load(unit(body))
    out = device.allocate("out", 512)
    device.launch([Launch("k", (2, 1), threads, shared, (Pointer(out), n))])
    found = np.empty(128, np.float32)
    device.download(found, Pointer(out))
    return found


def test_threads_meet_at_barriers(device: EmulatedDevice) -> None:
    """What another thread wrote before the barrier is there behind it."""
    body = """COPAL_SHARED(memory);
    memory[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = memory[63 - threadIdx.x];"""
    np.testing.assert_array_equal(play(device, body), np.tile(np.arange(63, -1, -1), 2))


def test_lanes_exchange(device: EmulatedDevice) -> None:
    """Shuffles and votes give what the lanes of one's own warp have."""
    body = f"""{_WARPS}
    float v = threadIdx.x;
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    if (__ballot_sync(~0u, lane < 3) != 7u) v = -1;
    out[blockIdx.x * 64 + threadIdx.x] = v + __shfl_sync(~0u, (double)lane, 5);"""
    found = play(device, body)
    assert set(found[:32]) == {sum(range(32)) + 5.0}
    assert set(found[32:64]) == {sum(range(32, 64)) + 5.0}


def test_shared_memory_starts_as_nan_in_every_block(device: EmulatedDevice) -> None:
    """What a block before has left there is gone."""
    body = """COPAL_SHARED(memory);
    out[blockIdx.x * 64 + threadIdx.x] = memory[threadIdx.x];
    memory[threadIdx.x] = 1;"""
    assert np.isnan(play(device, body)).all()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("if (threadIdx.x < 40) __syncthreads();", r"barrier in line \d+ is reached by 40 of 64"),
        ("if (n == 0 && threadIdx.x == 5) return;\n__syncthreads();", "reached by 63 of 64"),
        (
            "if (threadIdx.x < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}",
            "wait at different barriers",
        ),
        ("if (threadIdx.x % 32 < 31) __syncwarp();", "deadlock: 62 threads wait"),
        (
            "if (threadIdx.x < 16) __syncthreads(); else __shfl_xor_sync(~0u, 1, 1);",
            "reached by 16 of 64",
        ),
        ("COPAL_SHARED(memory);\nmemory[64] = 1.f;", "behind 256 bytes of shared memory"),
    ],
)
def test_faults_are_errors_and_never_hang(device: EmulatedDevice, body: str, says: str) -> None:
    """The kernel is named, and the block; the device can be used afterwards."""
    with pytest.raises(GpuError, match=rf"`k`(.|\n)*block \(0, 0\): .*{says}"):
        play(device, body)
    assert play(device, "out[0] = 3.f;")[0] == 3.0


def test_the_device_refuses_what_does_not_fit(device: EmulatedDevice) -> None:
    """Blocks, shared memory, kernels and copies that no GPU would take."""
    device.load(unit("out[0] = n;"))
    out = device.allocate("out", 16)
    for launch, says in (
        (Launch("k", (1, 1), 1056, 0, (Pointer(out), 1)), "1 to 1024"),
        (Launch("k", (1, 1), 32, 10**6, (Pointer(out), 1)), "shared memory"),
        (Launch("other", (1, 1), 32, 0, ()), "one of k"),
    ):
        with pytest.raises(GpuError, match=says):
            device.launch([launch])
    with pytest.raises(GpuError, match="at most 8 bytes"):
        device.upload(Pointer(out, 8), np.zeros(3, np.float32))
    with pytest.raises(GpuError, match="contiguous"):
        device.download(np.zeros((2, 2), np.float32)[:, 0], Pointer(out))
    with pytest.raises(GpuMemoryError, match=r"`too much`.*MiB of memory.*free.*held") as caught:
        device.allocate("too much", 2**44)
    assert "batch_size" in caught.value.hint


def test_a_graph_runs_what_was_recorded_each_time(device: EmulatedDevice) -> None:
    """Nothing runs while it is recorded; copies read what is there at the replay."""
    device.load(unit("out[0] += n;"))
    out, values = device.allocate("out", 4), np.array([5], np.float32)

    def record() -> None:
        device.upload(Pointer(out), values)
        device.launch([Launch("k", (1, 1), 1, 0, (Pointer(out), 2))])
        device.download(values, Pointer(out))

    graph = device.capture(record)
    assert values[0] == 5
    graph.replay()
    graph.replay()
    assert values[0] == 9


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of compiled kernels."""
    monkeypatch.setenv("COPAL_CACHE", str(tmp_path))
    return tmp_path / "gpu"


def test_a_source_that_does_not_compile_is_kept(device: EmulatedDevice, cache: Path) -> None:
    """The error names the kernel and shows the compiler's words, file and line; no half is left."""
    with pytest.raises(GpuCompileError, match="no_such_name") as caught:
        device.load(unit("out[0] = 1;\nout[0] = no_such_name;"))
    assert caught.value.field == "k"
    file, line = caught.value.got.split(": ")[0].rsplit(":", 1)
    assert Path(file).parent == cache / "failed"
    assert "no_such_name" in Path(file).read_text().splitlines()[int(line) - 1]
    assert [p.suffix for p in (cache / "emulate").iterdir()] == [".lock"]


def test_a_compiler_that_crashes_shows_what_it_printed(
    device: EmulatedDevice, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no line then; the source is kept all the same."""
    monkeypatch.setattr(emulate, "COMPILER", "false")
    with pytest.raises(GpuCompileError, match="exit status 1") as caught:
        device.load(unit(""))
    assert Path(caught.value.got.split(": ")[0]).parent == cache / "failed"


def test_a_full_disk_is_no_error_of_the_kernels(
    device: EmulatedDevice, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether Python or the compiler meets it: the cache is named, and nothing is left there."""
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'error writing: No space left on device' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(emulate, "COMPILER", str(compiler))
    with pytest.raises(ConfigError, match=r"`COPAL_CACHE`.*No space left") as caught:
        device.load(unit(""))
    assert "make room" in caught.value.hint
    assert [p.suffix for p in (cache / "emulate").iterdir()] == [".lock"]
    assert not (cache / "failed").exists()


def test_kernels_are_compiled_once(
    device: EmulatedDevice, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed build left is swept, and nothing but the library and its lock stays."""
    device.load(unit("out[0] = 1;"))
    (library,) = (cache / "emulate").glob("*.so")
    library.unlink()
    library.with_name(f"{library.name}.abc").mkdir()
    device.load(unit("out[0] = 1;"))
    assert sorted(p.suffix for p in (cache / "emulate").iterdir()) == [".lock", ".so"]
    monkeypatch.setattr(emulate, "_compile", lambda *_: pytest.fail("compiled again"))
    device.load(unit("out[0] = 1;"))


def test_without_a_compiler_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device says what to install, and nobody is sent to what is not there."""
    assert GpuBackend("cuda").hint
    monkeypatch.setattr(emulate, "COMPILER", "no-such-compiler")
    assert "apt-get install" in str(emulate.unavailable())
    with pytest.raises(BackendUnavailableError, match="no-such-compiler"):
        EmulatedDevice().load(unit(""))
    assert [GpuBackend(name).hint for name in ("emulate", "cuda")] == ["", ""]


class Mutant(EmulatedDevice):
    """A device that changes the kernels before it compiles them."""

    def __init__(self, change: Callable[[str], str], seed: int) -> None:
        super().__init__(seed)
        self._change = change

    def load(self, unit: Unit) -> None:
        source = self._change(unit.source)
        assert source != unit.source
        super().load(replace(unit, source=source))


def barriers(source: str) -> list[re.Match[str]]:
    """The barriers of the first kernel."""
    start_at = source.index("void __launch_bounds__")
    return list(re.compile(r"__syncthreads\(\);").finditer(source, start_at))


def without(source: str, number: int) -> str:
    """The source with one barrier less."""
    found = barriers(source)
    one = found[number % len(found)]
    return source[: one.start()] + source[one.end() :]


@pytest.mark.parametrize(
    "change",
    [
        lambda s: without(s, 0),
        lambda s: without(s, 5),
        lambda s: without(s, 9),
        lambda s: s.replace("v[i] = kept +", "v[i] += 0 * kept +"),
        lambda s: s.replace("r < rows ? load4(x + r * stride) : zero", "load4(x + r * stride)"),
        lambda s: s.replace("sum.w + v.w", "sum.w"),
    ],
    ids=["barrier 0", "barrier 5", "barrier 9", "lost lanes", "rows behind the batch", "a share"],
)
def test_mutants_are_noticed(change: Callable[[str], str]) -> None:
    """A kernel with one fault gives an error or other bits in one of a few orders of threads."""
    rng = np.random.default_rng()
    sizes, rows = (3, 40, 20, 4), 13
    update = dqn_update(sizes)
    vectors, batch = dqn_parameters(update, rng), dqn_batch(sizes, rows, rng)
    good = start(update, vectors, rows)
    good.run([[batch]])
    expected = bits(good)

    def noticed(seed: int) -> bool:
        learner = start(update, vectors, rows, device=Mutant(change, seed))
        try:
            learner.run([[batch]])
        except Exception:  # noqa: BLE001 - of whichever kind
            return True
        return bits(learner) != expected

    assert any(noticed(seed) for seed in range(4))


def sanitizer() -> str | None:
    """Path of the sanitizer's library, None where the compiler has none."""
    found = subprocess.run(
        [emulate.COMPILER, "-print-file-name=libasan.so"],
        check=False, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    return found if Path(found).is_absolute() else None


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, True])
def test_kernels_stay_within_their_memory(tmp_path: Path, fault: bool) -> None:
    """Updates of every algorithm under AddressSanitizer; it does see a write behind a buffer."""
    library = sanitizer()
    if library is None:
        pytest.skip("no AddressSanitizer")
    rng = np.random.default_rng()
    names = ("dqn",) if fault else cases.NAMES
    jobs: dict[str, object] = {"jobs": len(names)}
    for number, name in enumerate(names):
        case = case_of(name)
        jobs[f"{number}/update"] = case.built.update.to_json()
        vectors, batch = cases.parameters(case, rng), cases.batch(case, rng, noise=False)
        jobs |= {f"{number}/parameters/{n}": v for n, v in vectors.items()}
        jobs |= {f"{number}/batch/{n}": v for n, v in batch.items()}
    np.savez(tmp_path / "jobs.npz", **jobs)  # type: ignore[arg-type]
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, HERE / "gpu_sanitized.py", tmp_path / "jobs.npz", *["fault"] * fault],
        check=False, capture_output=True, text=True, env=environment, timeout=240,
    )  # fmt: skip
    if fault:
        assert "heap-buffer-overflow" in done.stderr
        assert done.returncode != 0
    else:
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("ran") == len(names)
