# SPDX-License-Identifier: MIT
"""Builds each C++ stress test and runs it: under sanitizers, or for Arm under emulation.

Usage: python tests/stress.py [sanitize | arm] [seconds of each run]

`arm` needs a cross compiler and an emulator: Debian's `g++-aarch64-linux-gnu` and `qemu-user`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cmeel

NATIVE = Path(__file__).resolve().parents[1] / "host" / "native"


@dataclass(frozen=True)
class Build:
    """One way to build the tests."""

    name: str
    """Shown to the user."""
    compiler: str
    """Command of the compiler."""
    flags: tuple[str, ...]
    """What it takes beside the language and the include folders."""
    run_with: tuple[str, ...] = ()
    """What runs the program, in front of its name."""


CXX = os.environ.get("CXX", "g++")
CHECKED = ("-O1", "-g", "-march=native", "-fno-sanitize-recover=all")
BUILDS = {
    "sanitize": (
        # gcc warns about fences, which ThreadSanitizer does not model; no test relies on one there.
        Build("ThreadSanitizer", CXX, (*CHECKED, "-fsanitize=thread", "-Wno-tsan")),
        Build("AddressSanitizer", CXX, (*CHECKED, "-fsanitize=address,undefined")),
    ),
    "arm": (Build("aarch64", "aarch64-linux-gnu-g++", ("-O2", "-static"), ("qemu-aarch64",)),),
}


def eigen() -> Path:
    """Folder of Eigen's headers, which the learner includes."""
    return Path(next(iter(cmeel.__path__))).parent / "cmeel.prefix" / "include" / "eigen3"


def passes(source: Path, build: Build, seconds: str, folder: Path) -> bool:
    """Compiles `source` and runs it; its exit status tells."""
    program = str(folder / source.stem)
    include = [f"-I{NATIVE}", "-isystem", str(eigen())]
    compile_it = [build.compiler, "-std=c++20", "-pthread", *build.flags, *include]
    subprocess.run([*compile_it, str(source), "-o", program], check=True)
    return subprocess.run([*build.run_with, program, seconds], check=False).returncode == 0


def main() -> int:
    """Runs every test in every build; returns the number of failures."""
    mode, seconds = (*sys.argv[1:], *("sanitize", "60")[len(sys.argv) - 1 :])
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((NATIVE / "tests").glob("*.cpp")):
            for build in BUILDS[mode]:
                print(f"{source.name}: {build.name}", file=sys.stderr, flush=True)
                failures += not passes(source, build, seconds, Path(folder))
    print(f"{failures} failed", file=sys.stderr)
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
