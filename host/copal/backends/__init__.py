# SPDX-License-Identifier: MIT
"""Backends: what runs an Update. `require("cpu")` gives one or says why not."""

from copal.backends.base import Backend, Learner, LearnerState
from copal.backends.registry import devices, get, learner, names, require

__all__ = [
    "Backend",
    "Learner",
    "LearnerState",
    "devices",
    "get",
    "learner",
    "names",
    "require",
]
