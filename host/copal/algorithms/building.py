# SPDX-License-Identifier: MIT
"""Builds an algorithm, and says what is wrong with one of the user's own."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, get_args

import numpy as np

from copal.algorithms.base import Algorithm, Built, Exploration
from copal.errors import ConfigError, CopalError

_HINT = "docs/new_algorithm.md shows a whole one"
_STORED = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


def build(
    algorithm: Algorithm, observation_space: Any, action_space: Any, config: Any, seed: int = 0
) -> Built:
    """`algorithm.build`, checked; PyTorch's generator is seeded meanwhile and then put back.

    Args:
        algorithm: One of ours or of the user's own.
        observation_space: Gymnasium space of one observation.
        action_space: Gymnasium space of one action; discrete ones are counted from 0.
        config: Settings, an instance of `algorithm.config`.
        seed: Of the initial parameters and of the noise that learners make.

    Raises:
        ConfigError: A space does not fit the algorithm, its `build` raises, or what it returns does
            not fit the spaces.
        CaptureError: A loss cannot be captured.
    """
    from copal.algorithms.networks import seeded

    try:
        # Layers of the user's own, plain nn.Linear for instance, draw from the global generator.
        with seeded(seed):
            built: Any = algorithm.build(observation_space, action_space, config, seed)
    except CopalError:
        raise
    except Exception as error:
        raise _wrong(algorithm, "a `build` that succeeds", _described(error)) from error
    if not isinstance(built, Built):
        expected = "a `build` that returns what `assemble` does"
        raise _wrong(algorithm, expected, type(built).__name__)
    _check_columns(algorithm, built, observation_space)
    _check_acting(algorithm, built, action_space)
    return built


def _check_columns(algorithm: Algorithm, built: Built, observation_space: Any) -> None:
    if set(built.columns) != set(_STORED):
        expected = f"the columns {', '.join(_STORED)}"
        raise _wrong(algorithm, expected, ", ".join(built.columns))
    width = int(np.prod(observation_space.shape))
    for name in ("obs", "next_obs"):
        shape = built.columns[name][0]
        if int(np.prod(shape)) != width:
            raise _wrong(algorithm, f"a column `{name}` of {width} numbers", f"shape {shape}")


def _check_acting(algorithm: Algorithm, built: Built, action_space: Any) -> None:
    """Whether policy, column and exploration go with the environment's actions."""
    box = type(action_space).__name__ == "Box"
    fitting = [k for k in get_args(Exploration) if (k == "epsilon") != box]
    if built.exploration not in fitting:
        raise _wrong(
            algorithm,
            f"an exploration for {action_space}: {' or '.join(fitting)}",
            f"`{built.exploration}`",
        )
    width = int(np.prod(action_space.shape)) if box else 1
    column = ((width,), "float32") if box else ((), "int64")
    if (tuple(built.columns["action"][0]), built.columns["action"][1]) != column:
        got = str(built.columns["action"])
        raise _wrong(algorithm, f"a column `action` of shape and type {column}", got)
    program = built.update.policy
    dtype = "float32" if box else "int32"
    buffers = {b.name: b for b in program.buffers()}
    for role in ("action", "sample") if built.exploration == "policy" else ("action",):
        buffer = buffers.get(program.outputs.get(role, ""))
        found = "none" if buffer is None else f"{buffer.dtype} [B, {buffer.width}]"
        if found != f"{dtype} [B, {width}]":
            expected = f"a policy with the output `{role}`, {dtype} [B, {width}]"
            raise _wrong(algorithm, expected, found)
    if built.exploration == "policy" and all(b.name != "noise" for b in program.inputs):
        raise _wrong(algorithm, "a policy with the input `noise`", "none")


def _wrong(algorithm: Algorithm, expected: str, got: str) -> ConfigError:
    return ConfigError("algo", expected, f"{got}, from `{algorithm.name}`", _HINT)


def _described(error: Exception) -> str:
    """What was raised, and the last line of a file that is not a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).parent)
    own = [f for f in frames if "site-packages" not in f.filename]
    own = [f for f in own if not f.filename.startswith(here)] or own
    place = f" at {own[-1].filename}:{own[-1].lineno}: `{own[-1].line}`" if own else ""
    return f"{type(error).__name__}: {error}{place}"
