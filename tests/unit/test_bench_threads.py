# SPDX-License-Identifier: MIT
"""The benchmark of native threads on one buffer gives rows of the agreed form."""

from __future__ import annotations

import pytest

from copal.bench import replay_threads


def test_native_threads_are_measured_or_the_reason_is_given() -> None:
    """One row a number of threads, none of them with a torn row."""
    found = replay_threads.measure(size=2000, batch=32, seconds=0.05)
    if "absent" in found[0]:
        assert len(found) == 1
    else:
        assert [r["op"] for r in found] == ["threads1", "threads2"]
        assert all(r["torn"] == 0 and 0 < r["us_min"] <= r["us"] for r in found)


def test_without_a_compiler_the_row_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No crash of the whole benchmark: the reason stands in the table."""
    monkeypatch.setattr(replay_threads.shutil, "which", lambda _: None)
    assert replay_threads.measure() == [{"name": "copal-cpu-threads", "absent": "no C++ compiler"}]
