# SPDX-License-Identifier: MIT
"""The algorithms as the tests of the GPU backend run them."""

from __future__ import annotations

import functools

import algorithm_cases
import numpy as np


@functools.cache
def case_of(name: str) -> algorithm_cases.Case:
    """An algorithm at sizes that are always the same: its kernels are compiled once."""
    return algorithm_cases.make(name, np.random.default_rng([7, *name.encode()]))
