# SPDX-License-Identifier: MIT
"""Builds one device under test with cocotb's runner and runs its test bench.

python runner.py JOB

JOB is a JSON object: top, sources, includes, simulator, out, waves, seed, module.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cocotb_tools.runner import get_runner


def main(job: dict[str, Any]) -> None:
    """Builds and runs; results are in `results.xml` of the folder `out`."""
    out = Path(job["out"])
    runner = get_runner(job["simulator"])
    arguments = []
    if job["simulator"] == "verilator":
        arguments = ["-Wno-fatal", "-O3", "--x-initial", "unique", "-CFLAGS", "-O1"]
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
