# SPDX-License-Identifier: MIT
"""Measures the replay buffer: microseconds a call through Python, and by native threads."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import copal
from copal.replay import PrioritizedReplay

NAME = "copal-cpu"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
BATCHES = (32, 256, 1024)
WIDTH = 8  # floats of an observation

COLUMNS = {
    "obs": ((WIDTH,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "next_obs": ((WIDTH,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}

Row = dict[str, Any]


def measure(
    sizes: Sequence[int] = SIZES,
    batches: Sequence[int] = BATCHES,
    blocks: int = 60,
    block_s: float = 0.002,
) -> list[Row]:
    """Times insertion, sampling, updating and their cycle on full buffers.

    Args:
        sizes: Capacities, in rows.
        batches: Batch sizes.
        blocks: Blocks timed of each cell; a block is a run of calls.
        block_s: Seconds of a block. Short blocks find moments when a shared machine is free.

    Returns:
        Rows with `name`, `rows` (capacity), `op`, `n` (rows a call), `us` (median over blocks of
        the mean call) and `us_min`. `cycle` inserts one row, samples n with weights, and updates
        the n rows just sampled.
    """
    found = []
    for size in sizes:
        for op, n, call in _calls(_filled(size), batches):
            us = _time(call, blocks, block_s)
            found.append({"name": NAME, "rows": size, "op": op, "n": n, **us})
    return found


def measure_threads(size: int = 1_000_000, batch: int = 256, seconds: float = 0.5) -> list[Row]:
    """Times one and two native threads that each sample and update on one buffer.

    The program is compiled for it, so this needs a C++ compiler and the sources.

    Returns:
        Rows as `measure` gives them, with `op` `threads1` or `threads2`, `us` a batch over all
        threads together, `cores` that they got, and `torn` rows (0, or there is a fault); where the
        program cannot be built, one row with a `note` that says why.
    """
    source = Path(copal.__file__).parents[1] / "native" / "tests" / "replay_stress.cpp"
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or not source.exists():
        note = "no C++ compiler" if source.exists() else "needs the source checkout"
        return [{"name": NAME, "rows": size, "op": "threads2", "n": batch, "note": note}]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "stress")
        flags = ["-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
        include = f"-I{source.parents[1]}"
        build = [compiler, *flags, include, str(source), "-pthread", "-o", program]
        subprocess.run(build, check=True, capture_output=True)
        return [_threads_row(program, size, batch, threads, seconds) for threads in (1, 2)]


def _threads_row(program: str, size: int, batch: int, threads: int, seconds: float) -> Row:
    command = [program, "rate", str(size), "0", str(threads), str(batch), str(seconds)]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(5)
    ]
    us = [batch / r["sampled_per_s"] * 1e6 for r in runs]
    return {
        "name": NAME,
        "rows": size,
        "op": f"threads{threads}",
        "n": batch,
        "us": statistics.median(us),
        "us_min": min(us),
        "cores": statistics.median(r["cores"] for r in runs),
        "torn": sum(r["torn"] for r in runs),
    }


def _transitions(g: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {
        "obs": g.standard_normal((n, WIDTH), np.float32),
        "action": g.integers(0, 4, n),
        "reward": g.standard_normal(n, np.float32),
        "next_obs": g.standard_normal((n, WIDTH), np.float32),
        "terminated": np.zeros(n, bool),
        "truncated": np.zeros(n, bool),
    }


def _filled(size: int) -> PrioritizedReplay:
    g = np.random.default_rng(0)
    replay = PrioritizedReplay(size, COLUMNS, alpha=0.6, eps=1e-4)
    for first in range(0, size, 100_000):
        n = min(100_000, size - first)
        priority = np.abs(g.standard_normal(n, np.float32))
        replay.add(**_transitions(g, n), priority=priority)
    return replay


def _calls(
    replay: PrioritizedReplay, batches: Sequence[int]
) -> Iterator[tuple[str, int, Callable[[int], Any]]]:
    """Operation, rows a call, and the call, which takes the number of the repetition."""
    g = np.random.default_rng(1)
    many = _transitions(g, 256)
    one = [
        (many["obs"][i], int(many["action"][i]), float(many["reward"][i]), many["next_obs"][i])
        for i in range(256)
    ]
    part = {k: v[:64] for k, v in many.items()}

    def insert(i: int) -> None:
        obs, action, reward, next_obs = one[i & 255]
        replay.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=False,
            truncated=False,
        )

    yield "insert", 1, insert
    yield (
        "insert",
        64,
        lambda _: replay.add(
            obs=part["obs"],
            action=part["action"],
            reward=part["reward"],
            next_obs=part["next_obs"],
            terminated=part["terminated"],
            truncated=part["truncated"],
        ),
    )
    for n in batches:
        yield from _batch_calls(replay, n, insert, g)


def _batch_calls(
    replay: PrioritizedReplay, n: int, insert: Callable[[int], None], g: np.random.Generator
) -> Iterator[tuple[str, int, Callable[[int], Any]]]:
    out = replay.sample(n)
    ids = out.ids
    td = [np.abs(g.standard_normal(n, np.float32)) for _ in range(64)]
    newest = replay.next_id
    low = newest - replay.capacity
    some = [g.integers(low, newest, n).astype(np.uint64) for _ in range(64)]

    def cycle(i: int) -> None:
        insert(i)
        replay.sample(n, 0.4, out)
        replay.update_priorities(ids, td[i & 63])

    yield "sample", n, lambda _: replay.sample(n, 0.4, out)
    yield "sample into new memory", n, lambda _: replay.sample(n, 0.4)
    yield "update", n, lambda i: replay.update_priorities(some[i & 63], td[i & 63])
    yield "cycle", n, cycle


def _time(call: Callable[[int], Any], blocks: int, block_s: float) -> dict[str, float]:
    for i in range(3):
        call(i)
    begin = time.perf_counter()
    call(3)
    repeat = max(3, int(block_s / max(time.perf_counter() - begin, 1e-7)))
    found = []
    for b in range(blocks):
        begin = time.perf_counter()
        for i in range(b * repeat, (b + 1) * repeat):
            call(i)
        found.append((time.perf_counter() - begin) / repeat * 1e6)
    return {"us": statistics.median(found), "us_min": min(found)}


def pin(core: int) -> None:
    """Keeps this process on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
