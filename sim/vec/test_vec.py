# SPDX-License-Identifier: MIT
"""A lane of the vector unit: every operation, flag and predicate, one set of operands a cycle."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from bench import generator, soak
from copal.fpga import floats
from copal.fpga.config import STAGES
from copal.fpga.isa import Vop
from copal.fpga.model import operations
from lanes import begin, check, field
from lanes import floats as random_floats
from parameters import CONFIG

FLAGS = ("x_imm", "y_imm", "x_abs", "x_neg", "y_abs", "y_neg")
FUNCTIONS = (Vop.EXP, Vop.LOG, Vop.TANH)


def operands(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Random inputs of all ports."""
    y = random_floats(rng, count)
    x = np.where(rng.random(count) < 0.2, y ^ rng.integers(0, 4, count, dtype=np.uint32), y[::-1])
    imm = np.where(rng.random(count) < 0.3, y, random_floats(rng, count))
    inputs: dict[str, np.ndarray] = {"x": x, "y": y, "imm": imm}
    for name in FLAGS:
        inputs[name] = (rng.random(count) < 0.2).astype(np.uint32)
    known = [v for v in Vop if CONFIG.functions or v not in FUNCTIONS]
    inputs["vop"] = rng.choice(np.array(known, np.uint32), count)
    inputs["pred"] = rng.integers(0, 3, count)
    inputs["quant"] = (rng.random(count) < 0.2).astype(np.uint32)
    # QUANT takes x as it is.
    for name in ("vop", "pred", *FLAGS):
        inputs[name] = np.where(inputs["quant"] == 1, 0, inputs[name])
    inputs["exponent"] = rng.choice([rng.integers(-256, 256), 0, 12], count)
    return inputs


def expected(inputs: dict[str, np.ndarray]) -> list[tuple[int, int, int, int]]:
    """Not finite, write, integer, result: by the model."""
    out = []
    flags = np.stack([inputs[name] for name in FLAGS], 1)
    with np.errstate(all="ignore"):
        for i in range(len(inputs["x"])):
            x, y, imm = (
                inputs[n][i : i + 1].astype(np.uint32).view(np.float32) for n in ["x", "y", "imm"]
            )
            x_imm, y_imm, x_abs, x_neg, y_abs, y_neg = (int(v) for v in flags[i])
            pred, exponent = int(inputs["pred"][i]), int(inputs["exponent"][i])
            first = operations._signed(imm if x_imm else x, x_abs, x_neg)
            second = operations._signed(imm if y_imm and pred != 2 else y, y_abs, y_neg)
            result = operations._apply(Vop(int(inputs["vop"][i])), first, second, imm, exponent)
            write = bool(np.broadcast_to(operations._predicate(pred, second, imm), 1)[0])
            whole = int(floats.ftoi(first, exponent, 32)[0])
            bits = int(np.asarray(result, np.float32).reshape(-1)[0].view(np.uint32))
            out.append((int(not np.isfinite(first[0])), int(write), whole & 0xFFFFFFFF, bits))
    return out


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def every_operation(dut: Any) -> None:
    """Soak: random operands, flags and predicates; QUANT's integer where it is asked for."""
    begin(dut)
    rng = np.random.default_rng(generator().getrandbits(32))
    for _ in soak():
        inputs = operands(rng, 1500)
        want = expected(inputs)
        quant = inputs["quant"].astype(bool)
        # A lane either gives an integer or a result; the other one is whatever it is.
        for chosen, shift, mask in ((quant, 32, (1 << 32) - 1), (~quant, 0, (1 << 32) - 1)):
            rows = {n: v[chosen] for n, v in inputs.items()}
            rows["exponent"] = field(rows["exponent"], 9)
            kept = [w for w, c in zip(want, chosen, strict=True) if c]
            parts = [w[2] if shift else w[3] for w in kept]
            values = [(p & mask) << shift for p in parts]
            finite_write = [
                (w[0] << 65 if shift else 0) | (0 if shift else w[1] << 64) for w in kept
            ]
            care = (1 << 65 | mask << 32) if shift else (1 << 64 | mask)
            await check(
                Masked(dut, care), rows,
                [v | f for v, f in zip(values, finite_write, strict=True)], STAGES["vec"],
            )  # fmt: skip


class Masked:
    """The lane, with those bits of `out` cleared that do not matter."""

    def __init__(self, dut: Any, care: int) -> None:
        self._dut, self._care = dut, care

    def __getattr__(self, name: str) -> Any:
        return self if name == "out" else getattr(self._dut, name)

    @property
    def value(self) -> int:
        """Bits of `out` that matter."""
        return int(self._dut.out.value) & self._care
