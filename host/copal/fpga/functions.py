# SPDX-License-Identifier: MIT
"""exp, log and tanh of the engine's vector lanes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def exp(x: Floats) -> Floats:
    """Exponential of `x`, which is canonical."""
    return np.exp(x.astype(np.float64)).astype(np.float32)


def log(x: Floats) -> Floats:
    """Natural logarithm of `x`, which is canonical."""
    return np.log(x.astype(np.float64)).astype(np.float32)


def tanh(x: Floats) -> Floats:
    """Hyperbolic tangent of `x`, which is canonical."""
    return np.tanh(x.astype(np.float64)).astype(np.float32)
