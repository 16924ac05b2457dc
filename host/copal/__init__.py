# SPDX-License-Identifier: MIT
"""copal: co-design of parallel actors and learners for deep reinforcement learning."""

from copal.replay import LinearSchedule, PrioritizedReplay, UniformReplay

__all__ = ["LinearSchedule", "PrioritizedReplay", "UniformReplay"]

__version__ = "0.1.0"
