# SPDX-License-Identifier: MIT
"""Between the settings of a run and those of its algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from copal import algorithms
from copal.algorithms import Algorithm
from copal.config import TrainConfig, resolve
from copal.errors import ConfigError

T = TypeVar("T")

#: Settings that an algorithm may have and may lack.
ALGORITHM_SETTINGS = (
    "hidden",
    "learning_rate",
    "actor_learning_rate",
    "huber",
    "max_grad_norm",
    "target_tau",
    "target_update_interval",
    "reward_scale",
    "normalize_observations",
    "policy_delay",
    "target_noise",
    "target_noise_clip",
    "initial_temperature",
    "target_entropy",
    "autotune",
)

#: Setting to the one way of exploring that uses it, `Built.exploration`, and to what has that.
EXPLORATION_SETTINGS: Mapping[str, tuple[str, str]] = {
    "epsilon_start": ("epsilon", "algorithms with discrete actions: dqn, double-dqn"),
    "epsilon_end": ("epsilon", "algorithms with discrete actions: dqn, double-dqn"),
    "epsilon_fraction": ("epsilon", "algorithms with discrete actions: dqn, double-dqn"),
    "exploration_noise": ("gaussian", "deterministic policies: ddpg, td3"),
}

_DEFAULTS = {f.name: f.default for f in dataclasses.fields(TrainConfig)}


def known(value: T | None) -> T:
    """A setting that is never None after `settled`.

    Raises:
        ConfigError: It is None all the same.
    """
    if value is None:
        raise ConfigError("config", "settings as `settled` gives them", "None")
    return value


def settled(config: TrainConfig) -> TrainConfig:
    """The settings with the algorithm's own values in place of None.

    Raises:
        UnknownNameError: There is no such algorithm.
        ConfigError: Values do not go together.
    """
    algorithm = algorithms.get(config.algo)
    return resolve(config, {**_own_defaults(algorithm), **algorithm.defaults})


def algorithm_settings(config: TrainConfig, algorithm: Algorithm) -> Any:
    """An instance of the algorithm's own dataclass, from the settings of the same names.

    Raises:
        ConfigError: A setting is given that the algorithm does not use, or a value is out of range.
    """
    has = _names(algorithm)
    values = {}
    for name in ALGORITHM_SETTINGS:
        value = getattr(config, name)
        if name in has:
            if value is not None:
                values[name] = value
        elif value != _DEFAULTS[name]:
            users = [other for other in algorithms.names() if _uses(other, name)]
            raise _unused(name, value, config.algo, ", ".join(users) or "no algorithm")
    return algorithm.config(**values)


def check_exploration(config: TrainConfig, exploration: str) -> None:
    """Refuses settings of another way of exploring.

    Raises:
        ConfigError: One is given.
    """
    for name, (used_by, users) in EXPLORATION_SETTINGS.items():
        value = getattr(config, name)
        if used_by != exploration and value != _DEFAULTS[name]:
            raise _unused(name, value, config.algo, users)


def _unused(name: str, value: Any, algo: str, users: str) -> ConfigError:
    hint = f"it is a setting of {users}; leave it out"
    return ConfigError(name, f"a setting that `{algo}` uses", f"`{name} = {value}`", hint)


def _own_defaults(algorithm: Algorithm) -> dict[str, Any]:
    """Defaults of the algorithm's dataclass, by the names of TrainConfig."""
    fields = {f.name: f.default for f in dataclasses.fields(algorithm.config)}
    found = {n: fields.get(n) for n in ALGORITHM_SETTINGS if _DEFAULTS[n] is None}
    plain = (bool, int, float, tuple)
    return {name: value for name, value in found.items() if isinstance(value, plain)}


def _uses(other: str, name: str) -> bool:
    return name in _names(algorithms.get(other))


def _names(algorithm: Algorithm) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(algorithm.config))
