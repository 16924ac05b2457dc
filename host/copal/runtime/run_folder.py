# SPDX-License-Identifier: MIT
"""The folder of a run: where it is, and which settings hold when it is resumed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from copal.config import RESUMABLE, TrainConfig
from copal.errors import CheckpointError, ConfigError
from copal.runtime import files, machine

CONFIG = "config.json"
CHECKPOINTS = "checkpoints"


def settle(config: TrainConfig, given: Collection[str] | None = None) -> TrainConfig:
    """The settings that hold, with `out` filled in; nothing is written yet.

    Args:
        config: What was asked for.
        given: Settings that were named on purpose, which counts when a run is resumed; None: those
            that differ from their defaults.

    Raises:
        ConfigError: The folder is in use, or a setting contradicts the run that is resumed.
        CheckpointError: The folder to resume holds no run.
    """
    if config.resume is not None:
        defaults = {f.name: f.default for f in dataclasses.fields(TrainConfig)}
        differing = {name for name, default in defaults.items() if getattr(config, name) != default}
        return _resumed(config, config.resume, differing if given is None else given)
    out = config.out if config.out is not None else _default(config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            "out",
            "a folder that is new or empty",
            f"`{out}`, which holds files",
            f"choose another one, or go on with it: --resume {out}",
        )
    return dataclasses.replace(config, out=out)


def prepare(config: TrainConfig) -> Path:
    """Makes the run folder and writes config.json and machine.json into it.

    Raises:
        ConfigError: The folder cannot be written.
    """
    if config.out is None:
        raise ConfigError("out", "a folder", "None")
    try:
        config.out.mkdir(parents=True, exist_ok=True)
        files.write_text(config.out / CONFIG, config.to_json() + "\n")
        files.write_json(config.out / "machine.json", machine.describe())
    except OSError as e:
        raise ConfigError("out", "a folder that can be written", str(e), "choose another") from e
    return config.out


def _default(config: TrainConfig) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    env = config.env.replace("/", "-").replace(":", "-")
    base = Path("runs") / f"{env}__{config.algo}__{config.seed}__{stamp}"
    unique, n = base, 1
    while unique.exists():
        n += 1
        unique = base.with_name(f"{base.name}-{n}")
    return unique


def _resumed(config: TrainConfig, folder: Path, given: Collection[str]) -> TrainConfig:
    if config.out is not None and config.out.resolve() != folder.resolve():
        raise ConfigError(
            "out", f"nothing, or `{folder}` as --resume says", f"`{config.out}`", "drop --out"
        )
    try:
        saved = TrainConfig.from_dict(json.loads((folder / CONFIG).read_text()))
    except (OSError, ValueError) as e:
        if isinstance(e, ConfigError):
            raise
        raise CheckpointError(
            "resume", f"a run in `{folder}`", str(e), "give the folder that `copal train` printed"
        ) from e
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(TrainConfig):
        wanted, stored = getattr(config, field.name), getattr(saved, field.name)
        if field.name == "quiet":
            chosen[field.name] = wanted
        elif field.name not in given:
            chosen[field.name] = stored
        elif field.name in RESUMABLE or wanted == stored:
            chosen[field.name] = wanted
        else:
            raise ConfigError(
                field.name,
                f"`{stored}`, as in the run that is resumed",
                f"`{wanted}`",
                "leave it out, or start a new run",
            )
    return TrainConfig(**{**chosen, "out": folder, "resume": folder})
