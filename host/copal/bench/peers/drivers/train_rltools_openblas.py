# SPDX-License-Identifier: MIT
"""RLtools with OpenBLAS's matrix products, which beat MKL's on processors that are not Intel's."""

from __future__ import annotations

import os

import rltools.src.training
import scipy_openblas32

from .protocol import Reply
from .train_rltools import measure


def link_flags(module: str) -> list[str]:
    """What RLtools adds to its compiler's command line instead of the flags for MKL."""
    del module
    folder = scipy_openblas32.get_lib_dir()
    return [
        "-DRL_TOOLS_BACKEND_ENABLE_OPENBLAS",
        "-DRL_TOOLS_DISABLE_UNALIGNED_MEMORY_ALLOCATIONS",
        # The wheel puts a prefix before every name of the library.
        "-Dcblas_sgemm=scipy_cblas_sgemm",
        "-Dcblas_dgemm=scipy_cblas_dgemm",
        f"-I{scipy_openblas32.get_include_dir()}",
        f"-L{folder}",
        f"-l{scipy_openblas32.get_library()}",
        f"-Wl,-rpath,{folder}",
    ]


def main(arguments: list[str], reply: Reply) -> None:
    """Measures RLtools' rate with OpenBLAS."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    rltools.src.training.acceleration_flags = link_flags
    measure(arguments, reply, "openblas")
