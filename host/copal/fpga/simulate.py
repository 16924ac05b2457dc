# SPDX-License-Identifier: MIT
"""Runs the cocotb test benches in `sim` on the generated RTL: what `copal simulate` does."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Literal

from copal import builds
from copal.errors import ConfigError, UnknownNameError
from copal.fpga import tools
from copal.fpga.config import Depths, EngineConfig

#: Small enough to build and simulate in seconds.
SMALL = EngineConfig(
    array_size=4,
    vector_lanes=2,
    adam_lanes=2,
    depths=Depths(code=16, vector=160, a=256, b=256, parameters=256, bias=24, mask=256, range=8),
)
#: What the small one has not: more lanes of each kind, narrow operands, no functions.
OTHER = replace(
    SMALL,
    array_size=8,
    a_bits=16,
    b_bits=18,
    sum_bits=44,
    vector_lanes=8,
    adam_lanes=4,
    functions=False,
)


@dataclass(frozen=True)
class Dut:
    """A device under test."""

    bench: str
    """Folder of its test bench in `sim`; the test module is `test_<bench>`."""
    top: str
    """Its Verilog module."""
    sources: tuple[str, ...] = ()
    """Verilog files that it consists of; none: all of the engine."""
    config: EngineConfig = SMALL
    """The engine that it is generated for."""


DUTS: Mapping[str, Dut] = {
    **{name: Dut(name, name, (f"{name}.v",)) for name in ("port", "seq", "rotate", "row", "post")},
    **{name: Dut(name, name, (f"{name}.v", "ram.v")) for name in ("vec", "adam")},
    "engine": Dut("engine", "copal_engine"),
    "engine-64": Dut("engine", "copal_engine", config=OTHER),
}


@dataclass(frozen=True)
class SimulateConfig:
    """Verify the engine's RTL: cocotb test benches under random stalls, on Verilator or Icarus."""

    dut: str | None = None
    """Device under test, adam, engine, engine-64, port, post, rotate, row, seq or vec; None: all
    of them."""
    waves: bool = False
    """Record waves, and print where they are."""
    seconds: float = 5.0
    """Seconds of each soak."""
    seed: int | None = None
    """Seed of all random inputs; None: a fresh one, which is printed."""
    simulator: Literal["verilator", "icarus"] = "verilator"
    """Simulator; Icarus has to be installed on the system."""
    out: Path | None = None
    """Folder for builds, logs and waves; None: one in the cache folder."""


@dataclass(frozen=True)
class Result:
    """What came of one device under test."""

    dut: str
    """Its name."""
    tests: int
    """Tests that ran."""
    failed: int
    """Tests that failed; 1 if the simulation itself ended early."""
    seconds: float
    """Wall-clock time, the build included."""
    log: Path
    """What build and simulation printed."""
    waves: Path | None
    """The recorded waves."""


def run(config: SimulateConfig) -> int:
    """Runs what `config` asks for and prints a line a device; exit status 0 or 1."""
    chosen = _chosen(config)
    seed = secrets.randbits(31) if config.seed is None else config.seed
    print(f"seed {seed}, simulator {config.simulator}")
    failed = 0
    for name in chosen:
        result = simulate(name, config, seed)
        failed += result.failed
        passed = result.tests - result.failed
        print(f"{name:10s} {passed} of {result.tests} tests passed, {result.seconds:.0f} s")
        if result.waves is not None:
            print(f"{'':10s} waves: {result.waves}")
        if result.failed:
            print(f"{'':10s} log: {result.log}")
            print(_tail(result.log), file=sys.stderr)
    return int(failed > 0)


def simulate(name: str, config: SimulateConfig, seed: int) -> Result:
    """Builds one device under test and runs its test bench in a process of its own.

    Args:
        name: Of `DUTS`.
        config: Simulator, waves, length of soaks, folder.
        seed: Seed of all random inputs.

    Raises:
        BackendUnavailableError: A tool is missing.
        ConfigError: The folder cannot be written to.
    """
    _require(config.simulator)
    dut = DUTS[name]
    kind = config.simulator + ("-waves" if config.waves else "")
    out = (config.out or tools.cache() / "sim").resolve() / f"{name}-{kind}-{dut.config.digest()}"
    builds.writable(out, "out" if config.out else "COPAL_CACHE")
    with builds.locked(out / ".lock"):
        return _simulated(name, config, seed, out)


def _simulated(name: str, config: SimulateConfig, seed: int, out: Path) -> Result:
    dut, begin = DUTS[name], time.monotonic()
    log, results = out / "log.txt", out / "results.xml"
    results.unlink(missing_ok=True)
    bench = tools.root() / "sim"
    job = {
        "top": dut.top,
        "sources": [str(path) for path in sources(dut, out / "rtl")],
        "includes": [str(out / "rtl")],
        "simulator": config.simulator,
        "out": str(out),
        "waves": config.waves,
        "seed": seed,
        "module": f"test_{dut.bench}",
    }
    folders = [str(bench / dut.bench), str(bench / "lib"), *sys.path]
    environment = {
        **os.environ,
        **(_verilator() if config.simulator == "verilator" else {}),
        "PYTHONPATH": os.pathsep.join(f for f in folders if f),
        "COPAL_SIM_CONFIG": json.dumps(asdict(dut.config)),
        "COPAL_SIM_SECONDS": str(config.seconds),
    }
    with log.open("w") as file:
        command = [sys.executable, str(bench / "lib" / "runner.py"), json.dumps(job)]
        builds.run(command, out, environment=environment, log=file)
    ran, failed = _counts(results)
    waves = next(iter([*out.glob("*.vcd"), *out.glob("*.fst")]), None) if config.waves else None
    return Result(name, ran, failed, time.monotonic() - begin, log, waves)


def sources(dut: Dut, out: Path) -> list[Path]:
    """Generates the Verilog of one device under test and lists its files.

    Raises:
        BackendUnavailableError: The XLS compiler is missing.
    """
    from copal.fpga import rtl

    files = [path for path in rtl.generate(dut.config, out, dut.sources) if path.suffix == ".v"]
    return [path for path in files if not dut.sources or path.name in dut.sources]


def _chosen(config: SimulateConfig) -> list[str]:
    if not 0 <= config.seconds < inf:
        raise ConfigError("seconds", "0 or more, finite", str(config.seconds))
    if config.dut is None:
        return list(DUTS)
    if config.dut not in DUTS:
        raise UnknownNameError.of("dut", config.dut, DUTS)
    return [config.dut]


def _require(simulator: str) -> None:
    bench = ("cocotb", "cocotbext.axi")
    if simulator == "verilator":
        modules = (*tools.SIMULATOR_MODULES, *bench)
        tools.require("simulate", modules, tools.SIMULATOR_PROGRAMS)
    else:
        tools.require("simulate", ("xls", "scipy", *bench), ("iverilog",))


def _verilator() -> dict[str, str]:
    """Environment of Verilator; code that runs once, and is large, is not optimised."""
    found = tools.verilator_environment()
    found["MAKEFLAGS"] += " OPT_FAST=-O1 OPT_GLOBAL=-O1 OPT_SLOW=-O0"
    return found


def _counts(results: Path) -> tuple[int, int]:
    from xml.etree import ElementTree as ET

    try:
        suites = ET.parse(results).getroot()
    except (FileNotFoundError, ET.ParseError):
        return 1, 1
    cases = [case for suite in suites for case in suite.iter("testcase")]
    bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    return max(len(cases), 1), len(bad) if cases else 1


def _tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
