# SPDX-License-Identifier: MIT
"""Between the settings of a run and those of its algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from copal import algorithms
from copal.algorithms import Algorithm
from copal.config import TrainConfig, resolve
from copal.errors import ConfigError, CopalError
from copal.runtime import own_settings

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
    own = own_settings.recorded(algorithm, config.algo_settings)
    config = dataclasses.replace(config, algo_settings=own)
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
    # An algorithm of the user's own may read what otherwise only the run reads, gamma for instance.
    shared = (_DEFAULTS.keys() & has) - values.keys() - set(ALGORITHM_SETTINGS)
    values |= {n: getattr(config, n) for n in shared if getattr(config, n) is not None}
    values |= own_settings.parse(algorithm, config.algo_settings)
    try:
        return algorithm.config(**values)
    except CopalError:
        raise
    except Exception as e:
        got = f"{type(e).__name__}: {e}"
        expected = f"settings that `{algorithm.config.__name__}` takes"
        raise ConfigError("algo_settings", expected, got) from e


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
