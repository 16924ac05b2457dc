# SPDX-License-Identifier: MIT
"""Cell counts of an engine by yosys: an estimate. Nothing is placed, no time is known.

Lanes, of which there are many, are synthesised once and counted as often as they are instantiated:
what yosys would save across their borders is not saved. On Xilinx' families everything else is one
module.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from copal import builds
from copal.errors import FpgaError
from copal.fpga import tools

#: What a cell takes, by family: cell name to (resource, amount). LUT RAM and shift registers are
#: LUTs; two small block RAMs share a large one.
CELLS: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    "xilinx": (
        (r"LUT[1-6]|INV", "lut", 1),
        (r"RAM32X1S|RAM64X1S|SRL16E|SRLC32E", "lut", 1),
        (r"RAM32X1D|RAM64X1D|RAM128X1S", "lut", 2),
        (r"RAM32M|RAM64M|RAM128X1D|RAM256X1S", "lut", 4),
        (r"RAM32M16|RAM64M8|RAM256X1D|RAM512X1S|RAM64X8SW|RAM32X16DR8", "lut", 8),
        (r"FD[RSCP]E(_1)?", "ff", 1),
        (r"RAMB36E[12]", "bram", 1),
        (r"RAMB18E[12]", "bram", 0.5),
        (r"URAM288.*", "uram", 1),
        (r"DSP48E[12]", "dsp", 1),
    ),
    "ecp5": (
        (r"LUT4", "lut", 1),
        (r"CCU2C", "lut", 2),
        (r"TRELLIS_DPR16X4", "lut", 4),
        (r"TRELLIS_FF", "ff", 1),
        (r"DP16KD", "bram", 1),
        (r"MULT18X18D", "dsp", 1),
    ),
}
ROW = "array_row"
#: Modules of which an engine has one or two a lane, row or column.
LANES = (ROW, "pick", "post", "gather", "vec", "adam")
#: Modules whose parts, but for `LANES`, become one with them before an ECP5 is mapped: those with
#: many pipeline stages, and those that hold a signal of a part at a constant.
JOINED = ("vec", "adam", "squares", "shrink", "control", ROW, "*array*")
#: Memories that UltraRAM is for: parameters, moments and gradients, as flattened. Left to itself
#: yosys gives it the banks of A and B as well, more than a device has, and leaves block RAM unused.
ULTRA = ("*.u_optimiser.g_pair*.mem", "*.u_g.mem")
LIMIT_S = 5400
"""Longest synthesis."""


@dataclass(frozen=True)
class Counts:
    """Resources of a design."""

    lut: float = 0
    """Look-up tables, those that serve as RAM or shift registers included."""
    ff: float = 0
    """Flip-flops."""
    bram: float = 0
    """Block RAMs: of 36 kbit (Xilinx), of 18 kbit (ECP5)."""
    uram: float = 0
    """UltraRAMs of 288 kbit."""
    dsp: float = 0
    """Multiplier blocks."""


def commands(family: str, top: str, netlist: Path | None = None) -> tuple[str, ...]:
    """The yosys commands that synthesise for a family, xc7, xcup or ecp5, once all is read.

    Passes that look at the whole design once a module make an hour of hundreds of small modules,
    such as pipeline stages: only `LANES` stay modules. The multiplexers behind LUTs are left out:
    with them yosys takes half as many LUTs again for what chooses one of many words. For an ECP5,
    where the netlist is placed, all but the parts of `JOINED` stay modules until they are mapped:
    within one yosys makes one register of equal ones, however far apart their readers lie.
    """
    keep = f"setattr -mod -set keep_hierarchy 1 {' '.join(LANES)}"
    units = (f"hierarchy -top {top}", keep, "proc")
    if family == "ecp5":
        return (
            *units,
            f"flatten {' '.join(JOINED)}",
            f"synth_ecp5 -noflatten -top {top}",
            "setattr -mod -unset keep_hierarchy *",
            "flatten",
            "opt_clean -purge",
            "opt_lut_ins -tech lattice",
            "opt_clean",
            *([f"write_json {netlist}"] if netlist else []),
        )
    ultra = f'setattr -set ram_style "ultra" {" ".join(f"m:{m}" for m in ULTRA)}'
    return (
        *units,
        "flatten",
        *([ultra] if family == "xcup" else []),
        f"synth_xilinx -family {family} -noiopad -nowidelut -top {top}",
    )


def synthesise(
    files: Sequence[Path], top: str, family: str, out: Path, netlist: Path | None = None
) -> Counts:
    """Counts what a design takes, in a process of its own; the result is kept in `out`.

    Args:
        files: Verilog files, headers included.
        top: Top module.
        family: `xc7`, `xcup` or `ecp5`.
        out: Folder for the log and the counts; made if it is absent.
        netlist: Where to write the JSON that nextpnr reads; ecp5 only.

    Raises:
        BackendUnavailableError: yosys is missing.
        FpgaError: yosys failed; names its log.
    """
    tools.require("synthesis", ["pyosys"])
    out.mkdir(parents=True, exist_ok=True)
    kept, stat, log = out / "counts.json", out / "stat.txt", out / "yosys.log"
    row = commands("xc7", ROW) if family == "xcup" else ()
    key = _key(files, "; ".join((*commands(family, top), *row)))
    if kept.is_file() and (netlist is None or netlist.is_file()):
        found = json.loads(kept.read_text())
        if found.pop("key") == key:
            return Counts(**found)
    folders = " ".join(f"-I{folder}" for folder in sorted({str(f.parent) for f in files}))
    names = " ".join(str(f) for f in files if f.suffix == ".v")
    passes = (f"read_verilog -sv {folders} {names}", *commands(family, top, netlist))
    script = ["import sys", "from pyosys import libyosys as ys", "design = ys.Design()"]
    script += [f"ys.run_pass('tee -q -a {log} {p}', design)" for p in passes]
    script += [f"ys.run_pass('tee -q -o {stat} stat -json', design)"]
    tools.announce(f"yosys synthesises {top} for {family}: minutes; log: {log}")
    for old in (log, stat, kept):
        old.unlink(missing_ok=True)
    try:
        done = builds.run([sys.executable, "-c", "\n".join(script)], Path(), limit_s=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise FpgaError("yosys", f"an end within {LIMIT_S} s", "none", f"see {log}") from error
    if done.returncode != 0 or not stat.is_file():
        got = done.stdout.strip()[-400:] or f"exit status {done.returncode}"
        raise FpgaError("yosys", "a design that it can synthesise", got, f"see {log}")
    text = stat.read_text()
    told = json.loads(text[text.index("{") :])
    counts = count(told["design"]["num_cells_by_type"], family)
    cells = {name[1:]: module["num_cells_by_type"] for name, module in told["modules"].items()}
    if row and ROW in cells:
        packed = synthesise(files, ROW, "xc7", out / ROW)
        counts = _with_rows(counts, cells, packed)
    builds.write_text(kept, json.dumps({"key": key, **asdict(counts)}))
    return counts


def count(cells: Mapping[str, int], family: str) -> Counts:
    """Resources of the cells that yosys lists: cell type to number."""
    found: dict[str, float] = {}
    for pattern, resource, amount in CELLS["ecp5" if family == "ecp5" else "xilinx"]:
        number = sum(n for cell, n in cells.items() if re.fullmatch(pattern, cell))
        found[resource] = found.get(resource, 0) + amount * number
    return Counts(**found)


def _with_rows(counts: Counts, cells: Mapping[str, Mapping[str, int]], packed: Counts) -> Counts:
    """Counts of a design for xcup with its rows of lanes as for xc7.

    yosys puts the sums of products into the blocks of a DSP48E1 (xc7), not of a DSP48E2 (xcup),
    which has all that a DSP48E1 has.

    Args:
        counts: As yosys has them.
        cells: Cells by module.
        packed: Counts of a row for xc7.
    """
    number = sum(module.get(ROW, 0) for module in cells.values())
    row, own = asdict(packed), asdict(count(cells[ROW], "xcup"))
    return Counts(**{k: n + number * (row[k] - own[k]) for k, n in asdict(counts).items()})


def _key(files: Sequence[Path], passes: str) -> str:
    digest = hashlib.sha256(f"{passes} {metadata.version('pyosys')}".encode())
    for path in sorted(files, key=lambda p: p.name):
        digest.update(path.read_bytes())
    return digest.hexdigest()
