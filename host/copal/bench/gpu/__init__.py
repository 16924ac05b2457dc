# SPDX-License-Identifier: MIT
"""The parts of `copal.bench.gpu_check`."""
