# SPDX-License-Identifier: MIT
"""What tests of whole runs share: settings without extras, and a look at checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
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


def runs_of(base: Mapping[str, Any]) -> Callable[..., copal.TrainConfig]:
    """Makes the settings of runs: of the test's folder, with `base` and what it changes."""

    def small(tmp_path: Path, **changes: Any) -> copal.TrainConfig:
        return copal.TrainConfig(**{**base, "out": tmp_path / "run", **changes})

    return small


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


def resumes_exactly(config: copal.TrainConfig, copy: Path, *, every: int) -> TrainResult:
    """A deterministic run and one that goes on from its first checkpoint end the same.

    Args:
        config: The run.
        copy: Folder of the second run, which must be free.
        every: Env steps between two checkpoints.

    Returns:
        The whole run.
    """
    config = replace(config, deterministic=True, checkpoint_interval=every, keep_checkpoints=9)
    whole = copal.train(config)
    middle = sorted((whole.out / "checkpoints").iterdir())[:-1]
    assert middle
    resumed_equals(whole, middle[0], copy)
    return whole


def same_files(one: Path, two: Path) -> None:
    """All files of two checkpoints are equal byte for byte."""
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name
