# SPDX-License-Identifier: MIT
"""Measures the FPGA engine: cycles and lane use, predicted rates, simulation speed, gradients."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from copal.backends.base import LearnerState
from copal.backends.cpu import CpuLearner
from copal.backends.fpga import EngineLearner
from copal.bench import fpga_gradient, learner_build, machine
from copal.bench.config import FpgaBench
from copal.bench.runner import say
from copal.bench.table import Report, Row
from copal.errors import ConfigError, CopalError
from copal.fpga import boards
from copal.fpga.compiler import Plan, compile_update
from copal.fpga.config import EngineConfig
from copal.fpga.driver import EngineDriver
from copal.fpga.engine import sized
from copal.fpga.open import TABLE, open_device
from copal.fpga.report import EngineReport

_PERIOD = 2
"""Updates over which the cost of one is averaged: delayed phases run every other one."""
_CPU_S = 0.5


def measure(config: FpgaBench) -> Report:
    """Measures everything that the configuration asks for."""
    described, rows = machine.describe(), list(_engines(config))
    if config.boards:
        rows += list(_boards(config))
    if config.speed:
        rows += list(_speeds(config))
    for algo, env in fpga_gradient.ENVIRONMENTS.items():
        if config.gradient_steps and algo in config.algos:
            say(f"gradients of {algo} on batches of {env}")
            rows += fpga_gradient.measure(algo, env, config.gradient_steps, config.batches)
    return Report(described, {"copal": machine.versions()}, rows)


def network_name(algo: str, hidden: tuple[int, ...]) -> str:
    """What a row's network is called, `8-64-64-4` for DQN."""
    first, last = learner_build.DISCRETE if algo == "dqn" else learner_build.CONTINUOUS
    return "-".join(map(str, (first, *hidden, last)))


def _engines(config: FpgaBench) -> Iterator[Row]:
    for algo in config.algos:
        built = learner_build.build(algo, config.hidden)
        for lanes in config.lanes:
            engine = sized(built.update, config.batch_size, lanes)
            plan = compile_update(built.update, engine, config.batch_size)
            row = _plan_row(algo, config.hidden, plan, config.clock_mhz)
            row["op"], row["source"] = "cycles", "cycle model"
            if lanes in config.rtl_lanes:
                row |= _rtl_cycles(built, plan, config)
            yield row


def _plan_row(algo: str, hidden: tuple[int, ...], plan: Plan, clock_mhz: float) -> Row:
    cycles = statistics.fmean(plan.cycles(u) for u in range(_PERIOD))
    macs = statistics.fmean(plan.macs(u) for u in range(_PERIOD))
    lanes = plan.config.lanes
    return {
        "name": f"{algo} {network_name(algo, hidden)}",
        "batch_size": plan.batch_size,
        "lanes": lanes,
        "cycles": cycles,
        "lane_use": macs / cycles / lanes,
        "clock_mhz": clock_mhz,
        "updates_per_s": clock_mhz * 1e6 / cycles,
    }


def _driver(built: Any, plan: Plan, device: str, clock_mhz: float) -> EngineDriver:
    driver = EngineDriver(open_device(device, plan.config), plan, clock_mhz=clock_mhz)
    EngineLearner(driver, LearnerState.initial(built.update, built.parameters))
    return driver


def _rtl_cycles(built: Any, plan: Plan, config: FpgaBench) -> Row:
    """Cycles of the RTL and bytes over the stream, an update; or why there are none."""
    reason = TABLE.unavailable("sim")
    if reason is not None:
        return {"note": f"RTL not run: {reason}"}
    say(f"building and running the RTL of {plan.config.lanes:,} lanes")
    driver = _driver(built, plan, "sim", config.clock_mhz)
    try:
        batch = learner_build.random_batch(built, plan.batch_size)
        driver.step(batch)
        before = _counts(driver.report)
        for _ in range(_PERIOD):
            driver.step(batch)
        counts = zip(before, _counts(driver.report), strict=True)
        cycles, moved = ((end - begin) / _PERIOD for begin, end in counts)
    finally:
        driver.close()
    macs = statistics.fmean(plan.macs(u) for u in range(_PERIOD))
    return {
        "source": "RTL, simulated",
        "model_cycles": statistics.fmean(plan.cycles(u) for u in range(_PERIOD)),
        "cycles": cycles,
        "lane_use": macs / cycles / plan.config.lanes,
        "updates_per_s": config.clock_mhz * 1e6 / cycles,
        "kilobytes": moved / 1e3,
    }


def _counts(report: EngineReport) -> tuple[int, int]:
    """Cycles, and bytes in both directions, so far."""
    return report.cycles, report.bytes_sent + report.bytes_received


def _boards(config: FpgaBench) -> Iterator[Row]:
    """DQN on each board's preset, at the clock of its design, beside the CPU backend here."""
    for board in boards.BOARDS.values():
        for hidden in ((64, 64), (256, 256)):
            built = learner_build.build("dqn", hidden)
            name = f"dqn {network_name('dqn', hidden)} on {board.name}"
            try:
                plan = compile_update(built.update, board.preset, config.batch_size)
            except ConfigError as error:
                yield {"name": name, "op": "board", "absent": str(error).splitlines()[0]}
                continue
            row = _plan_row("dqn", hidden, plan, board.clock_mhz)
            row |= {"name": name, "op": "board", "source": "cycle model, clock stated"}
            row["cpu_updates_per_s"] = _cpu_rate(built, config)
            yield row | {"ratio": row["updates_per_s"] / row["cpu_updates_per_s"]}


def _rate(step: Callable[[], object], seconds: float) -> float:
    step()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        done += 1
    return done / (time.perf_counter() - began)


def _cpu_rate(built: Any, config: FpgaBench) -> float:
    state = LearnerState.initial(built.update, built.parameters)
    learner = CpuLearner(built.update, state, batch_size=config.batch_size)
    batch = learner_build.random_batch(built, config.batch_size)
    rates = [_rate(partial(learner.step, batch), _CPU_S) for _ in range(config.rounds)]
    return statistics.median(rates)


def _speeds(config: FpgaBench) -> Iterator[Row]:
    """Updates a second of the model and of the simulated RTL, driver included, in turn."""
    for algo in config.algos:
        built = learner_build.build(algo, config.hidden)
        batch = learner_build.random_batch(built, config.batch_size)
        engine: EngineConfig = sized(built.update, config.batch_size, config.lanes[0])
        plan = compile_update(built.update, engine, config.batch_size)
        name = f"{algo} {network_name(algo, config.hidden)}"
        drivers: dict[str, EngineDriver] = {}
        try:
            for device in ("sim", "model"):
                drivers[device] = _driver(built, plan, device, config.clock_mhz)
            rates: dict[str, list[float]] = {device: [] for device in drivers}
            for _ in range(config.rounds):
                for device, driver in drivers.items():
                    rates[device].append(_rate(partial(driver.step, batch), _CPU_S))
            both = zip(rates["model"], rates["sim"], strict=True)
            ratio = statistics.median(m / s for m, s in both)
            for device, values in rates.items():
                row = {"name": f"{name} on {device}", "op": "speed", "lanes": config.lanes[0]}
                row["updates_per_s"] = statistics.median(values)
                yield row | {"ratio": ratio if device == "model" else 1.0}
        except CopalError as error:
            yield {"name": name, "op": "speed", "absent": str(error).splitlines()[0]}
        finally:
            for driver in drivers.values():
                driver.close()
