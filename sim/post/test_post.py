# SPDX-License-Identifier: MIT
"""A lane of what follows the array: shift, rounding, ReLU, mask, saturation, ranges."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from bench import generator, soak
from copal.fpga.config import STAGES
from lanes import begin, check, field
from parameters import CONFIG

W, WB, ACC = CONFIG.a_bits, CONFIG.b_bits, CONFIG.sum_bits
FLAGS = ("relu", "use_mask", "mask", "to_a", "to_b", "counted")


def clip(x: int, bits: int) -> int:
    """The nearest number of `bits` bits."""
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, x))


def lane(total: int, shift: int, flags: dict[str, bool]) -> int:
    """All bits of `out`, in Python's integers."""
    value = total + (1 << shift >> 1) >> shift
    if (flags["relu"] and value < 0) or (flags["use_mask"] and not flags["mask"]):
        value = 0
    narrow, wide = clip(value, W if flags["to_a"] else WB), clip(value, 32)
    operand = flags["to_a"] or flags["to_b"]
    saturated = flags["counted"] and value != (narrow if operand else wide)
    seen = min(abs(value), (1 << 32) - 1) if flags["counted"] else 0
    out = int(total > 0) << 1 | int(saturated)
    for number, bits in ((seen, 32), (wide, 32), (narrow, WB)):
        out = out << bits | number & (1 << bits) - 1
    return out


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def every_sum(dut: Any) -> None:
    """Soak: sums of all magnitudes, halves and borders, every shift and flag."""
    begin(dut)
    rng = np.random.default_rng(generator().getrandbits(32))
    for _ in soak():
        n = 800
        shift = rng.integers(0, 64, n)
        total = rng.integers(-(1 << ACC - 1), 1 << ACC - 1, n) >> rng.integers(0, ACC, n)
        half = rng.random(n) < 0.3
        edge = rng.choice(
            [
                1 << W - 1,
                -(1 << W - 1),
                1 << WB - 1,
                -(1 << WB - 1),
                0,
                1 << 31,
                -(1 << 31),
                1 << 32,
            ],
            n,
        )
        edge = (
            (edge << np.minimum(shift, 6))
            + rng.integers(-2, 3, n)
            - (1 << np.minimum(shift, 6) >> 1)
        )
        total = np.where(half, np.clip(edge, -(1 << ACC - 1), (1 << ACC - 1) - 1), total)
        flags = {name: rng.random(n) < 0.5 for name in FLAGS}
        want = [
            lane(int(total[i]), int(shift[i]), {name: bool(v[i]) for name, v in flags.items()})
            for i in range(n)
        ]
        inputs = {"sum": field(total, ACC), "shift": shift, **flags}
        await check(dut, inputs, want, STAGES["post"])
