# SPDX-License-Identifier: MIT
"""The rotator behind the operand memories: y[i] = x[(i + by) mod P]."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from bench import generator, soak
from copal.fpga.config import STAGES
from lanes import begin, check
from parameters import CONFIG

P, WB = CONFIG.array_size, CONFIG.b_bits


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def every_distance(dut: Any) -> None:
    """Soak: random operands, turned by every distance."""
    begin(dut)
    rng = np.random.default_rng(generator().getrandbits(32))
    for _ in soak():
        by = rng.integers(0, P, 500)
        x = rng.integers(0, 1 << WB, (500, P))
        turned = np.stack([np.roll(row, -int(n)) for row, n in zip(x, by, strict=True)])
        packed = [[sum(int(v) << WB * i for i, v in enumerate(r)) for r in m] for m in (x, turned)]
        inputs = {"by": by, "x": np.array(packed[0], object)}
        await check(dut, inputs, packed[1], STAGES["rotate"])
