# SPDX-License-Identifier: MIT
"""Builds an engine for a board, as far as the tools at hand go: what `copal build` does.

rtl: Verilog. estimate: resources against the board's, and a proxy of the clock. project: a Vivado
project. bitstream: that project implemented, where Vivado is installed, and recorded.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from copal import builds
from copal.errors import BackendUnavailableError, ConfigError, FpgaError
from copal.fpga import boards, ecp5, rtl, synthesis, tools
from copal.fpga.boards import Board
from copal.fpga.config import ABI, EngineConfig

NAMES = {
    "lut": "LUT",
    "ff": "flip-flops",
    "bram": "block RAM (36 kbit)",
    "uram": "UltraRAM",
    "dsp": "DSP",
}
TOP = "copal_engine"
VIVADO_LIMIT_S = 24 * 3600
"""Longest run of Vivado."""


@dataclass(frozen=True)
class BuildConfig:
    """Build the FPGA engine for a board: Verilog, estimate, Vivado project, bitstream."""

    board: Literal["zcu104", "kv260", "pynq-z2", "ecp5"] = "zcu104"
    """Board; ecp5 is none, but a small engine, placed and routed by open tools."""
    stage: Literal["rtl", "estimate", "project", "bitstream"] = "rtl"
    """How far to go; a stage includes those before it, a project needs no estimate. For ecp5
    `estimate` is the same as `bitstream`."""
    lanes: int | None = None
    """Lanes of the array: 16, 64, 256 or 1024; None: those of the board's preset."""
    out: Path | None = None
    """Folder to write to; None: `build/BOARD`."""
    fmax: bool = True
    """Place and route the small engine as well, for the clock proxy of an estimate: minutes."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(config: BuildConfig) -> int:
    """Does what `config` asks for and prints what came of it; the exit status."""
    out = (config.out or Path("build") / config.board).resolve()
    if config.board == "ecp5":
        told = _ecp5(config, out)
    else:
        board = boards.get(config.board)
        engine = boards.engine(board, config.lanes)
        told = {"board": board.name, "lanes": engine.lanes, "out": str(out)}
        files = write_rtl(engine, builds.writable(out, "out"))
        told["rtl"] = [path.name for path in files]
        if config.stage == "estimate":
            told |= estimate(board, engine, out, files, proxy=config.fmax)
        elif config.stage != "rtl":
            told["project"] = [path.name for path in write_project(board, out)]
        if config.stage == "bitstream":
            told["bitstream"] = implement(board, engine, out)
    print(json.dumps(told) if config.json else _text(told))
    if told.get("too_large"):
        raise FpgaError(
            "lanes", f"an engine that fits {config.board}", "; ".join(told["too_large"]),
            "take fewer lanes (--lanes) or smaller memories",
        )  # fmt: skip
    return 0


def _ecp5(config: BuildConfig, out: Path) -> dict[str, Any]:
    """The Verilog of the small engine, or all that open tools make of it.

    Raises:
        ConfigError: Another size or a Vivado project is asked for.
    """
    if config.lanes not in (None, ecp5.ENGINE.lanes):
        raise ConfigError("lanes", f"{ecp5.ENGINE.lanes}, or none, on ecp5", str(config.lanes))
    if config.stage == "project":
        raise ConfigError(
            "stage", "rtl, estimate or bitstream on ecp5", "project", "Vivado knows no ECP5"
        )
    builds.writable(out, "out")
    if config.stage != "rtl":
        return _routed(ecp5.build(out))
    files = write_rtl(ecp5.ENGINE, out)
    told = {"board": "ecp5", "lanes": ecp5.ENGINE.lanes, "out": str(out)}
    return {**told, "rtl": [path.name for path in files]}


def write_rtl(engine: EngineConfig, out: Path) -> list[Path]:
    """Writes all Verilog of an engine into `out/rtl`, and `out/engine.json` which describes it."""
    folder = out / "rtl"
    shutil.rmtree(folder, ignore_errors=True)
    files = []
    for path in rtl.generate(engine, folder):
        if path.parent != folder:
            shutil.copy(path, folder / path.name)
        files.append(folder / path.name)
    described = {**asdict(engine), "digest": engine.digest(), "abi": ABI}
    (out / "engine.json").write_text(json.dumps(described, indent=1) + "\n")
    return [path for path in files if path.suffix in (".v", ".vh")]


def estimate(
    board: Board, engine: EngineConfig, out: Path, files: list[Path], *, proxy: bool = True
) -> dict[str, Any]:
    """Resources of an engine in yosys' count, those of the board, and the clock proxy.

    Returns:
        `resources`: a row a resource, with `used`, `available`, `share`; `too_large`: what does
        not fit, in words; `fmax_proxy_mhz`: of the small engine on ECP5, None if not asked for.
    """
    counts = synthesis.synthesise(files, TOP, board.family, out / f"yosys-{board.family}")
    rows, large = [], []
    for key, name in NAMES.items():
        used, there = getattr(counts, key), getattr(board.resources, key)
        rows.append({
            "resource": name, "used": used, "available": there,
            "share": used / there if there else None,
            "unconfirmed": key in board.resources.unconfirmed,
        })  # fmt: skip
        if used > there:
            large.append(f"{name}: {used:,g} of {there:,}, {used - there:,g} too many")
    routed = ecp5.build(tools.cache() / "ecp5") if proxy else None
    return {
        "engine": asdict(engine),
        "resources": rows,
        "too_large": large,
        "fmax_proxy_mhz": routed.fmax_mhz if routed else None,
        "clock_mhz": board.clock_mhz,
    }


def write_project(board: Board, out: Path) -> list[Path]:
    """Copies the Vivado scripts of a board to `out`, beside its Verilog."""
    folder = tools.root() / "bitstreams"
    sources = [folder / "design.tcl", folder / "bitstream.tcl"]
    sources.append(folder / "boards" / board.name / "board.tcl")
    return [Path(shutil.copy(path, out / path.name)) for path in sources]


def implement(board: Board, engine: EngineConfig, out: Path) -> dict[str, Any]:
    """Runs Vivado on a project and records the bitstream in `manifest.json` of `out`'s parent.

    Raises:
        BackendUnavailableError: Vivado is not installed.
        FpgaError: Vivado failed; names its log.
    """
    vivado = shutil.which("vivado")
    if vivado is None:
        raise BackendUnavailableError(
            "vivado", "AMD Vivado 2024.1 or later on the PATH", "none",
            f"the project is in `{out}`: on a machine with Vivado, run this command there, or "
            "`--stage estimate` here",
        )  # fmt: skip
    project = out / "vivado"
    for script, arguments in (
        ("design.tcl", [str(out / "board.tcl"), str(out / "rtl"), str(project)]),
        ("bitstream.tcl", [str(project)]),
    ):
        _vivado(vivado, out, script, arguments)
    files = []
    for suffix in ("bit", "hwh"):
        name = f"copal-{board.name}-{engine.lanes}.{suffix}"
        files.append(Path(shutil.copy(project / f"copal.{suffix}", out / name)))
    result = dict(
        line.split(None, 1) for line in (project / "result.txt").read_text().splitlines() if line
    )
    entry = {
        "board": board.name,
        "part": board.part,
        "lanes": engine.lanes,
        "files": {path.name: _sha256(path) for path in files},
        "vivado": result.get("vivado", ""),
        "sources": sources_hash(out / "rtl"),
        "config": engine.digest(),
        "engine": asdict(engine),
        "abi": ABI,
        "clock_mhz": board.clock_mhz,
        "slack_ns": float(result.get("slack_ns", "nan")),
    }
    record(out / "manifest.json", entry)
    return entry


def record(manifest: Path, entry: dict[str, Any]) -> None:
    """Adds a bitstream to a manifest, in place of an older one with files of the same names."""
    old = json.loads(manifest.read_text())["bitstreams"] if manifest.is_file() else []
    kept = [e for e in old if set(e["files"]) != set(entry["files"])]
    builds.write_text(manifest, json.dumps({"bitstreams": [*kept, entry]}, indent=1) + "\n")


def sources_hash(folder: Path) -> str:
    """SHA-256 over all Verilog of a folder, names included."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".v", ".vh"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _vivado(vivado: str, out: Path, script: str, arguments: list[str]) -> None:
    log = out / f"{script}.log"
    try:
        with log.open("w") as file:
            status = builds.run(
                [vivado, "-mode", "batch", "-nojournal", "-source", str(out / script), "-tclargs",
                 *arguments],
                out, log=file, limit_s=VIVADO_LIMIT_S,
            ).returncode  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise FpgaError("vivado", f"an end within {VIVADO_LIMIT_S} s", "none", str(log)) from error
    if status != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise FpgaError("vivado", f"{script} to succeed", tail, f"see {log}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _routed(routed: ecp5.Routed) -> dict[str, Any]:
    return {
        "board": "ecp5",
        "lanes": ecp5.ENGINE.lanes,
        "counts": asdict(routed.counts),
        "fmax_proxy_mhz": routed.fmax_mhz,
        "critical": list(routed.critical),
        "bitstream": {"file": str(routed.bitstream), "sha256": routed.sha256},
    }


def _text(told: dict[str, Any]) -> str:
    lines = [f"{told['board']}: {told['lanes']} lanes"]
    if "rtl" in told:
        lines.append(f"Verilog: {len(told['rtl'])} files in {told['out']}/rtl")
    for row in told.get("resources", ()):
        share = "" if row["share"] is None else f"{row['share']:7.1%}"
        mark = "  (the board's number is from memory)" if row["unconfirmed"] else ""
        lines.append(
            f"{row['resource']:20s} {row['used']:>10,g} of {row['available']:>8,}{share:>9}{mark}"
        )
    if "resources" in told:
        lines.append("yosys estimate: not placed; modules counted as often as they are used")
    if "counts" in told:
        lines.append("yosys: " + ", ".join(f"{k} {v:,g}" for k, v in told["counts"].items() if v))
    if told.get("fmax_proxy_mhz"):
        lines.append(
            f"clock proxy: {told['fmax_proxy_mhz']:.1f} MHz, {ecp5.ENGINE.lanes} lanes placed and "
            f"routed on an ECP5 of speed grade {ecp5.SPEED_GRADE}, a slower fabric"
        )
    if "clock_mhz" in told:
        lines.append(f"the board's design asks for {told['clock_mhz']} MHz (not confirmed)")
    if "critical" in told:
        lines += ["slowest path:", *(f"  {step}" for step in told["critical"])]
    if "project" in told:
        lines.append(f"Vivado scripts: {', '.join(told['project'])} (never run by the project)")
    if "bitstream" in told:
        lines.append("bitstream: " + json.dumps(told["bitstream"]))
    return "\n".join(lines)
