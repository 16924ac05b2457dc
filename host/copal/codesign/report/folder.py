# SPDX-License-Identifier: MIT
"""One run as its folder tells it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from copal.codesign import compare
from copal.codesign import plan as plans
from copal.codesign.report.records import LIMIT, Records, nothing, number, read
from copal.errors import CheckpointError, NoSuchRunError, reason
from copal.runtime import metrics, run_folder

ALIVE_S = 60.0
"""A run without a final score whose last record is younger than this counts as running."""


@dataclass(frozen=True)
class Run:
    """A run: settings, machine, records."""

    folder: Path
    """Its folder."""
    name: str
    """What the report calls it, unique in it."""
    config: Mapping[str, Any]
    """Content of its config.json."""
    machine: Mapping[str, Any]
    """Content of its machine.json; empty if there is none."""
    plan: Mapping[str, Any] | None
    """Content of its plan.json; None: it was not planned."""
    achieved: Mapping[str, Any] | None
    """Content of its achieved.json; None: it was not planned, or has not ended."""
    records: Records
    """Its figures."""
    silent_s: float
    """Seconds since its newest record was written; infinite if there is none."""

    @property
    def status(self) -> str:
        """`finished`, `running` or `stopped`."""
        if self.records.final is not None:
            return "finished"
        return "running" if self.silent_s < ALIVE_S else "stopped"

    @property
    def env_steps(self) -> float:
        """Environment steps recorded last; 0 if nothing was."""
        ends = [c["env_steps"][-1] for c in (self.records.train, self.records.evals) if len(c)]
        return float(max(ends, default=0.0))

    @property
    def updates(self) -> float:
        """Updates recorded last; NaN if none were."""
        return number(self.records.last.get("updates"))

    @property
    def seconds(self) -> float:
        """Seconds of training, evaluations in it included, pauses between sessions not."""
        train = self.records.train
        return float(train["elapsed_s"][-1]) if len(train) else math.nan

    @property
    def best(self) -> float:
        """Highest mean return of an evaluation during training; NaN if there was none."""
        returns = self.records.evals["mean_return"]
        return float(np.nanmax(returns)) if np.isfinite(returns).any() else math.nan

    def total(self, name: str) -> float:
        """The end of a counter that begins at 0 again in each session, all of them together.

        Args:
            name: A figure of the train records.

        Returns:
            NaN if there is no such figure.
        """
        train = self.records.train
        seen = train[name][np.isfinite(train[name])]
        growth = np.diff(seen, prepend=0.0)
        return float(np.where(growth < 0, seen, growth).sum()) if len(seen) else math.nan


def find(folders: Sequence[Path]) -> list[Path]:
    """The run folders among `folders`, and those right inside the others, each once.

    Raises:
        NoSuchRunError: One is no run folder and holds none.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = [folder] if _is_run(folder) else _runs_in(folder)
        if not inside:
            raise NoSuchRunError(
                "dir",
                "a run folder, or a folder of run folders",
                _what_is(folder),
                f"a run folder holds {run_folder.CONFIG}; `copal train` prints where it is",
            )
        for run in inside:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _is_run(folder: Path) -> bool:
    try:
        return (folder / run_folder.CONFIG).is_file()
    except OSError:
        return False


def _runs_in(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if _is_run(p))
    except OSError:
        return []


def _what_is(folder: Path) -> str:
    if not folder.exists():
        return f"`{folder}`, which does not exist"
    return f"`{folder}`, which holds none" if folder.is_dir() else f"`{folder}`, a file"


def load(folder: Path, name: str, limit: int = LIMIT) -> Run:
    """Reads a run folder; the run may still be going on.

    Args:
        folder: The folder.
        name: What the report calls it.
        limit: The most records of one kind to read.

    Raises:
        CheckpointError: A file of it cannot be read.
    """
    config = _json(folder / run_folder.CONFIG)
    if config is None:
        raise _damaged(folder / run_folder.CONFIG, "no such file")
    path = folder / metrics.FILE
    try:
        silent_s = time.time() - path.stat().st_mtime if path.is_file() else math.inf
        records = read(path, limit) if path.is_file() else nothing()
    except OSError as error:
        raise _damaged(path, reason(error)) from error
    machine = _json(folder / run_folder.MACHINE) or {}
    plan, achieved = _json(folder / plans.FILE), _json(folder / compare.FILE)
    return Run(folder, name, config, machine, plan, achieved, records, silent_s)


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, reason(error)) from error
    if not isinstance(value, dict):
        raise _damaged(path, f"a {type(value).__name__}")
    return value


def _damaged(path: Path, got: str) -> CheckpointError:
    return CheckpointError(
        str(path), "a JSON object", got, "leave the run out, or restore the file"
    )


def names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the folders' paths that tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for n in range(1, max(map(len, parts), default=0) + 1):
        short = ["/".join(p[-n:]) for p in parts]
        if len(set(short)) == len(short):
            return short
    return [str(folder) for folder in folders]
