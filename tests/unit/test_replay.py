# SPDX-License-Identifier: MIT
"""The replay buffer's calls: what goes in comes out, and bad input changes nothing."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import copal
from copal.errors import (
    CheckpointError,
    ConfigError,
    EmptyReplayError,
    PriorityError,
    SchemaError,
)
from copal.replay import Batch, PrioritizedReplay, UniformReplay

COLUMNS = {
    "obs": ((3,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "next_obs": ((3,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def rows(n: int, first: int = 0) -> dict[str, np.ndarray]:
    """Rows all values of which tell the row's number."""
    number = np.arange(first, first + n)
    return {
        "obs": np.repeat(number[:, None], 3, 1).astype(np.float32),
        "action": number,
        "reward": number.astype(np.float32),
        "next_obs": np.repeat(number[:, None] + 1, 3, 1).astype(np.float32),
        "terminated": number % 7 == 0,
        "truncated": number % 5 == 0,
    }


def replay(capacity: int = 10, **settings: Any) -> PrioritizedReplay:
    return PrioritizedReplay(capacity, COLUMNS, **settings)


def state(r: PrioritizedReplay) -> tuple[Any, ...]:
    """All that a refused call could have changed, without drawing."""
    return (
        r.next_id,
        r.stats(),
        r._leaves().tobytes(),
        *(r.column(name).tobytes() for name in COLUMNS),
    )


def test_package_exports_the_buffers() -> None:
    """`copal.PrioritizedReplay` is the class that the examples use."""
    assert copal.PrioritizedReplay is PrioritizedReplay
    assert copal.UniformReplay is UniformReplay


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    fanout=st.sampled_from([2, 4, 8, 16, 32, 64]),
)
def test_every_sampled_row_is_one_that_was_added_and_is_alive(
    capacity: int, sizes: list[int], fanout: int
) -> None:
    """Batches of any size wrap around a ring of any size; a batch's columns belong together."""
    r = replay(capacity, fanout=fanout)
    added = 0
    for size in sizes:
        n = min(size, capacity)
        ids = r.add(**rows(n, added))
        np.testing.assert_array_equal(ids, np.arange(added, added + n))
        added += n
    assert len(r) == min(added, capacity)
    batch = r.sample(300)
    assert batch.ids.max() < added
    assert batch.ids.min() >= max(0, added - capacity)
    expected = rows(added)
    for name in COLUMNS:
        np.testing.assert_array_equal(batch[name], expected[name][batch.ids.astype(int)])
        assert batch[name].dtype == np.dtype(COLUMNS[name][1])
    if len(r) < 20:
        assert len(np.unique(batch.ids)) == len(r)  # a row is missed with probability below 1e-5


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64"],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (7, 3, 2)])
def test_any_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    """A column beside others of every item size keeps its values."""
    g = np.random.default_rng(0)
    columns = {"a": ((), "uint8"), "x": (shape, dtype), "b": ((3,), "uint16"), "c": ((), "float64")}
    r = PrioritizedReplay(50, columns)
    x = g.integers(0, 2 if dtype == "bool" else 100, (70, *shape)).astype(dtype)
    data = {
        "x": x,
        "a": g.integers(0, 255, 70).astype(np.uint8),
        "b": g.integers(0, 9, (70, 3)).astype(np.uint16),
        "c": g.random(70),
    }
    r.add(**{k: v[:50] for k, v in data.items()})
    for i in range(50, 70):
        r.add(**{k: v[i] for k, v in data.items()})
    batch = r.sample(100)
    for name, values in data.items():
        np.testing.assert_array_equal(batch[name], values[batch.ids.astype(int)])
    np.testing.assert_array_equal(r.column("x")[19], x[69])


def test_many_columns_in_any_order() -> None:
    """Keywords may come in any order and number, from one call site or several."""
    names = [f"c{i}" for i in range(20)]
    r = PrioritizedReplay(30, dict.fromkeys(names, ((), "int64")))
    for i in range(30):
        order = np.random.default_rng(i).permutation(20)
        r.add(**{names[k]: 100 * i + int(k) for k in order})
    batch = r.sample(50)
    for k, name in enumerate(names):
        np.testing.assert_array_equal(batch[name], 100 * batch.ids.astype(int) + k)


def test_images_are_stored_whole() -> None:
    """Rows of many kilobytes, as Atari frames are."""
    r = PrioritizedReplay(8, {"frame": ((4, 84, 84), "uint8")})
    frames = np.random.default_rng(0).integers(0, 256, (12, 4, 84, 84)).astype(np.uint8)
    for at in range(0, 12, 4):
        r.add(frame=frames[at : at + 4])
    batch = r.sample(20)
    np.testing.assert_array_equal(batch["frame"], frames[batch.ids.astype(int)])


def test_scalars_lists_and_strided_arrays_are_converted() -> None:
    """What an environment returns can be added as it is."""
    r = replay()
    wide = np.arange(12, dtype=np.float32)
    r.add(
        obs=wide[::4],
        action=np.int32(3),
        reward=2,
        next_obs=[1, 2.5, 3],
        terminated=np.bool_(True),
        truncated=False,
    )
    batch = r.sample(1)
    np.testing.assert_array_equal(batch["obs"][0], wide[::4])
    np.testing.assert_array_equal(batch["next_obs"][0], np.float32([1, 2.5, 3]))
    assert [batch[k][0] for k in ("action", "reward", "terminated", "truncated")] == [3, 2, 1, 0]


def test_big_endian_and_read_only_arrays() -> None:
    """Foreign byte order is swapped; arrays need not be writable."""
    r = PrioritizedReplay(4, {"x": ((2,), "int32")})
    x = np.array([1, 2], ">i4")
    x.flags.writeable = False
    r.add(x=x)
    np.testing.assert_array_equal(r.sample(1)["x"][0], [1, 2])


class Raises:
    """Something that cannot become an array."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise OSError("no data")


GOOD = {k: v[0] for k, v in rows(1).items()}
BAD_ADDS: dict[str, tuple[Callable[[], dict[str, Any]], type[Exception], str]] = {
    "unknown column": (lambda: {**GOOD, "observation": 1}, SchemaError, "observation"),
    "name beyond UTF-8": (lambda: {**GOOD, "\ud800": 1}, SchemaError, "ud800"),
    "near match": (lambda: {**GOOD, "rewards": 1}, SchemaError, "did you mean `reward`"),
    "missing column": (lambda: {"obs": GOOD["obs"]}, SchemaError, "action"),
    "no column": (dict, SchemaError, "obs"),
    "wrong shape": (lambda: {**GOOD, "obs": np.zeros(4, np.float32)}, SchemaError, "shape"),
    "too many axes": (
        lambda: {**GOOD, "obs": np.zeros((1, 1, 3), np.float32)}, SchemaError, "shape"),
    "wrong dtype": (
        lambda: {**GOOD, "obs": np.zeros(3)}, SchemaError, r'astype\("float32"\)'),
    "float to int": (lambda: {**GOOD, "action": 1.5}, SchemaError, "action"),
    "int to bool": (lambda: {**GOOD, "terminated": 1}, SchemaError, "terminated"),
    "overflow": (lambda: {**GOOD, "action": 2**70}, SchemaError, "action"),
    "text": (lambda: {**GOOD, "reward": "high"}, SchemaError, "reward"),
    "nothing": (lambda: {**GOOD, "obs": None}, SchemaError, "obs"),
    "ragged list": (lambda: {**GOOD, "obs": [[1], [2, 3]]}, SchemaError, "obs"),
    "batch beside row": (lambda: {**rows(2), "reward": 1.0}, SchemaError, "batch of 2"),
    "unequal batches": (lambda: {**rows(2), "action": np.arange(3)}, SchemaError, "batch of 3"),
    "zero rows": (lambda: rows(0), SchemaError, "rows"),
    "more than capacity": (lambda: rows(11), SchemaError, "capacity"),
    "NaN priority": (lambda: {**GOOD, "priority": float("nan")}, PriorityError, "position 0"),
    "infinite priority": (
        lambda: {**rows(2), "priority": [1.0, np.inf]}, PriorityError, "position 1"),
    "negative priority": (lambda: {**rows(2), "priority": [1.0, -0.5]}, PriorityError, "-0.5"),
    "priorities of another length": (
        lambda: {**rows(2), "priority": [1.0]}, SchemaError, "priority"),
    "text priority": (lambda: {**GOOD, "priority": "high"}, SchemaError, "priority"),
    "negative stream": (lambda: {**GOOD, "stream": -1}, SchemaError, "stream"),
    "stream beyond 64 bits": (lambda: {**GOOD, "stream": 2**63}, SchemaError, "stream"),
    "array that raises": (lambda: {**GOOD, "obs": Raises()}, SchemaError, r"got OSError: no \w+"),
    "fractional stream": (lambda: {**GOOD, "stream": 0.5}, SchemaError, "stream"),
    "list of streams of another length": (
        lambda: {**rows(2), "stream": [0, 1, 2]}, SchemaError, "stream"),
    "list of fractional streams": (
        lambda: {**rows(2), "stream": [0, 0.5]}, SchemaError, "integers"),
    "list of streams for one row": (lambda: {**GOOD, "stream": [0]}, SchemaError, "one value"),
    "negative stream in a list": (lambda: {**rows(2), "stream": [0, -1]}, SchemaError, "stream"),
    "streams of another length": (
        lambda: {**rows(2), "stream": np.arange(3)}, SchemaError, "stream"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ADDS)
def test_bad_add_raises_and_changes_nothing(case: str) -> None:
    """Each error is typed and names what is wrong; the buffer stays as it was."""
    make, error, text = BAD_ADDS[case]
    r = replay(10)
    r.add(**rows(4))
    before = state(r)
    with pytest.raises(error, match=text):
        r.add(**make())
    assert state(r) == before
    assert r.add(**GOOD) == [4]


def test_unnamed_columns_are_refused() -> None:
    """Order of columns is not part of the interface."""
    with pytest.raises(SchemaError, match="by name"):
        replay().add(np.zeros(3))  # type: ignore[call-arg]


BAD_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no capacity": ({"capacity": 0}, "capacity"),
    "negative capacity": ({"capacity": -5}, "capacity"),
    "fractional capacity": ({"capacity": 1.5}, "capacity"),
    "huge capacity": ({"capacity": 2**40}, "capacity"),
    "alpha above 1": ({"alpha": 1.01}, "alpha"),
    "alpha below 0": ({"alpha": -0.1}, "alpha"),
    "alpha NaN": ({"alpha": float("nan")}, "alpha"),
    "alpha text": ({"alpha": "high"}, "alpha"),
    "eps below 0": ({"eps": -1e-9}, "eps"),
    "eps infinite": ({"eps": float("inf")}, "eps"),
    "eps beyond float": ({"eps": 10**400}, "eps"),
    "rows beyond memory": ({"capacity": 2**32 - 1, "columns": {"x": ((2**27,), "f8")}}, "capacity"),
    "fanout 3": ({"fanout": 3}, "fanout"),
    "fanout 128": ({"fanout": 128}, "fanout"),
    "fanout 1": ({"fanout": 1}, "fanout"),
    "gamma above 1": ({"gamma": 1.5}, "gamma"),
    "n_step 0": ({"n_step": 0}, "n_step"),
    "seed below 0": ({"seed": -1}, "seed"),
    "on_bad": ({"on_bad": "ignore"}, "on_bad"),
    "sharing in too small a ring": (
        {"capacity": 3, "n_step": 3, "share_next_obs": True}, "capacity"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings_out_of_range(case: str) -> None:
    """Construction names the setting."""
    settings, field = BAD_SETTINGS[case]
    with pytest.raises(ConfigError) as caught:
        PrioritizedReplay(**{"capacity": 10, "columns": COLUMNS, **settings})
    assert caught.value.field == field


BAD_COLUMNS: dict[str, tuple[Any, str]] = {
    "none": ({}, "columns"),
    "a list": ([("x", (), "f4")], "columns"),
    "no name": ({"": ((), "f4")}, "columns"),
    "no dtype": ({"x": (3,)}, "x"),
    "unknown dtype": ({"x": ((), "float31")}, "x"),
    "complex": ({"x": ((), "complex64")}, "x"),
    "object": ({"x": ((), object)}, "x"),
    "empty shape": ({"x": ((0,), "f4")}, "x"),
    "no dtype but None": ({"x": ((3,), None)}, "x"),
    "null in a name": ({"a\0b": ((), "f4")}, "columns"),
    "name beyond UTF-8": ({"\ud800": ((), "f4")}, "columns"),
    "dimension beyond 64 bits": ({"x": ((2**70,), "f4")}, "x"),
    "more dimensions than arrays have": ({"x": ((1,) * 70, "f4")}, "x"),
    "reserved": ({"weight": ((), "f4")}, "weight"),
    "too large": ({"x": ((1 << 20, 1 << 20), "f4")}, "x"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_malformed_columns(case: str) -> None:
    """The schema is checked at construction."""
    columns, field = BAD_COLUMNS[case]
    with pytest.raises(SchemaError) as caught:
        PrioritizedReplay(10, columns)
    assert caught.value.field == field


@pytest.mark.parametrize("missing", ["reward", "next_obs", "terminated", "truncated"])
def test_n_step_needs_its_columns(missing: str) -> None:
    """What n-step returns go by must be there under its name; a plain buffer needs none of it."""
    columns = {k: v for k, v in COLUMNS.items() if k != missing}
    with pytest.raises(SchemaError) as caught:
        PrioritizedReplay(10, columns, n_step=3)
    assert caught.value.field == missing
    PrioritizedReplay(10, columns)


def test_sharing_needs_equal_observations() -> None:
    """`obs` and `next_obs` must have the same shape to share memory."""
    with pytest.raises(SchemaError, match="next_obs"):
        PrioritizedReplay(10, {**COLUMNS, "next_obs": ((4,), "float32")}, share_next_obs=True)


def test_empty_buffer_cannot_be_sampled() -> None:
    """A typed error says that rows are missing."""
    with pytest.raises(EmptyReplayError, match="add rows"):
        replay().sample(1)


def test_pending_rows_are_named_when_sampling_too_early() -> None:
    """With n-step returns the first rows are not complete yet; the hint says so."""
    r = replay(n_step=3)
    r.add(
        obs=[0, 0, 0], action=0, reward=0.0, next_obs=[0, 0, 0], terminated=False, truncated=False
    )
    with pytest.raises(EmptyReplayError, match="end_episode"):
        r.sample(1)
    assert len(r) == 0
    assert r.stats()["pending"] == 1


def test_rows_of_priority_zero_cannot_be_drawn() -> None:
    """Without eps a priority of 0 is 0."""
    r = replay(eps=0.0)
    r.add(**rows(3), priority=np.zeros(3))
    with pytest.raises(EmptyReplayError, match="priority 0"):
        r.sample(1)
    r.update_priorities(np.array([1], np.uint64), np.array([2.0], np.float32))
    assert set(r.sample(200).ids) == {1}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda r: r.sample(0), ConfigError, "batch_size"),
        (lambda r: r.sample(-1), ConfigError, "batch_size"),
        (lambda r: r.sample(4, beta=1.5), ConfigError, "beta"),
        (lambda r: r.sample(4, beta=-0.1), ConfigError, "beta"),
        (lambda r: r.sample(4, beta=float("nan")), ConfigError, "beta"),
        (lambda r: r.sample(4, out=3), SchemaError, "out"),
        (lambda r: r.sample(4, out=r.sample(5)), SchemaError, "out"),
        (lambda r: r.sample(), TypeError, "batch_size"),
        (lambda r: r.sample(4, size=3), TypeError, "size"),
        (lambda r: r.sample("a"), ConfigError, "batch_size"),
        (lambda r: r.sample(2.5), ConfigError, "batch_size"),
        (lambda r: r.sample(2**62), ConfigError, "batch_size"),
        (lambda r: r.sample(10**30), ConfigError, "batch_size"),
        (lambda r: r.sample(4, beta="high"), ConfigError, "beta"),
        (lambda r: r.sample(4, beta=10**400), ConfigError, "beta"),
    ],
)
def test_bad_sample(call: Callable[[Any], Any], error: type[Exception], text: str) -> None:
    """Each bad argument is named."""
    r = replay()
    r.add(**rows(4))
    with pytest.raises(error, match=text):
        call(r)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_td_error_names_its_position_and_changes_nothing(bad: float) -> None:
    """Refused before the tree is touched, so no sum is ever poisoned."""
    r = replay()
    ids = r.add(**rows(4))
    before = state(r)
    with pytest.raises(PriorityError, match="position 2"):
        r.update_priorities(ids, np.array([1, 2, bad, 4], np.float32))
    assert state(r) == before
    assert np.isfinite(r.sample(50).weights).all()


@pytest.mark.parametrize("unknown", [4, 7, 2**63, 2**64 - 1])
def test_ids_that_were_never_handed_out(unknown: int) -> None:
    """An error, and not a write past the filled part."""
    r = replay()
    r.add(**rows(4))
    before = state(r)
    with pytest.raises(PriorityError, match="position 1"):
        r.update_priorities(np.array([0, unknown], np.uint64), np.ones(2, np.float32))
    with pytest.raises(PriorityError):
        r.update_priorities([-1, 0], [1.0, 1.0])
    assert state(r) == before


def test_update_of_wrong_shapes_and_dtypes() -> None:
    """Lengths must agree; float ids are refused; lists and float64 errors are converted."""
    r = replay()
    ids = r.add(**rows(4))
    for bad_ids, td in ((ids, np.ones(3)), (ids, np.ones((4, 1))), (ids.astype(float), np.ones(4))):
        with pytest.raises(SchemaError):
            r.update_priorities(bad_ids, td)
    with pytest.raises(SchemaError):
        r.update_priorities(3, 1.0)
    assert r.update_priorities([0, 1], [1.0, 2.0]) == 0
    assert r.update_priorities(ids, np.ones(4)) == 0
    assert r.update_priorities(np.empty(0, np.uint64), np.empty(0, np.float32)) == 0


def test_clipping_bad_priorities() -> None:
    """`on_bad="clip"`: NaN counts as 0, infinity as the largest, and each is counted."""
    r = replay(on_bad="clip", alpha=1.0, eps=0.5)
    ids = r.add(**rows(4), priority=[1.0, -3.0, np.nan, np.inf])
    np.testing.assert_allclose(r._leaves()[:3], [1.5, 0.5, 0.5], rtol=1e-6)
    assert r.stats()["clipped"] == 3
    r.update_priorities(ids, np.array([np.nan, -2, np.inf, 1], np.float32))
    np.testing.assert_allclose(r._leaves()[[0, 1, 3]], [0.5, 2.5, 1.5], rtol=1e-6)
    assert r.stats()["clipped"] == 5
    assert np.isfinite(r.total_priority)
    assert np.isfinite(r.sample(100, beta=1.0).weights).all()


def test_huge_and_tiny_priorities_stay_finite() -> None:
    """Sums cannot overflow, and no row is lost to underflow."""
    r = replay(alpha=1.0, eps=0.0)
    r.add(**rows(4), priority=np.array([3e38, 1e-38, 1e-45, 3e38], np.float32))
    assert np.isfinite(r.total_priority)
    assert (r._leaves() > 0).all()


@settings(max_examples=40, deadline=None)
@given(alpha=st.floats(0.05, 1), eps=st.floats(1e-6, 1), seed=st.integers(0, 2**32))
def test_priority_is_transformed_once(alpha: float, eps: float, seed: int) -> None:
    """(|td| + eps)^alpha, whether given at `add` or by an update; signs do not matter."""
    g = np.random.default_rng(seed)
    r = replay(10, alpha=alpha, eps=eps)
    raw = g.exponential(size=5).astype(np.float32)
    ids = r.add(**rows(5), priority=raw)
    np.testing.assert_allclose(r._leaves(), (raw.astype(float) + eps) ** alpha, rtol=1e-5)
    td = g.standard_normal(5).astype(np.float32)
    r.update_priorities(ids, td)
    np.testing.assert_allclose(r._leaves(), (np.abs(td.astype(float)) + eps) ** alpha, rtol=1e-5)


def test_of_equal_ids_the_last_priority_wins() -> None:
    """Also in one call."""
    r = replay(alpha=1.0, eps=0.0)
    r.add(**rows(3))
    r.update_priorities(np.array([1, 1, 1], np.uint64), np.array([5, 9, 2], np.float32))
    np.testing.assert_allclose(r._leaves(), [1, 2, 1], rtol=1e-6)
    assert r.total_priority == pytest.approx(4, rel=1e-6)


def test_new_rows_enter_at_the_maximum_present() -> None:
    """1 if the buffer is empty, else the largest priority of the rows that are there."""
    r = replay(4, alpha=1.0, eps=0.0)
    ids = r.add(**rows(2))
    np.testing.assert_array_equal(r._leaves(), [1, 1])
    r.update_priorities(ids, np.array([7, 3], np.float32))
    r.add(**rows(1))
    np.testing.assert_allclose(r._leaves(), [7, 3, 7], rtol=1e-6)


@pytest.mark.parametrize("width", [1, 1000])
def test_an_old_outlier_leaves_with_its_row(width: int) -> None:
    """The maximum is over rows present: once an outlier is overwritten, it is forgotten."""
    r = PrioritizedReplay(4, {"x": ((width,), "float32")}, alpha=1.0, eps=0.0)
    ids = [int(r.add(x=np.zeros(width, np.float32))[0]) for _ in range(4)]
    r.update_priorities(ids, [100.0, 1.0, 2.0, 3.0])
    assert r.stats()["max_priority"] == pytest.approx(100, rel=1e-6)
    r.add(x=np.zeros(width, np.float32))  # takes the outlier's slot
    np.testing.assert_allclose(r._leaves(), [3, 1, 2, 3], rtol=1e-6)


def test_stale_updates_are_dropped_and_counted() -> None:
    """A priority never reaches the row that took a slot over."""
    r = replay(4, alpha=1.0, eps=0.0)
    old = r.add(**rows(4))
    r.add(**rows(2, 4))
    assert r.update_priorities(old, np.full(4, 50, np.float32)) == 2
    np.testing.assert_allclose(r._leaves(), [1, 1, 50, 50], rtol=1e-6)
    assert r.stats()["stale_updates"] == 2
    assert r.stats()["updated"] == 2


def test_weights_are_those_of_the_formula() -> None:
    """(N P)^-beta divided by the batch's largest, so at most 1."""
    r = replay(10)
    p = np.random.default_rng(1).exponential(size=10).astype(np.float32)
    ids = r.add(**rows(10))
    r.update_priorities(ids, p)
    for beta in (0.0, 0.4, 1.0):
        batch = r.sample(64, beta=beta)
        probability = (p.astype(float) + 1e-6) ** 0.6
        probability /= probability.sum()
        w = (10 * probability[batch.ids.astype(int)]) ** -beta
        np.testing.assert_allclose(batch.weights, w / w.max(), rtol=1e-5)
        assert batch["weight"] is batch.weights


def test_batch_is_a_mapping_of_columns() -> None:
    """Names, discount and weight; ids are an attribute."""
    r = replay(gamma=0.9)
    r.add(**rows(5))
    batch = r.sample(3)
    names = [*COLUMNS, "discount", "weight"]
    assert isinstance(batch, Batch)
    assert batch.keys() == names == list(batch)
    assert [k for k, _ in batch.items()] == names
    assert dict(batch.items()).keys() == set(names)
    assert len(batch) == 3
    assert "obs" in batch
    assert "ids" not in batch
    assert "weights" in batch
    assert batch["weights"] is batch["weight"]
    np.testing.assert_array_equal(batch["discount"], np.float32([0.9] * 3))
    with pytest.raises(SchemaError, match="reward"):
        batch["rewards"]
    for name in names:
        assert batch[name].ctypes.data % 64 == 0
        assert batch[name].flags.writeable


def test_out_reuses_memory_and_arrays_outlive_their_batch() -> None:
    """`out=` writes into the same arrays; views keep the memory alive by themselves."""
    r = replay()
    r.add(**rows(5))
    batch = r.sample(4)
    obs, ids = batch["obs"], batch.ids
    assert r.sample(4, 0.4, batch) is batch
    assert batch["obs"] is obs
    np.testing.assert_array_equal(obs[:, 0], ids)
    assert r.sample(batch_size=4, out=None) is not batch
    del batch
    np.testing.assert_array_equal(obs[:, 0], ids)


def test_a_batch_of_an_equal_buffer_can_be_reused() -> None:
    """`out` goes by columns, not by buffer."""
    a, b = replay(), replay(20)
    a.add(**rows(5))
    b.add(**rows(5, 100))
    batch = b.sample(4, out=a.sample(4))
    assert (batch["action"] >= 100).all()


def test_columns_are_zero_copy_views() -> None:
    """`column` shows the ring in place, read-only, and NumPy's DLPack takes it."""
    r = replay(4)
    r.add(**rows(2))
    obs = r.column("obs")
    assert obs.shape == (2, 3)
    assert not obs.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        obs[0, 0] = 1
    r.add(**rows(4, 10))
    np.testing.assert_array_equal(obs[:, 0], [12, 13])  # the same memory, overwritten
    np.testing.assert_array_equal(np.from_dlpack(r.column("obs"))[:, 0], [12, 13, 10, 11])
    with pytest.raises(SchemaError, match="unknown"):
        r.column("state")
    del r
    np.testing.assert_array_equal(obs[:, 0], [12, 13])


def test_torch_shares_memory_with_columns_and_batches() -> None:
    """By DLPack, without a copy."""
    torch = pytest.importorskip("torch")
    r = replay(4)
    r.add(**rows(3))
    column = torch.from_dlpack(r.column("reward"))
    assert column.tolist() == [0, 1, 2]
    r.add(**rows(4, 10))
    assert column.tolist() == [11, 12, 13]
    batch = r.sample(5)
    assert torch.from_dlpack(batch["obs"]).data_ptr() == batch["obs"].ctypes.data
    td = torch.tensor([1.0, 2.0])
    assert r.update_priorities(batch.ids[:2], td) == 0


def test_buffers_and_batches_are_freed() -> None:
    """No cycle and no lost reference, also after refused calls; a view keeps its buffer."""
    r = replay(4)
    for i in range(3):
        r.add(**rows(1, i))
    with pytest.raises(SchemaError):
        r.add(obs=np.zeros(3))
    batch = r.sample(2, out=r.sample(2))
    with pytest.raises(SchemaError):
        batch["rewards"]
    view = r.column("obs")
    gone = weakref.ref(r)
    del r, batch
    assert gone() is not None
    del view
    assert gone() is None


def test_nbytes_is_known_at_construction() -> None:
    """Rows and tree together; observations that are shared are stored once."""
    wide = {**COLUMNS, "obs": ((64,), "float32"), "next_obs": ((64,), "float32")}
    plain = PrioritizedReplay(100_000, wide)
    shared = PrioritizedReplay(100_000, wide, share_next_obs=True)
    before = plain.nbytes
    plain.add(**{k: np.zeros((10, *s), d) for k, (s, d) in wide.items()})
    assert plain.nbytes == before
    assert 100_000 * (512 + 14) <= before <= 100_000 * (512 + 14 + 16 + 6)
    assert shared.nbytes < 0.55 * before


def test_same_seed_same_draws() -> None:
    """Draws are a function of seed, history and nothing else."""
    a, b, c = replay(seed=3), replay(seed=3), replay(seed=4)
    for r in (a, b, c):
        r.add(**rows(10))
    first = a.sample(64).ids
    np.testing.assert_array_equal(first, b.sample(64).ids)
    assert (first != c.sample(64).ids).any()
    assert (first != a.sample(64).ids).any()


def test_uniform_replay_ignores_priorities() -> None:
    """The same face: every priority is 1, every weight too."""
    r = UniformReplay(10, COLUMNS)
    ids = r.add(**rows(5), priority=np.arange(5.0))
    assert r.update_priorities(ids, np.arange(5, dtype=np.float32)) == 0
    np.testing.assert_array_equal(r._leaves(), np.ones(5))
    assert (r.sample(50, beta=1.0).weights == 1).all()
    assert r.stats()["updated"] == 5
    with pytest.raises(PriorityError):
        r.update_priorities(ids, np.full(5, np.nan, np.float32))


def test_stats_count_what_happened() -> None:
    """The counters that a run reports."""
    r = replay(4)
    r.add(**rows(3))
    r.add(**rows(3))
    r.sample(5)
    s = r.stats()
    assert (s["rows"], s["inserted"], s["sampled"], s["capacity"]) == (4, 6, 5, 4)
    assert s["total_priority"] == pytest.approx(4)
    assert s["nbytes"] == r.nbytes
    assert r  # a buffer is true, empty or not
    assert replay()


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickle_and_copy_are_refused_with_a_hint(how: Callable[[Any], Any]) -> None:
    """They would hold every row twice; `save` streams."""
    with pytest.raises(CheckpointError, match="save"):
        how(replay())


def test_a_subclass_without_its_constructor_is_an_error() -> None:
    """Not a crash."""

    class Lazy(PrioritizedReplay):
        def __init__(self) -> None:
            pass

    with pytest.raises(ConfigError, match="super"):
        Lazy().sample(1)


def test_a_second_construction_changes_nothing(tmp_path: Path) -> None:
    """Neither the rows nor the settings that `save` writes."""
    r = replay()
    r.add(**rows(4))
    before = state(r)
    with pytest.raises(ConfigError, match="one construction"):
        r.__init__(5, COLUMNS)  # type: ignore[misc]
    assert state(r) == before
    r.save(tmp_path / "r")
    assert state(PrioritizedReplay.load(tmp_path / "r")) == before


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("add", ["self", "stream", "priority", "columns"], ["np.arange", "Returns", "SchemaError"]),
        ("sample", ["self", "batch_size", "beta", "out"], ["weights", "EmptyReplayError"]),
        ("update_priorities", ["self", "ids", "td_error"], ["stale ids", "PriorityError"]),
    ],
)
def test_native_calls_have_help(name: str, parameters: list[str], words: list[str]) -> None:
    """Signature, arguments, result and errors, though no Python function is in the way."""
    call = getattr(PrioritizedReplay, name)
    assert list(inspect.signature(call).parameters) == parameters
    assert all(word in call.__doc__ for word in words)


@pytest.mark.parametrize("name", ["end_episode", "column", "stats"])
def test_other_calls_have_help(name: str) -> None:
    """Each says what it returns."""
    assert "Returns" in getattr(PrioritizedReplay, name).__doc__


def test_class_help_names_what_a_user_needs() -> None:
    """Streams, priorities, the end of an episode, and what an update returns."""
    text = str(PrioritizedReplay.__doc__)
    assert all(word in text for word in ("stream", "priority", "end_episode", "stale ids"))


def test_buffers_and_batches_print_what_they_hold() -> None:
    """Their sizes and columns."""
    columns = {"obs": ((2, 3), "float32"), "done": ((), "bool")}
    r = PrioritizedReplay(10, columns)
    r.add(obs=np.zeros((4, 2, 3), np.float32), done=np.zeros(4, bool))
    assert repr(r) == "PrioritizedReplay(capacity=10, rows=4, columns=['obs', 'done'])"
    assert repr(UniformReplay(5, columns)).startswith("UniformReplay(capacity=5, rows=0, ")
    tail = "discount (64,) float32, weight (64,) float32)"
    assert repr(r.sample(64)) == f"Batch(64 rows: obs (64, 2, 3) float32, done (64,) bool, {tail}"
    assert repr(r.sample(1)).startswith("Batch(1 row: obs (1, 2, 3) float32, ")
    assert "not constructed" in repr(PrioritizedReplay.__new__(PrioritizedReplay))


def test_a_column_named_weights_is_not_hidden() -> None:
    """`weights` means the importance weights only where the schema has no such column."""
    r = PrioritizedReplay(4, {"weights": ((), "int64")})
    r.add(weights=7)
    batch = r.sample(2)
    assert batch["weights"].tolist() == [7, 7]
    assert batch["weight"].tolist() == [1, 1]


@pytest.mark.parametrize("capacity", [0, 2**32, 2**64, 2**70])
def test_the_largest_capacity_is_told(capacity: int) -> None:
    """The true limit, whichever layer finds out."""
    with pytest.raises(ConfigError, match=r"1 to 2\^32 - 1"):
        replay(capacity)


def test_a_tensor_that_requires_grad_is_refused_with_a_hint() -> None:
    """In a column as in an update: `.detach()` is what is missing."""
    torch = pytest.importorskip("torch")
    r = replay()
    ids = r.add(**rows(2))
    grad = torch.ones(3, requires_grad=True)
    with pytest.raises(SchemaError) as caught:
        r.add(**{**GOOD, "obs": grad})
    assert ".detach()" in caught.value.hint
    with pytest.raises(SchemaError) as caught:
        r.update_priorities(ids, grad[:2])
    assert ".detach()" in caught.value.hint
    assert r.update_priorities(ids, grad[:2].detach()) == 0
