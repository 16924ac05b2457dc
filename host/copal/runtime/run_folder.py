# SPDX-License-Identifier: MIT
"""The folder of a run: where it is, and which settings hold when it is resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from copal import algorithms
from copal.config import BACKEND_SETTINGS, RESUMABLE, TrainConfig
from copal.errors import CheckpointError, ConfigError, NoSuchRunError, reason
from copal.runtime import files, machine, metrics, own_settings, settings

CONFIG = "config.json"
MACHINE = "machine.json"
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
        UnknownNameError: There is no such algorithm.
    """
    if config.resume is not None:
        return _resumed(config, config.resume, named_settings(config, given))
    out = config.out if config.out is not None else _default(config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            "out",
            "a folder that is new or empty",
            f"`{out}`, which holds files",
            f"choose another one, or go on with it: --resume {out}",
        )
    return settings.settled(dataclasses.replace(config, out=out))


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
        files.write_json(config.out / MACHINE, machine.describe())
    except OSError as e:
        raise ConfigError("out", "a folder that can be written", reason(e), "choose another") from e
    return config.out


def refuse_finished(config: TrainConfig, done: int, named: Collection[str]) -> None:
    """Leaves a run alone that has nothing left to do; reads its folder, writes nothing.

    Args:
        config: The settings that hold, as `settle` gave them.
        done: Env steps of the checkpoint to go on from.
        named: Settings that were named on purpose.

    Raises:
        ConfigError: `steps` asks for no more than was done, or the run is finished.
    """
    if "steps" in named and config.steps <= done:
        raise ConfigError(
            "steps",
            f"more than the {done:,} done",
            f"{config.steps:,}",
            f"give more steps, such as --steps {2 * done}",
        )
    goes_on = done < config.steps and not {"steps", "stop_at_return"}.isdisjoint(named)
    folder = config.out if config.out is not None else Path()
    if not goes_on and _scored(folder) == done:
        raise ConfigError(
            "resume",
            "a run that is not finished",
            f"`{folder}`, finished and scored at {done:,} env steps",
            f"to train on, give more steps, such as --steps {2 * done}; `copal eval {folder}` "
            "scores its policy",
        )


def _scored(folder: Path) -> int | None:
    """Env steps at which the best policy got its last score at the end of a run; None: never."""
    last: int | None = None
    with contextlib.suppress(OSError), (folder / metrics.FILE).open(encoding="utf-8") as lines:
        for line in lines:
            # A kill may have cut the last line.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                last = int(record["env_steps"]) if record["kind"] == "final" else last
    return last


def named_settings(config: TrainConfig, given: Collection[str] | None) -> Collection[str]:
    """`given`, or the settings that differ from their defaults if it is None."""
    if given is not None:
        return given
    defaults = {f.name: f.default for f in dataclasses.fields(TrainConfig)}
    return {name for name, default in defaults.items() if getattr(config, name) != default}


def _default(config: TrainConfig) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    env, algo = (x.replace("/", "-").replace(":", "-") for x in (config.env, config.algo))
    base = Path("runs") / f"{env}__{algo}__{config.seed}__{stamp}"
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
        saved = TrainConfig.from_dict(_today(json.loads((folder / CONFIG).read_text())))
    except (OSError, ValueError, RecursionError) as e:
        if isinstance(e, ConfigError):
            raise
        kind = NoSuchRunError if isinstance(e, FileNotFoundError) else CheckpointError
        raise kind(
            "resume",
            f"a run in `{folder}`",
            reason(e),
            "give the folder that `copal train` printed",
        ) from e
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(TrainConfig):
        wanted, stored = getattr(config, field.name), getattr(saved, field.name)
        if field.name == "algo_settings":
            wanted, stored = _own_settings(saved, wanted)
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
    if chosen["backend"] != saved.backend:
        # Of the run so far, and nothing to this backend.
        chosen |= {name: None for name in BACKEND_SETTINGS if name not in given}
    whole = TrainConfig(**{**chosen, "out": folder, "resume": None})
    return settings.settled(dataclasses.replace(whole, resume=folder))


def _own_settings(
    saved: TrainConfig, wanted: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The run's own settings with `wanted` in their place, and as they were."""
    algorithm = algorithms.get(saved.algo)
    stored = own_settings.recorded(algorithm, saved.algo_settings)
    return own_settings.recorded(algorithm, (*stored, *wanted)), stored


def _today(data: Any) -> dict[str, Any]:
    """The content of a config.json in the names and values of this version.

    Raises:
        ValueError: It is no object.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{CONFIG} holds a {type(data).__name__}")
    if "learner_mode" not in data and data.get("max_grad_norm", 0.0) is None:
        # Version 0.1 wrote None where no clipping was meant.
        return {**data, "max_grad_norm": 0.0}
    return data
