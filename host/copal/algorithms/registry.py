# SPDX-License-Identifier: MIT
"""Algorithms by name, by dotted path, or registered by the user."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any

from copal.algorithms import defaults
from copal.algorithms.base import Algorithm, Built
from copal.algorithms.building import build
from copal.errors import ConfigError, UnknownNameError

_PARTS = ("name", "config", "defaults", "build")


@dataclass(frozen=True)
class _Own:
    """An algorithm of ours; PyTorch is imported on first use."""

    name: str
    """What the user types."""
    module: str
    """Its file in `copal.algorithms`."""
    kind: str
    """Name of its settings class."""
    defaults: Mapping[str, Any]
    """See `Algorithm.defaults`."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the name decides about."""

    def _file(self) -> Any:
        return importlib.import_module(f"copal.algorithms.{self.module}")

    @property
    def config(self) -> type:
        """Frozen dataclass of the settings."""
        kind: type = getattr(self._file(), self.kind)
        return kind

    def build(
        self, observation_space: Any, action_space: Any, config: Any = None, seed: int = 0
    ) -> Built:
        """See `Algorithm.build`."""
        if config is not None and not isinstance(config, self.config):
            raise ConfigError("config", f"{self.kind} or None", repr(config))
        settings: Any = self.config() if config is None else config
        settings = replace(settings, **self.fixed)
        built: Built = self._file().build(observation_space, action_space, settings, seed)
        return built


def _itself(algorithm: Algorithm) -> Algorithm:
    return algorithm


_OWN = (
    _Own("dqn", "dqn", "DqnConfig", defaults.DQN, {"double": False}),
    _Own("double-dqn", "dqn", "DqnConfig", defaults.DQN, {"double": True}),
    _Own("ddpg", "ddpg", "DdpgConfig", defaults.DDPG),
    _Own("td3", "td3", "Td3Config", defaults.TD3),
    _Own("sac", "sac", "SacConfig", defaults.SAC),
)
_ALGORITHMS: dict[str, Callable[[], Algorithm]] = {a.name: partial(_itself, a) for a in _OWN}

_ALIASES = {"ddqn": "double-dqn", "double_dqn": "double-dqn", "doubledqn": "double-dqn"}


def names() -> tuple[str, ...]:
    """Names that `get` knows, aliases left out."""
    return tuple(_ALGORITHMS)


def get(name: str) -> Algorithm:
    """An algorithm.

    Args:
        name: One of `names()` in any case, or `package.module:object`, looked for in the current
            folder, too.

    Raises:
        UnknownNameError: There is none; lists the near matches.
        ConfigError: The module cannot be imported, or the object is no algorithm.
    """
    if ":" in name:
        return _imported(name)
    key = name.lower()
    key = _ALIASES.get(key, key)
    if key not in _ALGORITHMS:
        hint = "your own one is named by its module: `--algo my_module:algorithm`"
        raise UnknownNameError.of("algo", name, _ALGORITHMS, hint)
    return _ALGORITHMS[key]()


def register(name: str, factory: Callable[[], Algorithm]) -> None:
    """Makes `get(name)` return `factory()`; a name of the user's own may be registered again.

    Args:
        name: Without `:`; compared in lower case.
        factory: Returns an algorithm, a class of one for instance.

    Raises:
        ConfigError: The name is one of ours, or holds a `:`.
    """
    key = name.lower()
    if not key or ":" in key or key in _ALIASES or key in {a.name for a in _OWN}:
        raise ConfigError("name", "a name of your own without `:`", f"`{name}`")
    _ALGORITHMS[key] = lambda: _checked(name, factory())


def build_on_first(
    algorithm: Algorithm, spaces: Sequence[tuple[Any, Any]], config: Any = None, seed: int = 0
) -> Built:
    """Builds an algorithm on the first spaces whose actions it takes.

    Args:
        algorithm: What to build.
        spaces: Pairs of an observation and an action space.
        config: See `Algorithm.build`.
        seed: See `Algorithm.build`.

    Raises:
        ConfigError: It takes the actions of none of them, or refuses something else.
    """
    *others, last = spaces
    for observations, actions in others:
        try:
            return build(algorithm, observations, actions, config, seed)
        except ConfigError as error:
            if error.field != "action_space":
                raise
    return build(algorithm, *last, config, seed)


def _imported(path: str) -> Algorithm:
    module, _, attribute = path.partition(":")
    try:
        with _current_folder():
            found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            found = found()
    except Exception as error:
        raise ConfigError(
            "algo",
            "`package.module:object` that can be imported",
            f"`{path}`: {type(error).__name__}: {error}",
            "run where the module lies, or install its package",
        ) from error
    return _checked(path, found)


def _checked(path: str, found: Any) -> Algorithm:
    missing = [part for part in _PARTS if not hasattr(found, part)]
    if missing:
        raise ConfigError(
            "algo",
            f"an object with {', '.join(_PARTS)}",
            f"`{path}`, a {type(found).__name__} without `{missing[0]}`",
            "docs/new_algorithm.md shows a whole one",
        )
    for part, expected, fits in (
        ("name", "a text that is not empty", lambda v: isinstance(v, str) and v),
        ("config", "a dataclass", lambda v: isinstance(v, type) and is_dataclass(v)),
        ("defaults", "a mapping", lambda v: isinstance(v, Mapping)),
        ("build", "a method", callable),
    ):
        value = getattr(found, part)
        if not fits(value):
            expected = f"an algorithm whose `{part}` is {expected}"
            raise ConfigError("algo", expected, f"`{path}`, {value!r}")
    algorithm: Algorithm = found
    return algorithm


@contextlib.contextmanager
def _current_folder() -> Iterator[None]:
    """The current folder on the import path, where a console script does not look by itself."""
    here = os.getcwd()  # noqa: PTH109  the import path holds text
    if here in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
