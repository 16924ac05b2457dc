# SPDX-License-Identifier: MIT
"""Many threads on one buffer: no torn row, a whole tree, no lost insertion."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_native import build

from copal.replay import PrioritizedReplay

COLUMNS = {
    "obs": ((16,), "float32"),
    "action": ((), "int64"),
    "next_obs": ((16,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def test_native_stress(tmp_path: Path) -> None:
    """Inserters, samplers, updaters and a follower on small rings, rows of 80 bytes to 56 KB."""
    program = build("replay_stress.cpp", tmp_path / "stress", "-O2")
    done = subprocess.run(
        [str(program), "3"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == 13


def rows(n: int, first: int) -> dict[str, np.ndarray]:
    number = np.arange(first, first + n)
    wide = np.repeat(number[:, None], 16, 1).astype(np.float32)
    return {
        "obs": wide,
        "action": number,
        "next_obs": wide + 1,
        "terminated": np.zeros(n, bool),
        "truncated": np.zeros(n, bool),
    }


def run_all(*work: Callable[[], None]) -> None:
    """Runs each in a thread of its own and raises what one of them raised."""
    failures: list[BaseException] = []

    def guarded(f: Callable[[], None]) -> None:
        try:
            f()
        except BaseException as e:  # noqa: BLE001 - raised again below
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a thread did not end"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("n", [1, 12])
def test_python_threads(share: bool, n: int) -> None:
    """Four threads; calls short enough to keep the GIL, and long ones."""
    r = PrioritizedReplay(300, COLUMNS, share_next_obs=share, seed=1)
    r.add(**rows(200, 0), stream=9)
    calls = 2000 // n

    def insert(stream: int) -> None:
        for i in range(calls):
            r.add(**rows(n, stream * 100_000 + n * i), stream=stream)

    def sample(size: int) -> None:
        batch: Any = None
        g = np.random.default_rng(size)
        for _ in range(800):
            batch = r.sample(size, 0.4, batch)
            np.testing.assert_array_equal(batch["obs"], batch["obs"][:, :1].repeat(16, 1))
            np.testing.assert_array_equal(batch["obs"][:, 0], batch["action"])
            np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)
            r.update_priorities(batch.ids, g.standard_normal(size).astype(np.float32))

    run_all(lambda: insert(1), lambda: insert(2), lambda: sample(4), lambda: sample(64))
    leaves = r._leaves().astype(float)
    assert r.total_priority == pytest.approx(leaves.sum(), rel=1e-6)
    assert r.stats()["max_priority"] == leaves.max()
    assert (leaves > 0).sum() == len(r)
    s = r.stats()
    assert s["inserted"] == 200 + 2 * calls * n
    assert s["updated"] + s["stale_updates"] == s["sampled"] == 800 * 68


def test_inserters_get_ids_of_their_own() -> None:
    """No id is handed out twice, and each names the row of the call that got it."""
    r = PrioritizedReplay(5000, COLUMNS)
    found: list[tuple[np.ndarray, int]] = []

    def insert(k: int) -> None:
        for i in range(100):
            first = 10_000 * k + 12 * i
            found.append((r.add(**rows(12, first)), first))

    run_all(*(lambda k=k: insert(k) for k in range(4)))
    ids = np.concatenate([i for i, _ in found])
    assert len(np.unique(ids)) == len(ids) == 4800
    actions = r.column("action")
    for i, first in found:
        np.testing.assert_array_equal(actions[i.astype(int)], np.arange(first, first + 12))
