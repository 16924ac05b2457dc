# SPDX-License-Identifier: MIT
"""Saving and loading: exact continuation, and files that are not what they should be."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay import COLUMNS, rows

from copal.errors import CheckpointError
from copal.replay import PrioritizedReplay, UniformReplay

HEADER = 16  # bytes: magic, version, byte order


def go_on(r: PrioritizedReplay, g: np.random.Generator, rounds: int) -> list[bytes]:
    """Works with the buffer and returns all that it gave back."""
    out: list[bytes] = []
    for i in range(rounds):
        n = int(g.integers(1, min(6, r.capacity + 1)))
        data = rows(n, 1000 + 6 * i)
        out.append(r.add(**data, stream=int(g.integers(3))).tobytes())
        if len(r):
            batch = r.sample(7)
            out += [v.tobytes() for _, v in batch.items()]
            out.append(batch.ids.tobytes())
            r.update_priorities(batch.ids, g.standard_normal(7).astype(np.float32))
        out += [r._leaves().tobytes(), repr(r.stats()).encode()]
    return out


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    capacity=st.integers(1, 60),
    n_step=st.integers(1, 4),
    share=st.booleans(),
    fanout=st.sampled_from([2, 16, 64]),
    rounds=st.integers(0, 30),
)
def test_a_loaded_buffer_goes_on_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    capacity: int,
    n_step: int,
    share: bool,
    fanout: int,
    rounds: int,
) -> None:
    """Ids, rows, priorities, weights, pending rows and counters, at any moment of a run."""
    path = tmp_path_factory.mktemp("replay") / "r"
    r = PrioritizedReplay(
        max(capacity, n_step + 1), COLUMNS, n_step=n_step, share_next_obs=share, fanout=fanout,
        seed=seed, alpha=0.7, eps=0.01, gamma=0.95,
    )  # fmt: skip
    go_on(r, np.random.default_rng(seed), rounds)
    r.save(path)
    again = PrioritizedReplay.load(path)
    assert again.stats() == r.stats()
    g = seed + 1
    assert go_on(again, np.random.default_rng(g), 20) == go_on(r, np.random.default_rng(g), 20)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    r = PrioritizedReplay(50, COLUMNS, n_step=2)
    r.add(**rows(40))
    r.save(tmp_path / "replay.bin")
    return tmp_path / "replay.bin"


def test_only_filled_rows_are_written(tmp_path: Path) -> None:
    """A huge and nearly empty buffer makes a small file."""
    r = PrioritizedReplay(1_000_000, COLUMNS)
    r.add(**rows(100))
    r.save(tmp_path / "r")
    assert (tmp_path / "r").stat().st_size < 20_000
    assert len(PrioritizedReplay.load(tmp_path / "r")) == 100


def test_saving_replaces_at_once_and_leaves_no_other_file(saved: Path) -> None:
    """The temporary file is renamed, and gone."""
    r = PrioritizedReplay.load(saved)
    r.add(**rows(5))
    r.save(str(saved))
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    assert PrioritizedReplay.load(saved).stats() == r.stats()


def test_a_failed_save_leaves_the_old_file(saved: Path) -> None:
    """Where the target cannot be replaced, nothing is lost and nothing is left behind."""
    folder = saved.parent / "folder"
    folder.mkdir()
    (folder / "inside").touch()
    before = saved.read_bytes()
    with pytest.raises(CheckpointError, match="untouched"):
        PrioritizedReplay.load(saved).save(folder)
    with pytest.raises(CheckpointError):
        PrioritizedReplay.load(saved).save(saved.parent / "missing" / "r")
    assert saved.read_bytes() == before
    assert sorted(p.name for p in saved.parent.iterdir()) == ["folder", saved.name]


def cut(data: bytes, at: float) -> bytes:
    return data[: int(len(data) * at)]


def flip(data: bytes, at: float) -> bytes:
    i = int(len(data) * at)
    return data[:i] + bytes([data[i] ^ 16]) + data[i + 1 :]


BAD_FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "another file"),
    "foreign": (lambda d: b"PK\x03\x04" + d, "another file"),
    "header only": (lambda d: d[:HEADER], "too early"),
    "half a header": (lambda d: d[: HEADER - 6], "too early"),
    "half": (lambda d: cut(d, 0.5), "too early"),
    "without its last byte": (lambda d: d[:-1], "too early"),
    "older version": (lambda d: d[:8] + struct.pack("=I", 0) + d[12:], "version 2, got 0"),
    "newer version": (lambda d: d[:8] + struct.pack("=I", 9) + d[12:], "version 2, got 9"),
    "other byte order": (lambda d: d[:12] + d[12:16][::-1] + d[16:], "byte order"),
    "flipped bit in the rows": (lambda d: flip(d, 0.6), "checksum|section|bytes"),
    "flipped bit near the end": (lambda d: flip(d, 0.97), "checksum|section|bytes|streams"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_recognised(saved: Path, case: str) -> None:
    """Truncated, damaged, foreign and other versions: an error that says which."""
    damage, text = BAD_FILES[case]
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(CheckpointError, match=text):
        PrioritizedReplay.load(saved)


def test_any_single_flipped_byte_is_noticed(saved: Path) -> None:
    """Nothing in the file is unprotected."""
    data = saved.read_bytes()
    for i in np.random.default_rng(0).integers(0, len(data), 200):
        saved.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(CheckpointError):
            PrioritizedReplay.load(saved)


def test_missing_file_and_other_kind(saved: Path) -> None:
    """The error names the file, or the class to use."""
    with pytest.raises(CheckpointError, match="nowhere"):
        PrioritizedReplay.load(saved.parent / "nowhere")
    with pytest.raises(CheckpointError, match=r"PrioritizedReplay\.load"):
        UniformReplay.load(saved)


@pytest.mark.parametrize("path", ["a\0b", "\ud800", 5, None])
def test_what_is_no_path(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written under a part of the name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="path"):
        PrioritizedReplay(10, COLUMNS).save(path)
    with pytest.raises(CheckpointError, match="path"):
        PrioritizedReplay.load(path)
    assert list(tmp_path.iterdir()) == []


def test_uniform_buffer_is_saved_too(tmp_path: Path) -> None:
    """With its own settings."""
    r = UniformReplay(10, COLUMNS, seed=4)
    r.add(**rows(10))
    r.save(tmp_path / "u")
    np.testing.assert_array_equal(UniformReplay.load(tmp_path / "u").sample(9).ids, r.sample(9).ids)


def test_saving_while_others_work_is_consistent(tmp_path: Path) -> None:
    """A snapshot between calls: every row whole, the root the sum of the leaves."""
    r = PrioritizedReplay(3000, COLUMNS, n_step=2, share_next_obs=True)
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(stream: int) -> None:
        try:
            i = 0
            while not stop.is_set():
                r.add(**rows(16, 16 * i), stream=stream)
                i += 1
                if len(r):
                    batch = r.sample(32)
                    r.update_priorities(batch.ids, np.ones(32, np.float32))
        except BaseException as e:  # noqa: BLE001 - reported by the test
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    try:
        for k in range(10):
            r.save(tmp_path / f"{k}")
    finally:
        stop.set()
        for t in threads:
            t.join(60)
    assert not failures
    for k in range(10):
        loaded: Any = PrioritizedReplay.load(tmp_path / f"{k}")
        assert loaded.total_priority == pytest.approx(
            loaded._leaves().astype(float).sum(), rel=1e-5
        )
        if len(loaded):
            batch = loaded.sample(200)
            np.testing.assert_array_equal(batch["obs"][:, 0], batch["action"])


@pytest.mark.parametrize("settings", [{"n_step": 3}, {"share_next_obs": True}])
def test_a_loaded_buffer_is_saved_alike(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Byte for byte, with streams added in any order."""
    r = PrioritizedReplay(50, COLUMNS, **settings)
    for stream in (7, 2, 40, 3, 11):
        r.add(**rows(4, 10 * stream), stream=stream)
    r.save(tmp_path / "one")
    PrioritizedReplay.load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
