# SPDX-License-Identifier: MIT
"""Measures one learner update and says how each implementation compares with copal."""

from __future__ import annotations

from copal.bench import machine
from copal.bench.config import LearnerBench
from copal.bench.runner import BASELINE
from copal.bench.table import Report, Row

POLICY = "copal-policy"
EXPECTED = (BASELINE, "torch-eager-fused", "torch-compile", "numpy", "gemm-bound")


def measure(config: LearnerBench) -> Report:
    """Measures everything that the configuration asks for."""
    from copal.bench import learner  # brings PyTorch in, which `--help` can do without

    described = machine.describe()
    built = learner.build(config.algo, config.hidden, config.obs, config.actions)
    rows = learner.rows(built, config.batch_size, config.threads, config.rounds)
    versions = {BASELINE: machine.versions()}
    acting = learner.policy_rows(built, rounds=config.rounds)
    return Report(described, versions, with_ratios(rows) + with_policy_ratios(acting))


def with_ratios(rows: list[Row]) -> list[Row]:
    """The rows with a ratio each, and one more for every implementation that left none."""
    base = next((row["us"] for row in rows if row["name"] == BASELINE and "us" in row), None)
    found = []
    for row in rows:
        compared = base is not None and "us" in row and "ratio" not in row
        found.append({**row, "ratio": row["us"] / base} if compared else row)
    names = {row["name"] for row in rows}
    missing = [name for name in EXPECTED if name not in names]
    return found + [{"name": name, "absent": "not measured"} for name in missing]


def with_policy_ratios(rows: list[Row]) -> list[Row]:
    """The rows of acting, compared with copal's at the same number of observations."""
    base = {row["n"]: row["us"] for row in rows if row["name"] == POLICY}
    return [
        {**row, "ratio": row["us"] / base[row["n"]]} if row["n"] in base else row for row in rows
    ]
