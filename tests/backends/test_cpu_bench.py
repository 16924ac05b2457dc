# SPDX-License-Identifier: MIT
"""The learner benchmark gives every figure it promises; how large they are is no test."""

from __future__ import annotations

from copal.bench.learner import policy_rows, rows


def test_update_rows_have_every_implementation():
    """Positive microseconds, the minimum not above the median."""
    found = rows("dqn", batch_size=20, hidden=(16,), threads=2, rounds=1, compiled=False)
    assert {row["name"] for row in found} == {
        "copal-cpu",
        "torch-eager-fused",
        "numpy",
        "gemm-bound",
    }
    assert all(0 < row["us_min"] <= row["us"] and row["gflops"] > 0 for row in found)


def test_policy_rows_have_every_size():
    """Both implementations at each number of observations."""
    found = policy_rows("double-dqn", hidden=(16,), batch_sizes=(1, 20), rounds=1)
    assert {(row["name"], row["n"]) for row in found} == {
        (name, n) for name in ("copal-policy", "torch-policy") for n in (1, 20)
    }
    assert all(row["us"] > 0 for row in found)
