# SPDX-License-Identifier: MIT
"""metrics.jsonl read into columns, whatever its length and however its run ended."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

LIMIT = 20_000
"""Records of one kind that are read; of more, every n-th, the first and the last."""
_HEAD = '{"kind": "'
Floats = NDArray[np.float64]
Record = dict[str, Any]


@dataclass(frozen=True)
class Columns:
    """Records of one kind as float64 [n] columns; NaN where a record lacks the figure."""

    values: Mapping[str, Floats]
    """Figures by name; `env_steps` and `elapsed_s` are always there."""

    def __len__(self) -> int:
        return len(self.values["env_steps"])

    def __getitem__(self, name: str) -> Floats:
        found = self.values.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def names(self) -> list[str]:
        """Figures with at least one finite value."""
        return [name for name, column in self.values.items() if np.isfinite(column).any()]


@dataclass(frozen=True)
class Records:
    """What a metrics.jsonl says."""

    train: Columns
    """About one record a second."""
    evals: Columns
    """One an evaluation."""
    last: Record
    """The newest train record, lists included; empty if there is none."""
    final: Record | None
    """Score at the end of the run; None: it has not ended, or was trained further."""
    warnings: tuple[str, ...]
    """What the learner warned about."""
    resumes: int
    """How many times the run was resumed."""
    unreadable: int
    """Lines that hold no record, one that a kill cut for instance."""
    stride: int
    """Every so manieth train record was read."""


def read(path: Path, limit: int = LIMIT) -> Records:
    """Reads the records at `path`.

    What a resumed run did again after its checkpoint replaces what was recorded the first time, and
    the time between its sessions does not count.

    Args:
        path: A metrics.jsonl, still being written perhaps.
        limit: The most records of one kind to read, at least 2.

    Raises:
        OSError: It cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        counts = Counter(_kind(line) for line in file)
    strides = {kind: -(-n // limit) for kind, n in counts.items() if kind in ("train", "eval")}
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = list(_thinned(file, strides))
    found = [_parsed(line) for line in lines]
    unreadable = found.count(None)
    for i, line in enumerate(lines):
        if found[i] is None and line.rfind(_HEAD) > 0:
            # A resumed run went on in the line that a kill had cut.
            found[i] = _parsed(line[line.rfind(_HEAD) :])
    return _assembled([r for r in found if r is not None], unreadable, strides)


def nothing() -> Records:
    """The records of a run that wrote none."""
    return _assembled([], 0, {})


def _kind(line: str) -> str:
    """Kind of a record without parsing it, as `MetricsLog` writes it; empty: some other line."""
    head, _, rest = line[:24].partition(_HEAD)
    return "" if head else rest.partition('"')[0]


def _thinned(file: TextIO, strides: Mapping[str, int]) -> Iterator[str]:
    """Every n-th line of a kind, and the last of it before a line of another kind that is kept."""
    seen: Counter[str] = Counter()
    held: dict[str, str] = {}
    for line in file:
        kind = _kind(line)
        stride = strides.get(kind, 1)
        seen[kind] += 1
        held.pop(kind, None)
        if stride > 1 and seen[kind] % stride != 1:
            held[kind] = line
            continue
        yield from held.values()
        held.clear()
        yield line
    yield from held.values()


def _parsed(line: str) -> Record | None:
    """One record; None if the line holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return None
    numbers = (number(record.get("time_s")), number(record.get("env_steps")))
    return record if all(map(math.isfinite, numbers)) else None


def number(value: Any) -> float:
    """`value` as a float; NaN if it is no number, or one beyond float64."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def _assembled(found: Sequence[Record], unreadable: int, strides: Mapping[str, int]) -> Records:
    kept: list[tuple[float, Record]] = []
    final: Record | None = None
    warnings: dict[str, None] = {}
    resumes = 0
    elapsed, before = 0.0, _began(found)
    for record in found:
        time_s, steps = number(record["time_s"]), number(record["env_steps"])
        if record.get("event") == "resume":
            resumes += 1
            final = None
            kept = [(e, r) for e, r in kept if number(r["env_steps"]) <= steps]
            elapsed, before = (kept[-1][0] if kept else 0.0), time_s
            continue
        elapsed, before = elapsed + max(0.0, time_s - before), time_s
        if record.get("event") == "warning":
            warnings[str(record.get("text", ""))] = None
        elif record["kind"] == "final":
            final = record
        kept.append((elapsed, record))
    train = [(e, r) for e, r in kept if r["kind"] == "train"]
    return Records(
        train=_columns(train),
        evals=_columns([(e, r) for e, r in kept if r["kind"] == "eval"]),
        last=train[-1][1] if train else {},
        final=final,
        warnings=tuple(warnings),
        resumes=resumes,
        unreadable=unreadable,
        stride=strides.get("train", 1),
    )


def _began(found: Sequence[Record]) -> float:
    """When training began: the first train record tells how long its steps took.

    Returns:
        Seconds since the epoch.
    """
    for record in found:
        rate = number(record.get("env_steps_per_s"))
        if record["kind"] == "train" and rate > 0 and record.get("event") is None:
            first = min(number(r["time_s"]) for r in found)
            return min(first, number(record["time_s"]) - number(record["env_steps"]) / rate)
    return number(found[0]["time_s"]) if found else 0.0


def _columns(rows: Sequence[tuple[float, Record]]) -> Columns:
    names = dict.fromkeys(name for _, record in rows for name in record)
    values = {
        name: np.array([number(record.get(name)) for _, record in rows], np.float64)
        for name in ("env_steps", *(n for n in names if n not in ("kind", "time_s")))
    }
    return Columns(values | {"elapsed_s": np.array([e for e, _ in rows], np.float64)})
