# SPDX-License-Identifier: MIT
"""A lane of the optimiser: Adam, averaging and integer copies, one parameter a cycle."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge

from bench import generator, soak
from copal.fpga import floats
from copal.fpga.config import STAGES
from lanes import begin, check, field
from lanes import floats as random_floats
from parameters import CONFIG

SCALARS = ("beta1", "c1", "beta2", "c2", "alpha", "eps", "tau", "c_tau", "scale")
ROWS = 400


def scalars(rng: np.random.Generator, *, wild: bool) -> np.ndarray:
    """A set of K: of a training run, or any floats."""
    if wild:
        return random_floats(rng, 9).view(np.float32)
    b1, b2, tau, lr = 0.9, 0.999, 0.005, 10.0 ** rng.uniform(-5, -2)
    values = [b1, 1 - b1, b2, 1 - b2, lr, 1e-8, tau, 1 - tau, 1 / 64]
    return np.array(values, np.float32)


def state(rng: np.random.Generator, *, wild: bool) -> dict[str, np.ndarray]:
    """w, t, m, s and a gradient."""
    if wild:
        words = {name: random_floats(rng, ROWS) for name in "wtms"}
    else:
        scale = 2.0 ** rng.integers(-12, 3, (4, ROWS))
        numbers = (rng.normal(size=(4, ROWS)) * scale).astype(np.float32)
        numbers[3] = np.abs(numbers[3]) * 1e-3
        words = {name: row.view(np.uint32) for name, row in zip("wtms", numbers, strict=True)}
    return {**words, "g": rng.integers(-(1 << 31), 1 << 31, ROWS) >> rng.integers(0, 31, ROWS)}


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def every_step(dut: Any) -> None:
    """Soak: what the model computes, for numbers of a run and for any; scalars stay for a while."""
    begin(dut)
    rng = np.random.default_rng(generator().getrandbits(32))
    for i in soak():
        wild = bool(i % 2)
        k, inputs = scalars(rng, wild=wild), state(rng, wild=wild)
        e_g, e_w, e_t = (int(v) for v in rng.integers(-10, 40, 3))
        step, average = int(rng.random() < 0.8), int(rng.random() < 0.8)
        with np.errstate(all="ignore"):
            args = [inputs[n].view(np.float32) for n in "wtms"]
            w, t, m, s = floats.adam(
                *args, inputs["g"].astype(np.int32), k, e_g=e_g, adam=bool(step),
                average=bool(average),
            )  # fmt: skip
            whole = [floats.ftoi(x, e, CONFIG.sum_bits) for x, e in ((w, e_w), (t, e_t))]
        want = []
        for row in range(ROWS):
            word = 0
            for copy in whole:
                word = word << CONFIG.sum_bits | int(copy[row]) & (1 << CONFIG.sum_bits) - 1
            for value in (w, t, m, s):
                word = word << 32 | int(np.float32(value[row]).view(np.uint32))
            want.append(word)
        for _ in range(STAGES["adam"]):
            await FallingEdge(dut.clk)
        fixed = {"step": step, "average": average}
        fixed |= {"e_g": e_g & 511, "e_w": e_w & 511, "e_t": e_t & 511}
        fixed |= {n: int(v.view(np.uint32)) for n, v in zip(SCALARS, k, strict=True)}
        rows = {n: np.full(ROWS, v, object) for n, v in fixed.items()}
        rows |= {n: inputs[n] for n in "wtms"}
        rows["g"] = field(inputs["g"], 32)
        await check(dut, rows, want, STAGES["adam"])
