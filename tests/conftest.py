# SPDX-License-Identifier: MIT
"""Shared by all tests: one thread a library, no window, no hypothesis deadlines, fresh seeds."""

from __future__ import annotations

import os
import secrets

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("copal", deadline=None, print_blob=True)
settings.load_profile("copal")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fresh seed, printed for the report of a failure."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)
