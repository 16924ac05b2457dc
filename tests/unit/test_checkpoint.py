# SPDX-License-Identifier: MIT
"""Checkpoint folders: whole or absent, checked file by file, the newest whole one wins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from copal.errors import CheckpointError
from copal.runtime import files
from copal.runtime.checkpoint import MANIFEST, CheckpointStore, manifest_text


def write(store: CheckpointStore, env_steps: int, value: float = 0.0) -> Path:
    """Writes a small checkpoint whose weights all are `value`."""
    with store.writing(env_steps) as folder:
        files.write_arrays(folder / "weights.safetensors", {"q": np.full(1000, value, np.float32)})
        (folder / "replay.bin").write_bytes(os.urandom(4096))
    return store.seal(folder, env_steps, {"env_steps": env_steps})


def refuse(text: str) -> None:
    raise AssertionError(f"no warning expected, got {text}")


def test_round_trip(tmp_path: Path) -> None:
    """Arrays and counters come back as they were written."""
    store = CheckpointStore(tmp_path)
    write(store, 500, 2.5)
    found = store.newest(refuse)
    assert found.counters == {"env_steps": 500}
    np.testing.assert_array_equal(
        found.arrays("weights.safetensors")["q"], np.full(1000, 2.5, np.float32)
    )
    assert found.arrays("best.safetensors") == {}


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """Older checkpoints are dropped once a newer one is whole, also beyond nine digits."""
    store = CheckpointStore(tmp_path, keep=2)
    for steps in (5, 90, 1_000, 20_000_000_000):
        write(store, steps)
    assert [p.name for p in store.folders()] == ["step_020000000000", "step_000000001000"]


@pytest.mark.parametrize("keep", [1, 2])
def test_damaged_future_pushes_out_no_whole_one(tmp_path: Path, keep: int) -> None:
    """A run that went on from before a damaged checkpoint keeps what it writes from there on."""
    store = CheckpointStore(tmp_path, keep)
    write(store, 100)
    (write(store, 900) / "replay.bin").write_bytes(b"short")
    write(store, 200)
    assert store.newest(refuse).counters["env_steps"] == 200
    assert len(store.folders()) <= keep


def test_writing_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    """The later one counts, and no trace of the earlier one stays."""
    store = CheckpointStore(tmp_path, keep=2)
    for value in (1.0, 2.0):
        write(store, 100, value)
    assert store.newest(refuse).arrays("weights.safetensors")["q"][0] == 2.0
    assert [p.name for p in tmp_path.iterdir()] == ["step_000000000100"]


@pytest.mark.parametrize("name", ["weights.safetensors", "replay.bin", "manifest"])
@pytest.mark.parametrize("damage", ["truncated", "missing", "altered"])
def test_damaged_checkpoint_falls_back_and_says_so(tmp_path: Path, name: str, damage: str) -> None:
    """Any file of the newest one damaged in any way leads to the one before it."""
    store = CheckpointStore(tmp_path)
    write(store, 100)
    path = write(store, 200) / name
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "missing":
        path.unlink()
    else:
        content[len(content) // 2] ^= 0x05
        path.write_bytes(content)
    said: list[str] = []
    assert store.newest(said.append).counters["env_steps"] == 100
    assert len(said) == 1
    assert "step_000000000200" in said[0]


def test_all_damaged_raises(tmp_path: Path) -> None:
    """Without a whole one the newest one's fault is the error."""
    store = CheckpointStore(tmp_path)
    said: list[str] = []
    for steps in (100, 200):
        (write(store, steps) / "replay.bin").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="step_000000000200"):
        store.newest(said.append)


def test_other_format_version_is_refused(tmp_path: Path) -> None:
    """A newer format is no damage: nothing older is loaded behind the user's back."""
    store = CheckpointStore(tmp_path)
    write(store, 100)
    path = write(store, 200) / MANIFEST
    manifest = json.loads(path.read_text().split("\n", 1)[1])
    path.write_text(manifest_text({**manifest, "format": 99}))
    with pytest.raises(CheckpointError, match=r"`format`: expected 1, got 99"):
        store.newest(refuse)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    """An empty folder is named in the error."""
    with pytest.raises(CheckpointError, match="none"):
        CheckpointStore(tmp_path / "checkpoints").newest(refuse)


def test_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    """An exception while writing removes the temporary folder."""
    store = CheckpointStore(tmp_path)
    with pytest.raises(OSError, match="disk full"), store.writing(5):
        raise OSError("disk full")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from copal.runtime import checkpoint, files

store = checkpoint.CheckpointStore(Path(sys.argv[1]))
stage, hit = sys.argv[2], [0]

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

def save(steps):
    with store.writing(steps) as folder:
        files.write_arrays(folder / "weights.safetensors", {"q": np.full(99, steps, np.float32)})
        if steps == 2 and stage == "files":
            die()
        (folder / "replay.bin").write_bytes(b"x" * 100_000)
    if steps == 2 and stage == "sync":
        files.sync = die
    if steps == 2 and stage == "rename":
        Path.rename = die
    store.seal(folder, steps, {"env_steps": steps})

save(1)
save(2)
"""


KILLED_AGAIN = """
import os, signal, sys
from pathlib import Path
from copal.runtime.checkpoint import CheckpointStore

store = CheckpointStore(Path(sys.argv[1]), keep=1)
rename, left = Path.rename, [int(sys.argv[2])]

def dying_rename(self, target):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)

for value in (b"first", b"second"):
    with store.writing(7) as folder:
        (folder / "value").write_bytes(value)
    if value == b"second":
        Path.rename = dying_rename
    store.seal(folder, 7, {})
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_kill_while_a_step_is_written_again_leaves_one(tmp_path: Path, renames: int) -> None:
    """SIGKILL before and after the old one is moved aside: it still loads."""
    code = [sys.executable, "-c", KILLED_AGAIN, str(tmp_path), str(renames)]
    assert subprocess.run(code, timeout=60, check=False).returncode == -signal.SIGKILL
    store = CheckpointStore(tmp_path, keep=1)
    assert (store.newest(refuse).path / "value").read_bytes() == b"first"
    write(store, 8)
    assert [p.name for p in tmp_path.iterdir()] == ["step_000000000008"]


@pytest.mark.parametrize("stage", ["files", "sync", "rename"])
def test_kill_in_mid_checkpoint_leaves_the_previous_one(tmp_path: Path, stage: str) -> None:
    """SIGKILL at three places of the second checkpoint; the first loads, the next write sweeps."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), stage], timeout=60)
    assert done.returncode == -signal.SIGKILL
    store = CheckpointStore(tmp_path)
    assert store.newest(refuse).counters["env_steps"] == 1
    write(store, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_000000000001", "step_000000000003"]
