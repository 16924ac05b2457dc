# SPDX-License-Identifier: MIT
"""Replay buffers."""

from copal.replay.buffer import Batch, PrioritizedReplay, UniformReplay
from copal.replay.schedule import LinearSchedule

__all__ = ["Batch", "LinearSchedule", "PrioritizedReplay", "UniformReplay"]
