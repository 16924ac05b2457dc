# SPDX-License-Identifier: MIT
"""copal: co-design of parallel actors and learners for deep reinforcement learning."""

__version__ = "0.1.0"
