# SPDX-License-Identifier: MIT
"""Time of a draw and of new priorities: the replay on the GPU, copal's on the CPU, TorchRL's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.bench.peers.drivers import replay
from copal.bench.runner import say
from copal.bench.table import Row
from copal.gpu.device import Pointer
from copal.gpu.open import open_device
from copal.gpu.replay import GpuReplay

ROWS, BATCH_SIZE = 1_000_000, 256
NAMES = ("copal on the GPU", "copal-cpu", "torchrl, CUDA tree")
_MEASURE_S = 25.0
_BLOCK_S, _BLOCKS = 0.1, 9


def rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
    """Microseconds of drawing a batch and setting its priorities, in both replays."""
    measures = (_gpu_replay, _own_replay, _torchrl_replay)
    for name, measure in zip(NAMES, measures, strict=True):
        row: Row = {"part": "replay", "name": name, "batch_size": BATCH_SIZE}
        if config.device == "emulate":
            yield {**row, "absent": NOT_MEASURED}
            continue
        say(f"replay: {name}")
        yield from budget.rows(row, _MEASURE_S, measure)


def _gpu_replay() -> Row:
    device = open_device("cuda")
    try:
        random, size = np.random.default_rng(0), replay.OBS_SIZE
        columns = {"obs": (size, "float32"), "action": (1, "int32"), "reward": (1, "float32"),
                   "next_obs": (size, "float32"), "done": (1, "float32")}  # fmt: skip
        buffer = GpuReplay(device, ROWS, columns, BATCH_SIZE, alpha=replay.ALPHA)
        buffer.set_beta(replay.BETA)

        def made(n: int) -> dict[str, Any]:
            found = replay.transitions(random, n)
            return {name: found[name] for name in columns}

        for n in replay.fill_sizes(ROWS):
            buffer.add(made(n), np.abs(replay.td_errors(random, n)))
        td = device.allocate("TD errors", 4 * BATCH_SIZE)
        device.upload(Pointer(td), replay.td_errors(random, BATCH_SIZE))
        single = made(1)

        def cycle(_: int) -> None:
            buffer.add(single)
            buffer.enqueue_sample()
            buffer.enqueue_update(Pointer(td))
            device.mark().wait()

        return _cycles(cycle)
    finally:
        device.close()


def _own_replay() -> Row:
    from copal.bench.own_replay import Copal

    return _cycles(Copal(ROWS).cycle(BATCH_SIZE))


def _torchrl_replay() -> Row:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler

    if not torch.cuda.is_available():
        return {"absent": f"torch {torch.__version__} sees no CUDA GPU"}
    device, random = torch.device("cuda"), np.random.default_rng(0)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(ROWS, device=device),
        sampler=PrioritizedSampler(ROWS, alpha=replay.ALPHA, beta=replay.BETA, device=device),
        priority_key="td_error",
    )

    def made(n: int) -> Any:
        columns = replay.transitions(random, n)
        return TensorDict({k: torch.from_numpy(v).to(device) for k, v in columns.items()}, [n])

    def errors(n: int) -> Any:
        return torch.from_numpy(replay.td_errors(random, n)).to(device)

    for n in replay.fill_sizes(ROWS):
        buffer.extend(made(n))
    buffer.update_priority(torch.arange(ROWS, device=device), errors(ROWS))
    single, td = made(1)[0], errors(BATCH_SIZE)

    def cycle(_: int) -> None:
        buffer.add(single)
        batch = buffer.sample(BATCH_SIZE)
        buffer.update_priority(batch["index"], td)
        torch.cuda.synchronize()

    return _cycles(cycle)


def _cycles(call: Callable[[int], object]) -> Row:
    timed = replay.Timed.calibrated(call, _BLOCK_S)
    us = [timed.block_us() for _ in range(_BLOCKS)]
    return {"us": statistics.median(us), "us_min": min(us)}
