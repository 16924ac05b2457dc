# SPDX-License-Identifier: MIT
"""copal: co-design of parallel actors and learners for deep reinforcement learning.

The names below are imported when they are first used, so `import copal` costs nothing and needs
neither torch nor Gymnasium.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from copal.config import TrainConfig
    from copal.replay import LinearSchedule, PrioritizedReplay, UniformReplay
    from copal.runtime import Policy, Score, TrainResult, evaluate, train

    load_policy = Policy.load

_WHERE = {
    "TrainConfig": "copal.config",
    "LinearSchedule": "copal.replay",
    "PrioritizedReplay": "copal.replay",
    "UniformReplay": "copal.replay",
    "Policy": "copal.runtime.policy",
    "Score": "copal.runtime.evaluation",
    "evaluate": "copal.runtime.evaluation",
    "TrainResult": "copal.runtime.result",
    "train": "copal.runtime.trainer",
}

__all__ = [
    "LinearSchedule",
    "Policy",
    "PrioritizedReplay",
    "Score",
    "TrainConfig",
    "TrainResult",
    "UniformReplay",
    "evaluate",
    "load_policy",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "load_policy":
        return __getattr__("Policy").load
    if name not in _WHERE:
        raise AttributeError(f"module `copal` has no attribute `{name}`")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
