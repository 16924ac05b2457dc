# SPDX-License-Identifier: MIT
"""The FPGA learner engine: configuration, instructions, model, devices, compiler, driver."""
