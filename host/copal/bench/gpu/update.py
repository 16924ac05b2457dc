# SPDX-License-Identifier: MIT
"""Time of a DQN update on a CUDA GPU, by events, beside PyTorch on the same GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from copal.algorithms.base import Built
from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.bench.learner_build import build, random_batch
from copal.bench.runner import say
from copal.bench.table import Row
from copal.gpu.device import GpuDevice, GpuGraph
from copal.gpu.learner import GpuLearner
from copal.gpu.open import open_device
from copal.gpu.plan import PlanOptions, plan

MANY = 8
"""Updates of a graph, and agents side by side, in the rows that have several."""
_BLOCK_US, _BLOCKS = 3000.0, 15
_COPAL_S, _EAGER_S, _COMPILE_S = 8.0, 4.0, 40.0
OURS = ("copal", f"copal, {MANY} updates a graph", f"copal, {MANY} agents")
THEIRS = ("torch eager", "torch eager in a CUDA graph", "torch.compile in a CUDA graph")


class Captured:
    """A device that keeps the graph that was captured last.

    Args:
        device: The device.
    """

    graph: GpuGraph

    def __init__(self, device: GpuDevice) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def capture(self, record: Callable[[], None]) -> GpuGraph:
        """The device's graph."""
        self.graph = self._device.capture(record)
        return self.graph


def rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
    """Times every batch size and width; rows of what cannot be measured say why.

    The graphs hold the copies of the batch to the device and of TD errors back as well; PyTorch
    starts from tensors on the GPU.
    """
    for width in config.widths:
        for batch_size in config.batch_sizes:
            row: Row = {"part": "update", "width": width, "batch_size": batch_size}
            if config.device == "emulate":
                yield from ({**row, "name": n, "absent": NOT_MEASURED} for n in (*OURS, *THEIRS))
                continue
            say(f"update: batch {batch_size}, width {width}")
            yield from _one(row, width, batch_size, budget)


def _one(row: Row, width: int, batch_size: int, budget: Budget) -> Iterator[Row]:
    built = build("dqn", (width, width))
    found: list[Row] = []
    settings = ((OURS[0], 1, 1), (OURS[1], MANY, 1), (OURS[2], 1, MANY))
    for name, updates, agents in settings:
        named = {**row, "name": name}
        found += budget.rows(named, _COPAL_S, partial(_ours, built, batch_size, updates, agents))
    for name, compiled, graph in zip(
        THEIRS, (False, False, True), (False, True, True), strict=True
    ):
        named = {**row, "name": name}
        # Compiling anew for each size would take the whole time: one row and one column do.
        if compiled and width != 256 and batch_size != 256:
            continue
        found += budget.rows(
            named,
            _COMPILE_S if compiled else _EAGER_S,
            partial(_theirs, built, batch_size, compiled=compiled, graph=graph),
        )
    base = next((r["us"] for r in found if r["name"] == OURS[0] and "us" in r), None)
    for one in found:
        if base is not None and "us" in one:
            one["ratio"] = one["us"] / base
        yield one


def _ours(built: Built, batch_size: int, updates: int, agents: int) -> Row:
    device: Any = Captured(open_device("cuda"))
    try:
        options = PlanOptions(agents=agents, shared_bytes=device.limits.shared_bytes)
        planned = plan(built.update, batch_size, options)
        learner = GpuLearner(device, planned, updates=updates)
        for agent in range(agents):
            learner.begin(built.parameters, agent)
        batch = random_batch(built, batch_size)
        learner.run([[batch] * agents] * updates)
        us = blocks_us(device.time_us, device.graph.replay)
        return _figures([value / (updates * agents) for value in us])
    finally:
        device.close()


def _theirs(built: Built, batch_size: int, *, compiled: bool, graph: bool) -> Row:
    import torch

    from copal.bench import learner_torch

    if not torch.cuda.is_available():
        return {"absent": f"torch {torch.__version__} sees no CUDA GPU"}
    batch = random_batch(built, batch_size)
    wrap: Callable[[Any], Any] = torch.compile if compiled else (lambda loss: loss)
    update = learner_torch.Updater(built, batch, wrap=wrap, device="cuda")
    call = learner_torch.graphed(update) if graph else update
    return _figures(blocks_us(_torch_us, call))


def _torch_us(work: Callable[[], None]) -> float:
    """Microseconds on PyTorch's current stream between what is before and behind `work`."""
    import torch

    cuda: Any = torch.cuda
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def blocks_us(
    time_us: Callable[[Callable[[], None]], float], call: Callable[[], None]
) -> list[float]:
    """Microseconds a call, one figure a block of calls that is long enough to time.

    Args:
        time_us: Times what it is given, in microseconds.
        call: What to time.
    """

    def several(count: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                call()

        return work

    time_us(several(3))
    count = max(1, round(_BLOCK_US / max(time_us(several(10)) / 10, 0.1)))
    return [time_us(several(count)) / count for _ in range(_BLOCKS)]


def _figures(us: list[float]) -> Row:
    return {"us": statistics.median(us), "us_min": min(us)}
