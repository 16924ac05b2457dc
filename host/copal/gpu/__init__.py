# SPDX-License-Identifier: MIT
"""The GPU backend: an Update as CUDA kernels, and what runs them: a GPU, or the CPU for tests."""
