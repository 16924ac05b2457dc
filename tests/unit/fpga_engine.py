# SPDX-License-Identifier: MIT
"""Runs compiled Updates on the engine's model, without stream and driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.fpga.compiler import ExponentFollower, Plan, calibrate
from copal.fpga.compiler.plan import Block, Column, Entry
from copal.fpga.config import Depths, EngineConfig
from copal.fpga.isa import BEATS, Op
from copal.fpga.model import Model
from copal.program import Buffer, Update
from copal.program.noise import with_noise

Array = NDArray[Any]

#: Memories in which every test fits.
LARGE = Depths(
    code=4096, vector=8192, a=16384, b=16384, parameters=8192, bias=1024, mask=16384, range=255
)


def engine(array_size: int = 4, depths: Depths = LARGE, **settings: Any) -> EngineConfig:
    """An engine with few lanes."""
    settings = {"vector_lanes": 2, "adam_lanes": 2, **settings}
    return EngineConfig(array_size, depths=depths, **settings)


class Engine:
    """A model that runs a plan, from memories that are full of old numbers.

    Args:
        plan: What to run.
        parameters: Network name to flat vector.
        rng: Makes the old numbers.

    Attributes:
        gradients: Of the mean loss, of each phase in the last update.
        starts: All parameters before each phase of the last update.
        refreshes: How often integer copies were made again.
    """

    def __init__(
        self, plan: Plan, parameters: Mapping[str, Array], rng: np.random.Generator
    ) -> None:
        self.plan, self.model, self.rng = plan, Model(plan.config), rng
        mem, layout = self.model.memories, plan.layout
        mem.v[:] = rng.normal(size=mem.v.shape) * 100
        for memory in (mem.a, mem.b, mem.g, mem.gb):
            memory[:] = rng.integers(-1000, 1000, memory.shape)
        mem.mask[:] = rng.integers(0, 2, mem.mask.shape)
        for memory, target in ((mem.w, False), (mem.t, True)):
            own = {n: v for n, v in parameters.items() if layout.in_target(n) == target}
            memory[: layout.words] = layout.pack(own)
        self.steps = dict.fromkeys(range(4), 0)
        self.updates, self.refreshes = 0, 0
        self.gradients: dict[int, Array] = {}
        self.starts: dict[int, dict[str, Array]] = {}
        self.follower: ExponentFollower | None = None

    def step(self, columns: Mapping[str, Array]) -> dict[tuple[int, str], Array]:
        """One update; outputs by phase and role, [B, width]."""
        plan, memories = self.plan, self.model.memories
        columns = with_noise(plan.update, columns, self.updates)
        if self.follower is None:
            exponents = calibrate(plan, self.parameters(), columns, self.updates)
            self.follower = ExponentFollower(plan, exponents)
            self._load_code()
            self._run(plan.refresh, accumulate=False)
        outputs: dict[tuple[int, str], list[Array]] = {}
        self.gradients, self.starts, ranges = {}, {}, []
        runs = plan.runs(self.updates)
        block: Block | None = None
        for i, run in enumerate(runs):
            if run.scalars is not None:
                if run.phase is not None:
                    self.steps[run.scalars] += 1
                    self.gradients[run.phase] = self._gradient(run.phase, run.entry)
                at = slice(16 * run.scalars, 16 * run.scalars + 16)
                memories.k[at, 0] = plan.scalars(run.scalars, max(self.steps[run.scalars], 1))
            elif run.block is not None:
                block = run.block
                self.starts.setdefault(run.phase, self.parameters())
                for column in plan.phases[run.phase].inputs:
                    self._load(column, np.asarray(columns[column.name]), block)
            self._run(run.entry, run.accumulate)
            if run.scalars is not None:
                ranges.append(memories.range[: len(plan.scales), 0].copy())
            elif runs[i + 1].scalars is not None or runs[i + 1].block is not None:
                assert block is not None
                for role, column in plan.phases[run.phase].outputs.items():
                    part = self._dump(column)[: block.rows]
                    outputs.setdefault((run.phase, role), []).append(part)
        changed, refresh = self.follower.follow(ranges)
        if changed:
            self._load_code()
        if refresh:
            self._run(plan.refresh, accumulate=True)
            self.refreshes += 1
        self.updates += 1
        return {key: np.concatenate(parts) for key, parts in outputs.items()}

    def parameters(self) -> dict[str, Array]:
        """Every network's flat vector."""
        mem, layout = self.model.memories, self.plan.layout
        return {
            n: layout.unpack(n, (mem.t if layout.in_target(n) else mem.w)[: layout.words])
            for n in layout.sizes
        }

    def moments(self, network: str) -> tuple[Array, Array]:
        """Both moments of a network, flat."""
        mem, layout = self.model.memories, self.plan.layout
        words = slice(0, layout.words)
        return layout.unpack(network, mem.m[words]), layout.unpack(network, mem.s[words])

    def _run(self, entry: Entry, accumulate: bool) -> None:
        result = self.model.run(entry.pc, accumulate)
        where = self.plan.instructions[result.pc]
        assert result.error == 0, f"{result} at {where}"
        assert result.cycles == entry.cycles

    def _load_code(self) -> None:
        code = self.plan.encode(self.follower.exponents).reshape(-1, BEATS)
        self.model.memories.code[: len(code)] = code

    def _load(self, column: Column, values: Array, block: Block) -> None:
        p = self.plan.config.array_size
        rows = values.reshape(len(values), -1)[block.first : block.first + block.rows]
        padded = np.zeros((column.width, self.plan.stride * p), np.float32)
        padded[:, : block.rows] = rows.T
        words = padded.reshape(-1, p)
        self.model.memories.v[column.address : column.address + len(words)] = words

    def _dump(self, column: Column) -> Array:
        words = column.width * self.plan.stride
        found = self.model.memories.v[column.address : column.address + words]
        return found.reshape(column.width, -1).T.copy()

    def _gradient(self, phase: int, entry: Entry) -> Array:
        plan, memories = self.plan, self.model.memories
        network = plan.phases[phase].network
        exponents = dict(zip(plan.scales, self.follower.exponents, strict=True))
        summed = np.zeros((plan.layout.words, plan.config.array_size))
        for pc in range(entry.pc, entry.pc + entry.count):
            ins = plan.instructions[pc]
            if ins.op == Op.UPDATE and ins["adam"]:
                field = next(f for f in plan.fields if f.instruction == pc and f.name == "e_g")
                e = field.scale.constant + sum(exponents[n] * k for n, k in field.scale.terms)
                at = slice(ins["p_base"], ins["p_base"] + ins["count"] + 1)
                memory = memories.gb if ins["bias"] else memories.g
                base = ins["b_base"] if ins["bias"] else ins["p_base"]
                summed[at] = memory[base : base + ins["count"] + 1] * 2.0**-e
        flat = summed.reshape(-1)[plan.layout.index(network)]
        return flat / plan.batch_size


def random_batch(
    update: Update, rows: int, rng: np.random.Generator, choices: int = 4
) -> dict[str, Array]:
    """A batch with numbers like those of a training."""
    found: dict[str, Buffer] = {
        b.name: b for p in update.phases for b in p.program.inputs if b.source == "batch"
    }
    columns: dict[str, Array] = {}
    for name, buffer in found.items():
        shape = (rows, buffer.width)
        if buffer.dtype == "int32":
            columns[name] = rng.integers(0, choices, shape)
        elif name == "terminated":
            columns[name] = (rng.random(shape) < 0.2).astype(np.float32)
        elif name in ("discount", "weight"):
            columns[name] = rng.uniform(0.5, 1, shape).astype(np.float32)
        else:
            columns[name] = rng.normal(size=shape).astype(np.float32)
    return columns
