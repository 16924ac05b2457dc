# SPDX-License-Identifier: MIT
"""What MuJoCo's C library warns of, said once in Python's log instead of each time on stderr.

Left alone it prints the same line for every environment that is made, through the progress bar,
and appends it to a file in the working folder.
"""

from __future__ import annotations

import importlib
import logging
import threading

import gymnasium

_LOG = logging.getLogger("copal.envs.mujoco")
_said: set[str] = set()
_lock = threading.Lock()


def redirect(env_id: str) -> None:
    """Sends MuJoCo's warnings to the log `copal.envs.mujoco` if `env_id` is one of its own.

    A handler that the user has set stays. Deprecated models are no matter of whoever trains on
    them: they are logged at level DEBUG.
    """
    spec = gymnasium.registry.get(env_id)
    if spec is None or "mujoco" not in str(spec.entry_point):
        return
    try:
        mujoco = importlib.import_module("mujoco")
    except ImportError:
        return
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    with _lock:
        if message in _said:
            return
        _said.add(message)
    _LOG.log(logging.DEBUG if "deprecated" in message else logging.WARNING, "%s", message)
