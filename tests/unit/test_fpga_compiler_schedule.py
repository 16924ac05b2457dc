# SPDX-License-Identifier: MIT
"""Fences, order and placement, judged by the addresses in the finished instructions alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from fpga_engine import engine
from test_fpga_compiler import ALGORITHMS, algorithm, dqn_built

from copal.fpga.compiler import Plan, compile_update
from copal.fpga.compiler.code import Entry
from copal.fpga.config import EngineConfig
from copal.fpga.isa import Instruction, Op
from copal.fpga.model.timing import cost

Words = set[tuple[str, int]]


def entries(plan: Plan) -> Iterator[Entry]:
    """All code of a plan."""
    yield plan.refresh
    yield from plan.averages.values()
    for phase in plan.phases:
        yield from (e for e in (phase.step, phase.step_average) if e is not None)
        yield from (e for block in phase.blocks for e in block.runs)


def _grid(base: int, *loops: tuple[int, int]) -> list[int]:
    found = np.array([base])
    for count, stride in loops:
        found = (found[:, None] + np.arange(count) * stride).ravel()
    return [int(v) for v in found]


def accesses(f: Instruction, p: int) -> tuple[Words, Words]:
    """Words that an instruction reads and writes, as docs/hardware.md has it."""
    reads: Words = set()
    writes: Words = set()
    mt, nt, cols = f["mt"] + 1, f["nt"] + 1, f["cols"] + 1
    if f.op == Op.PRODUCT:
        steps = f["kn"] // p + 1
        for memory, loops in (("A", (mt, f["a_m"])), ("B", (nt, f["b_n"]))):
            low = memory.lower()
            tiles = _grid(f[f"{low}_base"], loops, (steps, f[f"{low}_k"]))
            reads |= {(memory, t * p + i) for t in tiles for i in range(p)}
        tiles = _grid(f["c_base"], (mt, f["c_m"]), (nt, f["c_n"]), (p, f["c_i"]))
        for flag, memory in (("to_a", "A"), ("to_b", "B"), ("to_g", "G")):
            writes |= {(memory, c) for c in tiles if f[flag]}
        if f["to_v"]:
            for m in range(mt):
                rows = f["m_tail"] or p if m == mt - 1 else p
                base = f["c_base"] + m * f["c_m"]
                writes |= {("V", c) for c in _grid(base, (nt, f["c_n"]), (rows, f["c_i"]))}
        masks = _grid(f["mask_base"], (mt, f["c_m"]), (nt, f["c_n"]), (p, 1))
        reads |= {("MASK", c) for c in masks if f["use_mask"]}
        writes |= {("MASK", c) for c in masks if f["relu"]}
    elif f.op == Op.VECTOR:
        words = {name: _grid(f[f"{name}_base"], (cols, f[f"{name}_c"]), (nt, 1)) for name in "dxy"}
        writes |= {("V", c) for c in words["d"]}
        reads |= {("V", c) for c in words["x"] if not f["x_imm"]}
        two = f["vop"] in (*range(1, 9), 10, 11) and not f["y_imm"]
        reads |= {("V", c) for c in words["y"] if two or f["pred"]}
    elif f.op == Op.QUANT:
        reads |= {("V", c) for c in _grid(f["x_base"], (f["cols"], f["x_c"]), (nt, 1))}
        tiles = _grid(f["c_base"], (mt, f["c_m"]), (nt, f["c_n"]), (p, 1))
        writes |= {(m, c) for m in "AB" for c in tiles if f[f"to_{m.lower()}"]}
    elif f.op == Op.NORM:
        reads |= {("G", c) for c in _grid(f["p_base"], (f["count"] + 1, 1))}
        writes |= {("V", f["d_base"])}
    elif f.op == Op.BROADCAST:
        writes |= {("V", c) for c in _grid(f["d_base"], (nt, 1))}
    elif f.op == Op.SCALAR:
        reads, writes = {("V", f["x_base"])}, {("K", 0)}
    elif f.op == Op.UPDATE:
        reads |= {("K", 0)}
        count = f["count"] + 1
        writes |= {("W", c) for c in _grid(f["p_base"], (count, 1))}
        for letter in "wt":
            base = f[f"a{letter}_base"]
            copied = f[f"copy_{letter}"] and not f["bias"]
            writes |= {("A", c) for c in _grid(base, (count, 1)) if copied}
    return reads, writes


def ports(f: Instruction) -> set[str]:
    """What an instruction writes through."""
    found = {"post"} if f.op in (Op.PRODUCT, Op.QUANT, Op.UPDATE) else set()
    if f.op in (Op.VECTOR, Op.NORM, Op.BROADCAST) or f["to_v"]:
        found.add("V")
    return found


def check(code: list[Instruction], config: EngineConfig) -> None:
    """Fails where an instruction starts before what it needs is written."""
    now, settled = 0, 0
    flying: list[tuple[Instruction, Words, int]] = []
    for f in code:
        reads, writes = accesses(f, config.array_size)
        for other, written, done in flying:
            if done > now:
                assert not written & reads, f"{f} reads what {other} still writes"
                different = other.op != f.op
                assert not (different and written & writes), f"{f} overtakes {other}"
                assert not (different and ports(other) & ports(f)), f"{f} meets {other}"
        took = cost(f, config)
        now += took.steps
        flying.append((f, writes, now + took.settle))
        settled = max(settled, now + took.settle)
        if took.fence:
            now = max(now, settled)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(("rows", "block"), [(3, None), (18, 8)])
def test_nothing_is_read_before_it_is_written(name: str, rows: int, block: int | None) -> None:
    """All code of all algorithms, in blocks with a rest too."""
    plan = compile_update(algorithm(name).update, engine(), rows, block)
    for entry in entries(plan):
        code = list(plan.instructions[entry.pc : entry.pc + entry.count])
        assert code[-1].op == Op.END
        assert [f for f in code if f.op == Op.END] == code[-1:]
        check(code, plan.config)


def test_a_missing_fence_is_noticed() -> None:
    """The check above can fail."""
    plan = compile_update(dqn_built().update, engine(), 8)
    entry = plan.phases[0].blocks[0].runs[0]
    code = [replace(f, fence=0) for f in plan.instructions[entry.pc : entry.pc + entry.count]]
    with pytest.raises(AssertionError, match=r"still writes|meets"):
        check(code, plan.config)


def test_figures_of_the_issue() -> None:
    """Useful products in 80 % of the lane cycles, and 30,000 cycles of 1,024 lanes."""
    small = EngineConfig(8, vector_lanes=4, adam_lanes=4)
    built = dqn_built(8, 4, (64, 64), max_grad_norm=None)
    plan = compile_update(built.update, replace(small, depths=engine().depths), 64)
    assert plan.macs() == 64 * (3 * (8 * 64 + 64 * 64 + 64 * 4) + 64 * 64 + 64 * 4)
    assert plan.macs() / small.lanes >= 0.8 * plan.cycles()
    large = EngineConfig(32, vector_lanes=8, adam_lanes=16, depths=engine().depths)
    built = dqn_built(8, 4, (256, 256), max_grad_norm=None)
    assert compile_update(built.update, large, 64).cycles() <= 30_000


def test_listing_shows_every_instruction() -> None:
    """A line an instruction, and one an entry."""
    plan = compile_update(dqn_built().update, engine(), 8)
    text = plan.listing()
    assert len(text.splitlines()) == len(plan.instructions) + len(list(entries(plan)))
    assert "gradient q[" in text


def test_parts_of_the_code_do_not_share_permanent_words() -> None:
    """No product or quantisation writes the integers of weights in A."""
    plan = compile_update(algorithm("sac").update, engine(), 8)
    for f in plan.instructions:
        if f.op in (Op.PRODUCT, Op.QUANT):
            _, writes = accesses(f, plan.config.array_size)
            assert all(c >= plan.layout.copy_rows for memory, c in writes if memory == "A")
