# SPDX-License-Identifier: MIT
"""A row of the array: P lanes that sum products, and the shadow from which a tile leaves."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, Timer

from bench import generator, soak, start
from parameters import CONFIG

P, W, WB, ACC = CONFIG.array_size, CONFIG.a_bits, CONFIG.b_bits, CONFIG.sum_bits
COLUMN = W + 16


class Oracle:
    """The row in Python's integers, a step an operand."""

    def __init__(self) -> None:
        self.sums, self.column = [0] * P, 0
        self.full = False
        self.shadow: list[int] = [0] * P
        self.shadow_column = 0

    def step(self, s: dict[str, Any]) -> int:
        """The output that comes with this operand, then the operand's own effect."""
        packed = sum((v & (1 << ACC) - 1) << ACC * j for j, v in enumerate(self.shadow))
        word = (self.shadow_column & (1 << COLUMN) - 1) << ACC * P | packed
        if self.full:
            self.shadow, self.shadow_column = list(self.sums), self.column
        if s["en"]:
            old = [s["bias"]] * P if s["first"] else self.sums
            self.sums = [o + s["a"] * b for o, b in zip(old, s["b"], strict=True)]
            self.column = s["a"] + (0 if s["first"] else self.column)
        self.full = bool(s["last"])
        return word


def pack(s: dict[str, Any]) -> int:
    """An operand as the bits of the channel: first field high, element 0 of an array low."""
    word = s["en"] << 2 | s["first"] << 1 | s["last"]
    word = word << ACC | s["bias"] & (1 << ACC) - 1
    word = word << W | s["a"] & (1 << W) - 1
    packed = sum((v & (1 << WB) - 1) << WB * j for j, v in enumerate(s["b"]))
    return word << WB * P | packed


def operands(rng: np.random.Generator, tiles: int) -> list[dict[str, Any]]:
    """Tiles of random length, some slots without a product, as padding has them."""
    top, top_b, found = 1 << W - 1, 1 << WB - 1, []
    for _ in range(tiles):
        length = int(rng.integers(1, 2 * P + 2))
        products = int(rng.integers(1, length + 1))
        for k in range(max(length, P)):
            operand = {
                "en": int(k < products), "first": int(k == 0),
                "last": int(k == max(length, P) - 1),
                "bias": int(rng.integers(-(1 << 30), 1 << 30)),
                "a": int(rng.integers(-top, top)),
                "b": [int(v) for v in rng.integers(-top_b, top_b, P)],
            }  # fmt: skip
            found.append(operand)
    return found


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def sums_of_tiles(dut: Any) -> None:
    """Soak: sums, bias, column sums; a pause of the operands or of the results loses nothing."""
    rng = np.random.default_rng(generator().getrandbits(32))
    for name in ("row__x", "row__x_valid", "row__y_ready"):
        getattr(dut, name).value = 0
    await start(dut.clk, dut.rst)
    oracle = Oracle()
    for i in soak():
        stall = (0.0, 0.3, 0.8)[i % 3]
        todo = operands(rng, 20)
        want = [oracle.step(s) for s in todo]
        got: list[int] = []
        sent = 0
        while len(got) < len(want):
            await FallingEdge(dut.clk)
            offered = sent < len(todo) and rng.random() >= stall
            dut.row__x_valid.value = int(offered)
            dut.row__x.value = pack(todo[sent]) if offered else 0
            dut.row__y_ready.value = int(rng.random() >= stall)
            # Just before the edge that takes them.
            await Timer(4, "ns")
            if offered and dut.row__x_ready.value:
                sent += 1
            if dut.row__y_valid.value and dut.row__y_ready.value:
                got.append(int(dut.row__y.value))
        assert got == want
        await FallingEdge(dut.clk)
        dut.row__x_valid.value = 0
