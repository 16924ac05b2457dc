# SPDX-License-Identifier: MIT
"""Builds one device under test with cocotb's runner and runs its test bench.

python runner.py JOB

JOB is a JSON object: top, sources, includes, simulator, out, waves, seed, module.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from cocotb_tools.runner import Icarus, Verilator


class PortsOnly(Verilator):
    """Verilator, with only the ports of the top open to the test bench.

    cocotb opens every signal of a design, which makes code that compiles and runs many times as
    long.
    """

    top_ports: Path

    def _build_command(self) -> list[Any]:
        commands = super()._build_command()
        first = [word for word in commands[0] if word != "--public-flat-rw"]
        return [[*first, str(self.top_ports)], *commands[1:]]


def ports(sources: list[str], top: str) -> list[str]:
    """Names of the ports of a module, from the file that is named as it."""
    text = next(Path(name).read_text() for name in sources if Path(name).stem == top)
    kind = r"^\s*(?:input|output)\s+(?:wire\s+|reg\s+)?(?:\[[^\]]*\]\s*)?(\w+)\s*,?\s*$"
    head = text[text.index(f"module {top}") :]
    return re.findall(kind, head[: head.index(");")], re.M)


def main(job: dict[str, Any]) -> None:
    """Builds and runs; results are in `results.xml` of the folder `out`."""
    out = Path(job["out"])
    runner: Verilator | Icarus
    arguments = []
    if job["simulator"] == "icarus":
        runner = Icarus()
    else:
        runner = PortsOnly()
        runner.top_ports = out / "ports.vlt"
        opened = [
            f'public_flat_rw -module "{job["top"]}" -var "{name}"'
            for name in ports(job["sources"], job["top"])
        ]
        runner.top_ports.write_text("\n".join(["`verilator_config", *opened, ""]))
        arguments = ["-Wno-fatal", "-O3", "--x-initial", "unique"]
    runner.build(
        sources=job["sources"],
        includes=job["includes"],
        hdl_toplevel=job["top"],
        build_dir=out / "build",
        build_args=arguments,
        timescale=("1ns", "1ps"),
        waves=job["waves"],
    )
    runner.test(
        hdl_toplevel=job["top"],
        test_module=job["module"],
        build_dir=out / "build",
        test_dir=out,
        seed=job["seed"],
        waves=job["waves"],
        results_xml=str(out / "results.xml"),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
