# SPDX-License-Identifier: MIT
"""Shared by all tests: one thread for each library, no window, short hypothesis deadlines off."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

from hypothesis import settings

settings.register_profile("copal", deadline=None, print_blob=True)
settings.load_profile("copal")
