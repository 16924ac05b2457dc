# SPDX-License-Identifier: MIT
"""The stages of a run, and what each took between two records of its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACTING = ("env", "inference", "insert")
"""Stages of an env step."""
LEARNING = ("sample", "update", "priority", "publish")
"""Stages of an update; `update` is row program and reduce."""
STAGES = (*ACTING, *LEARNING)
_KEYS = {"update": "step_s"}


def stages_between(
    before: Mapping[str, Any], after: Mapping[str, Any], num_envs: int, updates: int
) -> dict[str, float]:
    """Microseconds of each stage that ran between two records of metrics.

    Beside them `gate`, an actor's wait an env step, and `wait`, the learner's wait an update.

    Args:
        before: The earlier record.
        after: The later one.
        num_envs: Environments of an actor.
        updates: Updates between them.
    """
    found = {}
    steps = (after.get("timed_steps", 0) - before.get("timed_steps", 0)) * num_envs
    for names, count in (((*ACTING, "gate"), steps), ((*LEARNING, "wait"), updates)):
        for name in names:
            key = _KEYS.get(name, f"{name}_s")
            if count > 0 and after.get(key) is not None:
                found[name] = (after[key] - (before.get(key) or 0.0)) / count * 1e6
    return found
