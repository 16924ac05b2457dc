# SPDX-License-Identifier: MIT
"""Replay beside TorchRL on the GPU, whole trainings, and compute-sanitizer."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.bench.peers.drivers import replay
from copal.bench.runner import say
from copal.bench.table import Row
from copal.config import TrainConfig
from copal.gpu.device import Pointer
from copal.gpu.open import open_device
from copal.gpu.replay import GpuReplay

REPLAY_ROWS, REPLAY_BATCH = 1_000_000, 256
REPLAY_NAMES = ("copal on the GPU", "copal-cpu", "torchrl, CUDA tree")
TRAIN_BACKENDS = ("gpu", "cpu")
TOOLS = ("memcheck", "racecheck", "initcheck")
_REPLAY_S, _TOOL_S = 25.0, 45.0
_BLOCK_S, _BLOCKS = 0.1, 9
_LEARNING_STARTS = 1000


def replay_rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
    """Microseconds of drawing a batch and setting its priorities, in both replays."""
    measures = (_gpu_replay, _own_replay, _torchrl_replay)
    for name, measure in zip(REPLAY_NAMES, measures, strict=True):
        row: Row = {"part": "replay", "name": name, "batch_size": REPLAY_BATCH}
        if config.device == "emulate":
            yield {**row, "absent": NOT_MEASURED}
            continue
        say(f"replay: {name}")
        yield from budget.rows(row, _REPLAY_S, measure)


def _gpu_replay() -> Row:
    device = open_device("cuda")
    try:
        random, size = np.random.default_rng(0), replay.OBS_SIZE
        columns = {"obs": (size, "float32"), "action": (1, "int32"), "reward": (1, "float32"),
                   "next_obs": (size, "float32"), "done": (1, "float32")}  # fmt: skip
        buffer = GpuReplay(device, REPLAY_ROWS, columns, REPLAY_BATCH, alpha=replay.ALPHA)
        buffer.set_beta(replay.BETA)

        def rows(n: int) -> dict[str, Any]:
            found = replay.transitions(random, n)
            return {name: found[name] for name in columns}

        for n in replay.fill_sizes(REPLAY_ROWS):
            buffer.add(rows(n), np.abs(replay.td_errors(random, n)))
        td = device.allocate("TD errors", 4 * REPLAY_BATCH)
        device.upload(Pointer(td), replay.td_errors(random, REPLAY_BATCH))
        single = rows(1)

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

    return _cycles(Copal(REPLAY_ROWS).cycle(REPLAY_BATCH))


def _torchrl_replay() -> Row:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler

    if not torch.cuda.is_available():
        return {"absent": f"torch {torch.__version__} sees no CUDA GPU"}
    device, random = torch.device("cuda"), np.random.default_rng(0)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(REPLAY_ROWS, device=device),
        sampler=PrioritizedSampler(
            REPLAY_ROWS, alpha=replay.ALPHA, beta=replay.BETA, device=device
        ),
        priority_key="td_error",
    )

    def rows(n: int) -> Any:
        columns = replay.transitions(random, n)
        return TensorDict({k: torch.from_numpy(v).to(device) for k, v in columns.items()}, [n])

    def errors(n: int) -> Any:
        return torch.from_numpy(replay.td_errors(random, n)).to(device)

    for n in replay.fill_sizes(REPLAY_ROWS):
        buffer.extend(rows(n))
    buffer.update_priority(torch.arange(REPLAY_ROWS, device=device), errors(REPLAY_ROWS))
    single, td = rows(1)[0], errors(REPLAY_BATCH)

    def cycle(_: int) -> None:
        buffer.add(single)
        batch = buffer.sample(REPLAY_BATCH)
        buffer.update_priority(batch["index"], td)
        torch.cuda.synchronize()

    return _cycles(cycle)


def _cycles(call: Callable[[int], object]) -> Row:
    timed = replay.Timed.calibrated(call, _BLOCK_S)
    us = [timed.block_us() for _ in range(_BLOCKS)]
    return {"us": statistics.median(us), "us_min": min(us)}


def train_rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
    """Updates a second of DQN on LunarLander-v3, 256-256, batch 256, one update a step."""
    for backend in TRAIN_BACKENDS:
        row: Row = {"part": "train", "name": f"dqn on {backend}"}
        if config.device == "emulate":
            yield {**row, "absent": NOT_MEASURED}
            continue
        say(f"training on {backend}")
        yield from budget.rows(row, 2 * config.train_s, partial(_train, backend, config.train_s))


def _train(backend: str, seconds: float) -> Row:
    """Trains about so long, after a short run that shows how many steps that is."""
    warm = _trained(backend, _LEARNING_STARTS + 2000)
    return _trained(backend, _LEARNING_STARTS + max(1, round(warm["updates_per_s"] * seconds)))


def _trained(backend: str, steps: int) -> Row:
    import copal

    with tempfile.TemporaryDirectory() as folder:
        result = copal.train(
            TrainConfig(
                algo="dqn",
                env="LunarLander-v3",
                backend=backend,
                steps=steps,
                hidden=(256, 256),
                batch_size=256,
                update_interval=1,
                learning_starts=_LEARNING_STARTS,
                eval_interval=0,
                final_eval_episodes=1,
                checkpoint_interval=0,
                tensorboard=False,
                quiet=True,
                out=Path(folder) / "run",
            )
        )
    return {"updates_per_s": result.updates_per_s, "env_steps": result.env_steps}


def sanitizer_rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
    """The part `correct`, small, under each tool of compute-sanitizer."""
    program = shutil.which("compute-sanitizer")
    for tool in TOOLS:
        row: Row = {"part": "sanitize", "name": f"compute-sanitizer {tool}"}
        if config.device == "emulate":
            yield {**row, "absent": NOT_MEASURED}
        elif program is None:
            yield {**row, "absent": "compute-sanitizer is not installed"}
        else:
            say(f"compute-sanitizer {tool}")
            found = budget.rows(row, _TOOL_S, partial(sanitize, program, tool, budget.left_s))
            yield from ({"ok": False, **r} for r in found)


def sanitize(program: str, tool: str, timeout_s: float) -> Row:
    """Errors that a tool counts.

    Args:
        program: Path of compute-sanitizer.
        tool: One of `TOOLS`.
        timeout_s: Longest run.
    """
    command = [program, "--tool", tool, sys.executable, "-m", "copal.bench.gpu_check"]
    command += ["--parts", "correct", "--algos", "dqn", "sac", "--small", "--json", "None"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"absent": f"not finished within {timeout_s:.0f} s", "ok": True}
    text = result.stdout + result.stderr
    # racecheck sums up in words of its own.
    counts = re.findall(r"ERROR SUMMARY: (\d+)|(\d+) hazards? displayed", text)
    if not counts:
        return {"absent": (text.strip().splitlines() or ["no output"])[-1][:300], "ok": False}
    errors = sum(int(a or b) for a, b in counts)
    return {"errors": errors, "ok": errors == 0 and result.returncode == 0}
