# SPDX-License-Identifier: MIT
"""The learner benchmark gives every figure it promises; how large they are is no test."""

from __future__ import annotations

import pytest

from copal.bench.learner import build, policy_rows, rows


@pytest.mark.parametrize("algo", ["dqn", "ddpg", "td3", "sac"])
def test_update_rows_have_every_implementation(algo: str) -> None:
    """Positive microseconds, the minimum not above the median."""
    built = build(algo, (16,))
    found = rows(built, batch_size=20, threads=2, rounds=1, compiled=False)
    wanted = {"copal-cpu", "torch-eager-fused", "numpy", "gemm-bound"}
    assert {row["name"] for row in found} == wanted | (
        {"cleanrl-style"} if algo == "sac" else set()
    )
    assert all(0 < row["us_min"] <= row["us"] and row["gflops"] > 0 for row in found)


@pytest.mark.parametrize("algo", ["double-dqn", "td3", "sac"])
def test_policy_rows_have_every_size(algo: str) -> None:
    """Both implementations at each number of observations."""
    found = policy_rows(build(algo, (16,)), batch_sizes=(1, 20), rounds=1)
    assert {(row["name"], row["n"]) for row in found} == {
        (name, n) for name in ("copal-policy", "torch-policy") for n in (1, 20)
    }
    assert all(row["us"] > 0 for row in found)
