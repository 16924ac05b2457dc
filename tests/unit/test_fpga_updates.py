# SPDX-License-Identifier: MIT
"""Whole updates of every algorithm: the Verilated RTL against the model, under stalls.

`COPAL_FPGA_UPDATES` is how many updates of each; `make sim` asks for 500.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from fpga_engine import random_batch
from test_fpga_compiler import ALGORITHMS

from copal.fpga.compiler import compile_update
from copal.fpga.config import Depths, EngineConfig
from copal.fpga.driver import EngineDriver
from copal.fpga.memories import Vectors
from copal.fpga.model_device import ModelDevice
from copal.fpga.sim_device import SimDevice

UPDATES = int(os.environ.get("COPAL_FPGA_UPDATES", "3"))
ROWS = 13
CONFIG = EngineConfig(
    array_size=4, vector_lanes=2, adam_lanes=2,
    depths=Depths(
        code=2048, vector=2048, a=8192, b=8192, parameters=2048, bias=256, mask=8192, range=255
    ),
)  # fmt: skip


def assert_same_vectors(found: Vectors, wanted: Vectors, about: str) -> None:
    """Bit for bit."""
    assert found.keys() == wanted.keys()
    for name in found:
        one, other = np.asarray(found[name]), np.asarray(wanted[name])
        np.testing.assert_array_equal(
            one.view(np.uint32), other.view(np.uint32), err_msg=f"{name} {about}"
        )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rtl_makes_the_bits_of_the_model(name: str, rng: np.random.Generator):
    """Priorities, parameters, targets, moments and exponents after every update, and its cycles."""
    built = ALGORITHMS[name]()
    plan = compile_update(built.update, CONFIG, ROWS, None)
    seed = int(rng.integers(1 << 31))
    devices = SimDevice(CONFIG, seed=seed, stall_tx=0.2, stall_rx=0.2), ModelDevice(CONFIG)
    rtl, model = (EngineDriver(device, plan, clock_mhz=100) for device in devices)
    trained = built.update.trained()
    zeros = {n: np.zeros_like(built.parameters[n]) for n in trained}
    for driver in (rtl, model):
        driver.load(built.parameters, zeros, zeros, dict.fromkeys(trained, 0), 0, {})
    for u in range(UPDATES):
        batch = random_batch(built.update, ROWS, rng)
        td_errors = [driver.step(batch) for driver in (rtl, model)]
        assert_same_vectors({"td": td_errors[0]}, {"td": td_errors[1]}, f"in update {u}")
        networks = list(built.parameters)
        assert_same_vectors(rtl.parameters(networks), model.parameters(networks), f"after {u}")
        for one, other in zip(rtl.moments(), model.moments(), strict=True):
            assert_same_vectors(one, other, f"after {u}")
        assert rtl.notes() == model.notes()
        assert rtl.report.cycles == model.report.cycles
    rtl.close()
    model.close()
