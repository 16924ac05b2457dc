# SPDX-License-Identifier: MIT
"""The replay on a device: its tree, draws and weights against the CPU's and against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from copal import PrioritizedReplay
from copal.errors import ConfigError, EmptyReplayError, PriorityError, SchemaError
from copal.gpu.cupy_device import CupyDevice
from copal.gpu.device import GpuDevice, Pointer
from copal.gpu.emulate import EmulatedDevice
from copal.gpu.replay import Drawn, GpuReplay
from copal.program.noise import philox
from fake_cupy import install

COLUMNS = {"obs": (3, "float32"), "action": (1, "int32"), "reward": (1, "float32")}
CPU = {"obs": ((3,), "float32"), "action": ((), "int32"), "reward": ((), "float32")}
BATCH = 40
ALPHA, EPS, SEED = 0.6, 1e-3, 77


def _replay(capacity: int, device: GpuDevice | None = None, **settings: Any) -> GpuReplay:
    chosen = {"alpha": ALPHA, "eps": EPS, "seed": SEED, **settings}
    return GpuReplay(device or EmulatedDevice(seed=3), capacity, COLUMNS, BATCH, **chosen)


def _rows(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {
        "obs": rng.standard_normal((n, 3)).astype(np.float32),
        "action": rng.integers(0, 9, n, dtype=np.int32),
        "reward": rng.standard_normal(n).astype(np.float32),
    }


def _tree(replay: GpuReplay, of: str = "_tree") -> list[np.ndarray]:
    """Every level of the sums or maxima."""
    flat = np.empty(replay._levels[-1] + 32, np.float32)
    replay._device.download(flat, Pointer(getattr(replay, of)))
    replay._device.mark().wait()
    return np.split(flat, replay._levels[1:])


@pytest.mark.parametrize("capacity", [1, 33, 1025, 40_000])
def test_parents_are_sums_and_maxima(rng: np.random.Generator, capacity: int) -> None:
    """Of 32 children each, after rows were added around the ring and updated."""
    replay = _replay(capacity)
    for n in (min(capacity, 1500), min(capacity, 5)):
        replay.add(_rows(rng, n), rng.random(n).astype(np.float32))
    replay.add(_rows(rng, min(capacity, 1100)))
    replay.sample()
    replay.update_priorities(rng.standard_normal(BATCH).astype(np.float32))
    sums, maxima = _tree(replay), _tree(replay, "_maxima")
    maxima[0] = sums[0]
    for below, above, low, high in zip(sums, sums[1:], maxima, maxima[1:], strict=False):
        groups = len(below) // 32
        np.testing.assert_allclose(above[:groups], below.reshape(-1, 32).sum(1), rtol=1e-6)
        np.testing.assert_array_equal(high[:groups], low.reshape(-1, 32).max(1))
        assert not above[groups:].any()
    assert len(sums[-1]) == 32


def test_priorities_are_those_of_the_cpu(rng: np.random.Generator) -> None:
    """New rows at the largest present, given ones, updates with repeated rows, over two laps."""
    capacity = 48
    ours, cpu = _replay(capacity), PrioritizedReplay(capacity, CPU, alpha=ALPHA, eps=EPS)
    for n in (1, 7, 30, 40, 3, 48, 20):
        rows = _rows(rng, n)
        given = rng.random(n).astype(np.float32) if n == 40 else None
        powered = None if given is None else (given + np.float32(EPS)) ** np.float32(ALPHA)
        np.testing.assert_array_equal(ours.add(rows, powered), cpu.add(**rows, priority=given))
        drawn = ours.sample()
        td = rng.standard_normal(BATCH).astype(np.float32)
        ours.update_priorities(td)
        assert cpu.update_priorities(drawn.ids, td) == 0
        np.testing.assert_allclose(ours.priorities(), cpu.priorities(), rtol=2e-6)
        assert len(ours) == len(cpu)


def _expected(leaves: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Slots that the definition of the draws gives, and how far each mass is from an edge."""
    counter = np.zeros((BATCH, 4), np.uint32)
    counter[:, 0], counter[:, 1], counter[:, 2] = np.arange(BATCH), 0xFFFFFFFF, number
    words = philox(counter, SEED).astype(np.uint64)
    uniform = ((words[:, 0] << np.uint64(32) | words[:, 1]) >> np.uint64(11)) * 2.0**-53
    edges = np.cumsum(leaves.astype(np.float64))
    mass = uniform * edges[-1]
    gap = np.abs(edges[:, None] - mass).min(0) / edges[-1]
    return np.searchsorted(edges, mass, side="right"), gap


def test_draws_follow_their_definition(rng: np.random.Generator) -> None:
    """Each row by its share of the sum, from counted random numbers; never one of priority 0."""
    count = 1025
    replay = _replay(count)
    priority = rng.random(count).astype(np.float32) ** 4
    priority[rng.random(count) < 0.5] = 0
    rows = _rows(rng, count)
    replay.add(rows, priority)
    for number in range(5):
        drawn = replay.sample(0.7)
        want, gap = _expected(priority, number)
        clear = gap > 1e-6
        assert clear.sum() > BATCH // 2
        np.testing.assert_array_equal(drawn.ids[clear], want[clear])
        slots = drawn.ids.astype(int)
        assert (priority[slots] > 0).all()
        np.testing.assert_array_equal(drawn.priorities, priority[slots])
        weight = (priority[slots].astype(np.float64) / priority[slots].min()) ** -0.7
        np.testing.assert_allclose(drawn.weight, weight, rtol=1e-5)
        for name, values in rows.items():
            np.testing.assert_array_equal(drawn.columns[name].squeeze(), values[slots])


def test_distribution_is_that_of_the_cpu_tree(rng: np.random.Generator) -> None:
    """Both draw every row as often as its priority says (chi-squared, six deviations)."""
    rows, calls = 48, 150
    priority = rng.random(rows).astype(np.float32) + np.float32(0.05)
    columns = _rows(rng, rows)
    ours = _replay(rows)
    ours.add(columns, priority)
    cpu = PrioritizedReplay(rows, CPU, alpha=1.0, eps=0.0)
    cpu.add(**columns, priority=priority)
    expected = priority / priority.sum() * calls * BATCH
    for draw in (lambda: ours.sample().ids, lambda: cpu.sample(BATCH).ids):
        counts = np.bincount(np.concatenate([draw() for _ in range(calls)]), minlength=rows)
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert abs(chi - (rows - 1)) < 6 * np.sqrt(2 * (rows - 1))


def test_ids_go_around_the_ring(rng: np.random.Generator) -> None:
    """A batch names rows by number of insertion, whatever the lap."""
    replay = _replay(48)
    kept: dict[int, float] = {}
    for n in (48, 20, 5, 48):
        rows = _rows(rng, n)
        kept.update(zip(replay.add(rows).tolist(), rows["reward"].tolist(), strict=True))
        drawn = replay.sample()
        assert [kept[int(i)] for i in drawn.ids] == drawn.columns["reward"][:, 0].tolist()
        assert drawn.ids.min() >= max(kept) + 1 - 48


def _session(device: GpuDevice, rng: np.random.Generator) -> tuple[Drawn, np.ndarray, bytes]:
    replay = _replay(1025, device)
    replay.add(_rows(rng, 1025), rng.random(1025).astype(np.float32))
    replay.sample()
    replay.update_priorities(rng.standard_normal(BATCH).astype(np.float32))
    drawn = replay.sample()
    bits = b"".join(
        level.tobytes() for what in ("_tree", "_maxima") for level in _tree(replay, what)
    )
    return drawn, replay.priorities(), bits


def test_ptx_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreted PTX draws the same rows and builds the same tree as the CPU's g++."""
    install(monkeypatch, 2**28, races=True)
    ours, ours_leaves, _ = _session(CupyDevice(), np.random.default_rng(5))
    shim, shim_leaves, _ = _session(EmulatedDevice(), np.random.default_rng(5))
    np.testing.assert_array_equal(ours.ids, shim.ids)
    np.testing.assert_allclose(ours.weight, shim.weight, rtol=1e-5)
    np.testing.assert_allclose(ours_leaves, shim_leaves, rtol=1e-6)


def test_order_of_threads_changes_nothing() -> None:
    """Bits of the tree are the same for any order in which the threads take turns."""
    results = [_session(EmulatedDevice(seed=s), np.random.default_rng(5)) for s in (0, 1, 9)]
    assert len({bits for *_, bits in results}) == 1
    assert len({drawn.weight.tobytes() for drawn, *_ in results}) == 1


def test_nothing_to_draw(rng: np.random.Generator) -> None:
    """No row, or only rows of priority 0."""
    replay = _replay(48)
    with pytest.raises(EmptyReplayError, match="add rows first"):
        replay.sample()
    replay.add(_rows(rng, 9), np.zeros(9, np.float32))
    with pytest.raises(EmptyReplayError, match="9 rows with priority 0"):
        replay.sample()
    replay.add(_rows(rng, 1))
    assert set(replay.sample().ids) == {9}


def test_bad_priorities_change_nothing(rng: np.random.Generator) -> None:
    """NaN and infinity, in new rows and in updates; the buffer works on."""
    replay = _replay(48)
    replay.add(_rows(rng, 48))
    before = replay.sample()
    leaves = replay.priorities()
    for bad in (np.nan, np.inf):
        td = np.ones(BATCH, np.float32)
        td[rng.integers(BATCH)] = bad
        with pytest.raises(PriorityError, match="td_error"):
            replay.update_priorities(td)
        np.testing.assert_array_equal(replay.priorities(), leaves)
        with pytest.raises(PriorityError, match="priority"):
            replay.add(_rows(rng, 2), np.array([1, bad], np.float32))
    with pytest.raises(PriorityError):
        replay.add(_rows(rng, 1), np.array([-1], np.float32))
    assert len(replay) == 48
    replay.update_priorities(np.ones(BATCH, np.float32))
    assert (replay.priorities() != leaves).sum() == len(set(before.ids.tolist())) or np.allclose(
        leaves, (1 + EPS) ** ALPHA
    )


def test_bad_columns_and_settings(rng: np.random.Generator) -> None:
    """Named, before anything changes."""
    replay = _replay(48)
    rows = _rows(rng, 2)
    for broken in ({**rows, "extra": rows["reward"]}, {"obs": rows["obs"]},
                   {**rows, "obs": rows["obs"][:, :2]}):  # fmt: skip
        with pytest.raises(SchemaError):
            replay.add(broken)
    with pytest.raises(SchemaError, match="td_error"):
        replay.update_priorities(np.ones(3, np.float32))
    for n in (0, 49):
        with pytest.raises(SchemaError, match="capacity = 48"):
            replay.add(_rows(rng, n))
    replay.add(rows)
    with pytest.raises(ConfigError, match="beta"):
        replay.sample(1.5)
    assert len(replay) == 2
    for settings in ({"capacity": 0}, {"capacity": 5, "alpha": 2.0}):
        with pytest.raises(ConfigError):
            _replay(**settings)
    with pytest.raises(ConfigError, match="float32 or int32"):
        GpuReplay(EmulatedDevice(), 5, {"obs": (1, "float64")}, 4)
