# SPDX-License-Identifier: MIT
"""The sequencer: slots of random decoded instructions, fences, the end, resets."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, Timer

from bench import generator, pulse, soak, start
from copal.fpga import tools
from parameters import CONFIG
from structs import Structs

P = CONFIG.array_size
LOG = P.bit_length() - 1
TYPES = {"common::Lane": LOG, "common::Count": 6, "common::Address": 21}
JOBS = Structs(tools.root() / "hls" / "dslx" / "job.x", TYPES)
JOB = JOBS.bits("Job")
BEYOND = 1 << 20


def random_job(rng: random.Random) -> dict[str, Any]:
    """Any counts and strides, also those that run out of every memory."""
    last = rng.randrange(P)
    job: dict[str, Any] = {
        "m": rng.randrange(4), "n": rng.randrange(4), "k": rng.randrange(6), "s": last,
        "s_tail": rng.randrange(P), "s_en": rng.randrange(P), "fence": rng.getrandbits(1),
        "settle": rng.randint(1, 40), "rows": rng.randint(0, P), "lanes": rng.randint(0, P),
        "cols": rng.randrange(3 * P), "mask": rng.randrange(BEYOND), "bias": rng.randrange(4096),
        "flags": {"product": 1, "imm": rng.getrandbits(32)},
    }  # fmt: skip
    for walk in "xyz":
        most = rng.choice([8, 1000, BEYOND])
        job[walk] = {name: rng.randrange(most) for name in ("base", "m", "n", "k")}
    return job


def address(base: int, walk: dict[str, int], m: int, n: int, k: int) -> int:
    """An address; beyond every memory it stays there, wherever it wraps to."""
    at, far = base, 0
    for steps, stride in ((m, walk["m"]), (n, walk["n"]), (k, walk["k"])):
        for _ in range(steps):
            far |= at + stride & BEYOND
            at = at + stride & BEYOND - 1
    return at | far


def slots(job: dict[str, Any], pc: int) -> list[dict[str, int]]:
    """The slots of one instruction."""
    found = []
    for m in range(job["m"] + 1):
        for n in range(job["n"] + 1):
            for k in range(job["k"] + 1):
                tail = k == job["k"]
                found += [
                    {
                        "pc": pc, "s": s, "valid": 1,
                        "en": int(k > 0 or s <= job["s_en"]), "first": int(k == 0 and s == 0),
                        "last": int(tail and s == job["s_tail"]), "n_first": int(n == 0),
                        "inside": int(job["cols"] > m * P + k),
                        "rows": job["rows"] if m == job["m"] else P,
                        "lanes": job["lanes"] if n == job["n"] else P,
                        "bias": job["bias"] + m & 0x1FFF,
                        "x": address(job["x"]["base"], job["x"], m, n, k),
                        "y": address(job["y"]["base"], job["y"], m, n, k),
                        "z": address(job["z"]["base"], job["z"], m, n, k),
                        "mask": address(job["mask"], job["z"], m, n, k),
                    }
                    for s in range(job["s_tail" if tail else "s"] + 1)
                ]  # fmt: skip
    return found


class Bench:
    """Feeds instructions and notes slots with their cycles."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.slots: list[tuple[int, dict[str, int]]] = []
        self.done: int | None = None
        self.cycle = 0

    async def run(self, jobs: list[dict[str, Any]], stall: float, limit: int = 60_000) -> None:
        """Offers `jobs` with pauses until the last one, an END, is done."""
        dut, sent = self.dut, 0
        self.slots, self.done = [], None
        begin = self.cycle
        while self.done is None and self.cycle - begin < limit:
            await FallingEdge(dut.clk)
            offered = sent < len(jobs) and self.rng.random() >= stall
            dut.seq__x_valid.value = int(offered)
            dut.seq__x.value = sent << JOB | JOBS.pack("Job", jobs[sent]) if offered else 0
            await Timer(4, "ns")
            self.cycle += 1
            if dut.seq__y_valid.value:
                slot = JOBS.unpack("Slot", int(dut.seq__y.value))
                if slot["valid"]:
                    self.slots.append((self.cycle, slot))
                if slot["done"]:
                    self.done = self.cycle
            if offered and dut.seq__x_ready.value:
                sent += 1
        await FallingEdge(dut.clk)
        dut.seq__x_valid.value = 0


async def begun(dut: Any) -> Bench:
    """A sequencer after its reset."""
    dut.seq__x.value = dut.seq__x_valid.value = 0
    dut.seq__y_ready.value = 1
    await start(dut.clk, dut.rst)
    return Bench(dut, generator())


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def slots_of_every_loop(dut: Any) -> None:
    """Soak: order, addresses, flags; a fence holds the next instruction back long enough."""
    bench = await begun(dut)
    for i in soak():
        jobs = [random_job(bench.rng) for _ in range(6)]
        await bench.run([*jobs, {"end": 1}], (0.0, 0.5)[i % 2])
        want = [slot for pc, job in enumerate(jobs) for slot in slots(job, pc)]
        got = [{name: slot[name] for name in want[0]} for _, slot in bench.slots]
        assert got == want
        last = {slot["pc"]: cycle for cycle, slot in bench.slots}
        first = {slot["pc"]: cycle for cycle, slot in reversed(bench.slots)}
        settled = max(last[pc] + job["settle"] for pc, job in enumerate(jobs))
        assert bench.done is not None
        assert bench.done > settled
        for pc, job in enumerate(jobs[:-1]):
            if job["fence"]:
                ready = max(last[q] + jobs[q]["settle"] for q in range(pc + 1))
                assert first[pc + 1] > ready, f"{pc + 1} started before the results of {pc}"


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def an_error_makes_no_slot(dut: Any) -> None:
    """A refused instruction is told and has no slots."""
    bench = await begun(dut)
    for error in (1, 2, 3):
        await bench.run([{**random_job(bench.rng), "error": error}], 0.0, limit=60)
        assert not bench.slots
        await pulse(dut.clk, dut.rst)


@cocotb.test(timeout_time=10, timeout_unit="sec")
async def reset_in_an_instruction(dut: Any) -> None:
    """After a reset at any moment the next program runs as if it were the first."""
    bench = await begun(dut)
    for _ in range(15):
        await bench.run([random_job(bench.rng), {"end": 1}], 0.0, bench.rng.randint(1, 80))
        await pulse(dut.clk, dut.rst)
        job = random_job(bench.rng)
        await bench.run([job, {"end": 1}], 0.3)
        assert [slot["x"] for _, slot in bench.slots] == [slot["x"] for slot in slots(job, 0)]
