# SPDX-License-Identifier: MIT
"""What tests of whole runs share: settings without extras, and a look at checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import copal
from copal.runtime import TrainResult
from copal.runtime.checkpoint import CheckpointStore

BARE: dict[str, Any] = {
    "eval_interval": 0,
    "checkpoint_interval": 0,
    "tensorboard": False,
    "quiet": True,
}
"""Nothing beside training."""


def newest(out: Path) -> Any:
    """The newest checkpoint of a run, which has to be whole."""
    return CheckpointStore(out / "checkpoints").newest(pytest.fail)


def cut_at(checkpoint: Path, copy: Path) -> Path:
    """Makes `copy` the folder of a run that ended with this checkpoint of another one."""
    (copy / "checkpoints").mkdir(parents=True)
    shutil.copy(checkpoint.parents[1] / "config.json", copy)
    shutil.copytree(checkpoint, copy / "checkpoints" / checkpoint.name)
    return copy


def resumed_equals(whole: TrainResult, checkpoint: Path, copy: Path) -> None:
    """A run that goes on from a checkpoint of `whole`, in `copy`, ends as that one did."""
    resumed = copal.train(copal.TrainConfig(resume=cut_at(checkpoint, copy), quiet=True))
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert resumed.returns == whole.returns
    same_files(newest(whole.out).path, newest(copy).path)


def same_files(one: Path, two: Path) -> None:
    """All files of two checkpoints are equal byte for byte."""
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name
