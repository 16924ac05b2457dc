# SPDX-License-Identifier: MIT
"""One learning curve: run in a process of its own, or read from the file of an earlier run.

A curve's file `NAME-seedN.jsonl` holds what its process printed: a row with versions and settings,
then a row for each evaluation.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal.bench.process import DriverFailedError, child_environment

Row = dict[str, Any]
SLOWEST_STEPS_PER_S = 5
"""A run that is slower is ended."""


@dataclass(frozen=True)
class Curve:
    """What one run brought."""

    head: Row
    """Versions and settings."""
    points: list[Row]
    """An evaluation each: `seed`, `env_steps`, `mean_return`, `std` over episodes, `wall_s`."""

    @classmethod
    def parse(cls, text: str) -> Curve:
        """Reads a curve's lines.

        Raises:
            DriverFailedError: The run was not possible, or a line is damaged.
        """
        try:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError as error:
            raise DriverFailedError(f"not a curve: {error}") from error
        for row in rows:
            if "absent" in row:
                raise DriverFailedError(str(row["absent"]))
        points = [row for row in rows if row.get("op") == "curve"]
        if not points:
            raise DriverFailedError("no evaluation")
        return cls(next((row for row in rows if row.get("ready")), {}), points)

    def fits(self, settings: Mapping[str, Any], steps: int) -> str | None:
        """Why it cannot stand for a run with these settings; None if it can.

        Args:
            settings: What the other curves were run with.
            steps: Environment steps that are wanted.
        """
        for name, found in self.head.get("settings", {}).items():
            wanted = settings.get(name, found)
            if list(wanted) != list(found) if name == "hidden" else wanted != found:
                return f"its {name} is {found}, not {wanted}"
        last = max(point["env_steps"] for point in self.points)
        missing = last + settings["eval_interval"] <= steps
        return f"it ends at {last:,} steps" if missing else None


def path(folder: Path, name: str, seed: int) -> Path:
    """Where a curve is kept."""
    return folder / f"{name}-seed{seed}.jsonl"


def run(command: Sequence[str], steps: int, file: Path) -> Curve:
    """Runs a curve's process to its end and keeps what it prints, line by line.

    It runs in a folder that is thrown away, since simulators leave logs where they are started;
    what they print besides is shown only in part, and only if the process fails.

    Args:
        command: Program and arguments.
        steps: Environment steps, which bound the time.
        file: Gets the lines as they come.

    Raises:
        DriverFailedError: It failed, or took too long.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
    ):
        try:
            process = subprocess.Popen(
                list(command),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=child_environment(os.environ),
            )
        except OSError as error:
            raise DriverFailedError(str(error)) from error
        _keep(process, file, limit_s=120 + steps / SLOWEST_STEPS_PER_S)
        errors.seek(0)
        said = [line.strip() for line in errors if line.strip()]
    text = file.read_text(encoding="utf-8")
    if not text.strip():
        raise DriverFailedError(said[-1] if said else "ended without a word")
    return Curve.parse(text)


def _keep(process: subprocess.Popen[str], file: Path, limit_s: float) -> None:
    """Copies what a process prints into a file until it ends; ends it after `limit_s`."""
    guard = threading.Timer(limit_s, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        with process.stdout as lines, file.open("w", encoding="utf-8") as kept:
            for line in lines:
                kept.write(line)
                kept.flush()
    finally:
        guard.cancel()
        process.kill()
        process.wait()
