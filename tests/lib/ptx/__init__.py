# SPDX-License-Identifier: MIT
"""A PTX interpreter in NumPy: runs what NVRTC emitted, without a GPU.

It checks what a GPU does not: bounds and alignment of every access with the buffer's name, shared
memory read before it is written or used by two threads without a barrier, barriers and shuffles
that not every thread reaches, copies that nobody waited for. It is no model of timing, of the order
in which blocks see each other's writes, or of tensor cores.
"""

from ptx.kinds import PtxError
from ptx.launch import Loaded
from ptx.memory import Memory

__all__ = ["Loaded", "Memory", "PtxError"]
