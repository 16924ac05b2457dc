# SPDX-License-Identifier: MIT
"""The CUDA device over a CuPy that interprets PTX: order, graphs, copies, errors."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from copal.errors import BackendUnavailableError, GpuError, GpuMemoryError
from copal.gpu import status
from copal.gpu.cupy_device import CupyDevice
from copal.gpu.device import Launch, Pointer, Unit
from fake_cupy import FakeCupy, install

SOURCE = """
extern "C" __global__ void scale(float* x, const float* y, int n) {
  extern __shared__ float tile[];
  const int i = blockIdx.x * 32 + threadIdx.x;
  if (i < n) tile[threadIdx.x] = y[i];
  __syncthreads();
  if (i < n) x[i] = x[i] * 2.f + tile[threadIdx.x];
}
"""
UNIT = Unit("example", SOURCE, ("scale",))
N = 50


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """In the place of CuPy, with one GPU."""
    return install(monkeypatch, 2**20)


@pytest.fixture
def device(cupy: FakeCupy) -> Iterator[CupyDevice]:
    """Open, with the example's kernel."""
    opened = CupyDevice()
    opened.load(UNIT)
    yield opened
    opened.close()


class Case:
    """Two vectors on the device and a launch of the kernel."""

    def __init__(self, device: CupyDevice, rng: np.random.Generator) -> None:
        self.x, self.y = (device.allocate(name, 4 * N) for name in "xy")
        self.values = rng.standard_normal((2, N)).astype(np.float32)
        device.upload(Pointer(self.x), self.values[0])
        device.upload(Pointer(self.y), self.values[1])
        arguments = (Pointer(self.x), Pointer(self.y), N)
        self.launch = Launch("scale", (2, 1), 32, 128, arguments)
        self.out = device.pinned(4 * N).view(np.float32)

    def after(self, times: int) -> np.ndarray:
        x = self.values[0]
        for _ in range(times):
            x = x * np.float32(2) + self.values[1]
        return x


def test_limits(device: CupyDevice) -> None:
    """Of the GPU, and the architecture that is compiled for."""
    assert device.limits.architecture == "sm_90"
    assert (device.limits.shared_bytes, device.limits.multiprocessors) == (232448, 132)
    assert device.name == "cuda"


def test_memory_starts_as_zeros(device: CupyDevice) -> None:
    """Of the device and of the host, although fresh memory holds garbage."""
    out = device.pinned(64)
    assert not out.any()
    out[:] = 9
    device.download(out, Pointer(device.allocate("new", 64)))
    device.mark().wait()
    assert not out.any()


def test_kernels_and_copies_run_in_order(device: CupyDevice, rng: np.random.Generator) -> None:
    """Nothing has happened before the wait; everything has after it."""
    case = Case(device, rng)
    device.launch([case.launch, case.launch])
    device.download(case.out, Pointer(case.x))
    assert not case.out.any()
    device.mark().wait()
    np.testing.assert_array_equal(case.out, case.after(2))


def test_wait_for_a_point_leaves_later_work(device: CupyDevice, rng: np.random.Generator) -> None:
    """So the host prepares the next batch while the device works."""
    case = Case(device, rng)
    device.launch([case.launch])
    device.download(case.out, Pointer(case.x))
    first = device.mark()
    second = device.pinned(4 * N).view(np.float32)
    device.launch([case.launch])
    device.download(second, Pointer(case.x))
    first.wait()
    np.testing.assert_array_equal(case.out, case.after(1))
    assert not second.any()
    device.mark().wait()
    np.testing.assert_array_equal(second, case.after(2))


def test_graph(device: CupyDevice, cupy: FakeCupy, rng: np.random.Generator) -> None:
    """Capturing runs nothing; each replay runs all, with what pinned memory then holds."""
    case = Case(device, rng)
    given = device.pinned(4 * N).view(np.float32)

    def record() -> None:
        device.upload(Pointer(case.x), given)
        device.launch([case.launch, case.launch])
        device.download(case.out, Pointer(case.x))

    graph = device.capture(record)
    device.mark().wait()
    assert cupy.launched == []
    for _ in range(3):
        case.values[0] = given[:] = rng.standard_normal(N)
        graph.replay()
        device.mark().wait()
        np.testing.assert_array_equal(case.out, case.after(2))
    assert cupy.launched == ["scale"] * 6


def test_capture_that_fails(device: CupyDevice, rng: np.random.Generator) -> None:
    """Memory cannot be had while capturing; the device works on afterwards."""
    case = Case(device, rng)
    with pytest.raises(GpuError, match="while a stream captures"):
        device.capture(lambda: device.allocate("inside", 16))
    with pytest.raises(GpuError, match="pageable"):
        device.capture(lambda: device.upload(Pointer(case.x), case.values[0]))
    device.launch([case.launch])
    device.download(case.out, Pointer(case.x))
    device.mark().wait()
    np.testing.assert_array_equal(case.out, case.after(1))


def test_out_of_memory(device: CupyDevice) -> None:
    """What was asked for, what is free, and which knob to turn; smaller buffers still fit."""
    device.allocate("small", 2**18)
    with pytest.raises(GpuMemoryError, match=r"2\.0 MiB of device memory.*0\.8 MiB free") as caught:
        device.allocate("share of the gradient", 2**21)
    assert caught.value.field == "share of the gradient"
    assert "0.2 MiB held" in caught.value.got
    assert "`batch_size`" in caught.value.hint
    device.allocate("small", 2**18)


def test_copies_that_do_not_fit(device: CupyDevice) -> None:
    """Named with the buffer, before anything is written."""
    buffer = device.allocate("short", 64)
    with pytest.raises(GpuError, match="`short`: expected at most 64 bytes"):
        device.upload(Pointer(buffer, 32), np.zeros(9, np.float32))
    with pytest.raises(GpuError, match="at byte -4"):
        device.download(np.zeros(1, np.float32), Pointer(buffer, -4))
    with pytest.raises(GpuError, match="contiguous"):
        device.upload(Pointer(buffer), np.zeros((4, 4), np.float32)[:, ::2])


def test_kernel_that_is_not_loaded(device: CupyDevice) -> None:
    """Named, with those that are; too much shared memory is refused by the driver."""
    with pytest.raises(GpuError, match=r"`other`.*scale"):
        device.launch([Launch("other", (1, 1), 32, 0, ())])
    with pytest.raises(GpuError, match="CUDA_ERROR_INVALID_VALUE"):
        device.launch([Launch("scale", (1, 1), 32, 232452, ())])


def test_illegal_access(device: CupyDevice, rng: np.random.Generator) -> None:
    """Raised at the wait, with the command that finds the access."""
    case = Case(device, rng)
    arguments = (Pointer(case.x), Pointer(case.y), 64)
    device.launch([Launch("scale", (2, 1), 32, 128, arguments)])
    event = device.mark()
    with pytest.raises(GpuError, match="illegal memory access") as caught:
        event.wait()
    assert "compute-sanitizer" in caught.value.hint


def test_exchange_with_another_library(
    cupy: FakeCupy, device: CupyDevice, rng: np.random.Generator
) -> None:
    """A copy waits for the stream that makes the tensor; a view shares the memory."""
    case = Case(device, rng)
    tensor = cupy.tensor(np.zeros(N, np.float32))
    theirs = cupy.cuda.Stream.of(77)
    fresh = rng.standard_normal(N).astype(np.float32)
    theirs.add(lambda: tensor.values.__setitem__(slice(None), fresh))
    device.accept(Pointer(case.x), tensor, stream=77)
    device.mark().wait()
    view = device.view(Pointer(case.x, 8), (2, 3), np.float32)
    np.testing.assert_array_equal(view, fresh[2:8].reshape(2, 3))
    with pytest.raises(GpuError, match="contiguous"):
        device.accept(Pointer(case.x), _strided(cupy))
    with pytest.raises(GpuError, match="at most 200 bytes"):
        device.accept(Pointer(case.x), cupy.tensor(np.zeros(51, "f4")))


def _strided(cupy: FakeCupy) -> object:
    tensor = cupy.tensor(np.zeros((4, 4), "f4"))
    tensor.values = tensor.values[:, ::2]
    return tensor


def test_stream_of_another_library(cupy: FakeCupy, rng: np.random.Generator) -> None:
    """Work goes to PyTorch's stream, behind what is there, when its address is given."""
    device = CupyDevice(stream=4711)
    device.load(UNIT)
    case = Case(device, rng)
    device.launch([case.launch])
    assert len(cupy.streams[4711].queue) == 5
    assert list(cupy.streams) == [4711]
    device.close()


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed error with the reason and what works without one; CuPy is not imported."""
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(status, "status", lambda: status.Status("no NVIDIA driver: install one"))
    with pytest.raises(BackendUnavailableError, match="no NVIDIA driver") as caught:
        CupyDevice()
    assert "`--device emulate`" in caught.value.hint
    assert "cupy" not in sys.modules


def test_no_such_gpu(cupy: FakeCupy) -> None:
    """Only those that are visible have numbers."""
    with pytest.raises(BackendUnavailableError, match="expected 0 to 0, got 3"):
        CupyDevice(3)


def test_close_twice(device: CupyDevice) -> None:
    """The second one does nothing."""
    device.close()
    device.close()


def test_real_cupy_has_what_is_called() -> None:
    """Where CuPy is installed, the names that the fake one stands for exist."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import cupy

    for name in ("from_external", "begin_capture", "end_capture", "wait_event", "synchronize"):
        assert hasattr(cupy.cuda.Stream, name)
    for name in ("memcpyAsync", "memcpyHostToDevice", "memcpyDeviceToHost", "memcpyDeviceToDevice",
                 "memGetInfo", "CUDARuntimeError"):  # fmt: skip
        assert hasattr(cupy.cuda.runtime, name)
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
    assert issubclass(cupy.cuda.driver.CUDADriverError, Exception)
    assert hasattr(cupy.cuda.Graph, "launch")
    assert hasattr(cupy.RawModule, "get_function")
    assert hasattr(cupy.RawKernel, "max_dynamic_shared_size_bytes")
    assert Path(cupy.__file__).exists()
