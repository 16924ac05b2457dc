# SPDX-License-Identifier: MIT
"""From what an agent says to what an environment takes.

Inside copal a discrete action is counted from 0 and a continuous one lies in [-1, 1]; only here it
gets the environment's own first number, or its own range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from copal.errors import ConfigError


@dataclass(frozen=True)
class Actions:
    """The actions of an environment."""

    kind: Literal["discrete", "box", "other"]
    """`other` is for the algorithm to refuse."""
    count: int = 0
    """Of discrete ones: how many."""
    start: int = 0
    """Of discrete ones: the environment's number of the first."""
    shape: tuple[int, ...] = ()
    """Of a box: shape of one action."""
    low: tuple[float, ...] = ()
    """Of a box: what -1 stands for, flattened."""
    high: tuple[float, ...] = ()
    """Of a box: what 1 stands for, flattened."""
    dtype: str = "int64"
    """What the environment takes."""

    @classmethod
    def of(cls, space: Any) -> Actions:
        """Reads a Gymnasium space.

        Raises:
            ConfigError: A box without finite bounds, which [-1, 1] cannot be scaled to.
        """
        if isinstance(space, spaces.Discrete):
            return cls("discrete", int(space.n), int(space.start), dtype=str(space.dtype))
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            return cls("other")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ConfigError(
                "action_space",
                "finite bounds, which [-1, 1] is scaled to",
                str(space),
                "wrap the environment in gymnasium.wrappers.RescaleAction or ClipAction",
            )
        low, high = (tuple(bound.ravel().tolist()) for bound in (space.low, space.high))
        return cls("box", shape=tuple(space.shape), low=low, high=high, dtype=str(space.dtype))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Actions:
        """Inverse of `to_dict`.

        Raises:
            TypeError: A name is not known, or a value is of another type.
            ValueError: The values do not go together.
        """
        values: dict[str, Any] = dict(data)
        for name in ("shape", "low", "high"):
            values[name] = tuple(values.get(name, ()))
        found = cls(**values)
        widths = {found.width, len(found.low), len(found.high)}
        if (found.kind == "box" and len(widths) > 1) or np.dtype(found.dtype).kind not in "iuf":
            raise ValueError(f"no actions of a box: {found}")
        empty = found.kind == "discrete" and found.count < 1
        if empty or found.kind not in ("box", "discrete", "other"):
            raise ValueError(f"no actions of a known kind: {found}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @property
    def width(self) -> int:
        """Numbers of one action."""
        return math.prod(self.shape)

    def buffer(self, count: int) -> NDArray[Any]:
        """Zeros for `count` actions: int64 [n], or float32 [n, width] of a box."""
        if self.kind == "box":
            return np.zeros((count, self.width), np.float32)
        return np.zeros(count, np.int64)


class Scale:
    """Turns arrays of actions into what the environment takes.

    Args:
        actions: The environment's.
    """

    def __init__(self, actions: Actions) -> None:
        self.actions = actions
        self._box = actions.kind == "box"
        if self._box:
            low, high = (np.array(b, np.float64) for b in (actions.low, actions.high))
            # Halves first: the difference of two huge bounds would overflow.
            dtype = np.dtype(actions.dtype)
            self._centre = (low / 2 + high / 2).astype(dtype)
            self._half = (high / 2 - low / 2).astype(dtype)
            self._low, self._high = low.astype(dtype), high.astype(dtype)

    def __call__(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A new array of n actions in the environment's own numbers.

        Args:
            actions: int64 [n] counted from 0, or float32 [n, width] or [n, *shape] in [-1, 1],
                which are clipped.

        Returns:
            [n] or [n, *shape], of the dtype that the environment takes; the box's bounds hold.
        """
        if not self._box:
            return actions + self.actions.start if self.actions.start else actions.copy()
        # Allocated anew, because an environment may keep or change what it gets.
        sent: NDArray[Any] = actions.reshape(len(actions), -1) * self._half
        sent += self._centre
        np.maximum(sent, self._low, out=sent)
        np.minimum(sent, self._high, out=sent)
        return sent.reshape(len(actions), *self.actions.shape)
