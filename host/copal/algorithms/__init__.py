# SPDX-License-Identifier: MIT
"""Algorithms by name. `get("dqn").build(observation_space, action_space)` captures one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from copal.algorithms.base import Algorithm, Built, Columns, Source
from copal.errors import UnknownNameError

__all__ = ["Algorithm", "Built", "Columns", "Source", "get", "names"]


@dataclass(frozen=True)
class _Dqn:
    """DQN or double DQN; PyTorch is imported on first use."""

    name: str
    """What the user types."""
    double: bool
    """Which of the two."""

    @property
    def config(self) -> type:
        """Frozen dataclass of the settings."""
        from copal.algorithms.dqn import DqnConfig

        return DqnConfig

    def build(
        self, observation_space: Any, action_space: Any, config: Any = None, seed: int = 0
    ) -> Built:
        """See `copal.algorithms.dqn.build`; the name decides about `double`."""
        from copal.algorithms import dqn

        config = replace(config or dqn.DqnConfig(), double=self.double)
        return dqn.build(observation_space, action_space, config, seed)


_ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "dqn": lambda: _Dqn("dqn", double=False),
    "double-dqn": lambda: _Dqn("double-dqn", double=True),
}

_ALIASES = {"ddqn": "double-dqn", "double_dqn": "double-dqn"}


def names() -> tuple[str, ...]:
    """Names that `get` knows, aliases left out."""
    return tuple(_ALGORITHMS)


def get(name: str) -> Algorithm:
    """The algorithm called `name`, in any case.

    Raises:
        UnknownNameError: There is none; lists the near matches.
    """
    key = name.lower()
    key = _ALIASES.get(key, key)
    if key not in _ALGORITHMS:
        raise UnknownNameError.of("algo", name, _ALGORITHMS)
    return _ALGORITHMS[key]()
