# SPDX-License-Identifier: MIT
"""The replay benchmark runs and gives rows of the agreed form; what it reads is nobody's test."""

from __future__ import annotations

from copal.bench.replay import measure, measure_threads


def test_rows_of_every_operation() -> None:
    """Each cell has its name, size, operation, rows a call and two times."""
    found = measure(sizes=(1000,), batches=(32,), blocks=3, block_s=1e-4)
    assert [(r["op"], r["n"]) for r in found] == [
        ("insert", 1),
        ("insert", 64),
        ("sample", 32),
        ("sample into new memory", 32),
        ("update", 32),
        ("cycle", 32),
    ]
    for r in found:
        assert r["name"] == "copal-cpu"
        assert r["rows"] == 1000
        assert 0 < r["us_min"] <= r["us"]


def test_native_threads_are_measured_or_the_reason_is_given() -> None:
    """One row a number of threads, none of them with a torn row."""
    found = measure_threads(size=2000, batch=32, seconds=0.05)
    if "note" in found[0]:
        assert len(found) == 1
    else:
        assert [r["op"] for r in found] == ["threads1", "threads2"]
        assert all(r["torn"] == 0 and r["us"] > 0 for r in found)
