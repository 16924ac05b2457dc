# SPDX-License-Identifier: MIT
"""How many there can be of what settings count: beyond these a run would hang or die."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from copal.errors import ConfigError

MOST = 2**62 - 1
"""The largest count of anything."""
MOST_THREADS = 1024
"""Of actors, and of learners: more than any machine has cores."""
MOST_ENVIRONMENTS = 2**16
"""Of all actors together."""
MOST_FRAMES = 1024
"""Of one observation."""
MOST_ROWS = 2**20
"""Of a batch, whose layers are kept for each row."""
MOST_STORED = 2**32 - 1
"""Rows of a replay buffer."""
MOST_REWARDS = 2**16
"""That are summed; each stream keeps as many rows aside."""
MOST_EPISODES = 10**6
"""Of an evaluation."""
MOST_ROUNDS = 1000
"""Of measurements."""
MOST_LAYERS = 64
"""Hidden ones of a network."""
MOST_WIDTH = 2**20
"""Of a hidden layer."""
MOST_WEIGHTS = 2**28
"""Between hidden layers: 1 GiB, of which training keeps five or more copies."""


def at_most(most: int = MOST, hint: str = "", *, least: int = 1) -> dict[str, Any]:
    """Metadata of a setting that counts something.

    Args:
        most: Its largest value.
        hint: What to do about one beyond that; `{cores}` stands for the number of cores.
        least: Its smallest value.
    """
    return {"at_most": most, "at_least": least, "hint": hint}


THREADS = at_most(
    MOST_THREADS, "there are {cores} cores here, and more threads than cores are not faster"
)
"""Bounds of a number of threads."""


def check_count(name: str, value: Any, bounds: Mapping[str, Any] | None = None) -> None:
    """Refuses what is no count, or one that nothing could be done with.

    Args:
        name: Of the setting.
        value: What it was set to.
        bounds: As `at_most` gives them; None: 1 to `MOST`.

    Raises:
        ConfigError: It is no integer, or out of bounds.
    """
    bounds = at_most() if bounds is None else bounds
    least, most = bounds["at_least"], bounds["at_most"]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(name, f"an integer of at least {least}", repr(value))
    if value > most:
        hint = bounds["hint"].format(cores=os.cpu_count())
        raise ConfigError(name, f"an integer of at most {most:,}", f"{value:,}", hint)


def check_hidden(widths: Sequence[int]) -> None:
    """Refuses hidden layers that no memory holds.

    Args:
        widths: Of the layers, in order.

    Raises:
        ConfigError: There is none, or there are too many, or one is too wide.
    """
    if not 1 <= len(widths) <= MOST_LAYERS or not all(1 <= w <= MOST_WIDTH for w in widths):
        expected = f"1 to {MOST_LAYERS} widths from 1 to {MOST_WIDTH:,}"
        raise ConfigError("hidden", expected, str(tuple(widths)), "such as 256 256")
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    if weights > MOST_WEIGHTS:
        raise ConfigError(
            "hidden",
            f"at most {MOST_WEIGHTS:,} weights between the layers, which take "
            f"{MOST_WEIGHTS >> 28} GiB",
            f"{weights:,}",
            "training keeps five or more copies of them: choose smaller widths",
        )
