# SPDX-License-Identifier: MIT
"""The part `correct` once more, under each tool of compute-sanitizer."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.bench.runner import say
from copal.bench.table import Row

TOOLS = ("memcheck", "racecheck", "initcheck")
_TOOL_S = 45.0


def rows(config: GpuCheck, budget: Budget) -> Iterator[Row]:
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
