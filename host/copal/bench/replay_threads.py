# SPDX-License-Identifier: MIT
"""Measures what one and two native threads get out of one replay buffer."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import copal
from copal.bench.runner import BASELINE
from copal.bench.table import Row

RUNS = 5
"""Runs of each number of threads; figures are medians and minima over them."""


def measure(size: int = 1_000_000, batch: int = 256, seconds: float = 0.5) -> list[Row]:
    """Times one and two native threads that each sample and update on one buffer.

    The program is compiled for it, so this needs a C++ compiler and the sources.

    Args:
        size: Rows of the buffer, all of them filled.
        batch: Rows drawn, and updated, at a time.
        seconds: Length of one run.

    Returns:
        Rows with `op` `threads1` and `threads2`, `us` a batch over all threads together, `cores`
        that they got, and `torn` rows (0, or there is a fault); where the program cannot be built,
        one that is absent, with the reason.
    """
    source = Path(copal.__file__).parents[1] / "native" / "tests" / "replay_stress.cpp"
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or not source.exists():
        return [_absent("no C++ compiler" if source.exists() else "needs the source checkout")]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "stress")
        flags = ["-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
        build = [compiler, *flags, f"-I{source.parents[1]}", str(source), "-pthread", "-o", program]
        try:
            subprocess.run(build, check=True, capture_output=True)
            return [_row(program, size, batch, threads, seconds) for threads in (1, 2)]
        except (OSError, subprocess.CalledProcessError) as error:
            return [_absent(str(error))]


def _absent(reason: str) -> Row:
    return {"name": f"{BASELINE}-threads", "absent": reason}


def _row(program: str, size: int, batch: int, threads: int, seconds: float) -> Row:
    command = [program, "rate", str(size), "0", str(threads), str(batch), str(seconds)]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(RUNS)
    ]
    us = [batch / r["sampled_per_s"] * 1e6 for r in runs]
    return {
        "name": BASELINE,
        "rows": size,
        "op": f"threads{threads}",
        "n": batch,
        "us": statistics.median(us),
        "us_min": min(us),
        "cores": statistics.median(r["cores"] for r in runs),
        "torn": sum(r["torn"] for r in runs),
    }
