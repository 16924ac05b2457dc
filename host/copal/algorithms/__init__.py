# SPDX-License-Identifier: MIT
"""Algorithms by name. `get("sac").build(observation_space, action_space)` captures one."""

from copal.algorithms.base import Algorithm, Built, Columns, CommonConfig, Source
from copal.algorithms.building import build
from copal.algorithms.registry import build_on_first, get, names, register

__all__ = [
    "Algorithm",
    "Built",
    "Columns",
    "CommonConfig",
    "Source",
    "build",
    "build_on_first",
    "get",
    "names",
    "register",
]
