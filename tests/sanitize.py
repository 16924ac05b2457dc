# SPDX-License-Identifier: MIT
"""Builds each C++ stress test under ThreadSanitizer and under AddressSanitizer, and runs it.

Usage: python tests/sanitize.py [seconds of each run, default 60]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cmeel

NATIVE = Path(__file__).resolve().parents[1] / "host" / "native"
SANITIZERS = ("thread", "address,undefined")


def eigen() -> Path:
    """Folder of Eigen's headers, which the learner includes."""
    return Path(next(iter(cmeel.__path__))).parent / "cmeel.prefix" / "include" / "eigen3"


def build(source: Path, sanitizer: str, folder: Path) -> Path:
    """Compiles `source` and returns the program."""
    program = folder / f"{source.stem}-{sanitizer.replace(',', '-')}"
    flags = ["-std=c++20", "-O1", "-g", "-march=native", "-pthread", f"-I{NATIVE}"]
    flags += ["-isystem", str(eigen())]
    check = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, *flags, *check, str(source), "-o", str(program)], check=True)
    return program


def main() -> int:
    """Runs every test under every sanitizer; returns the number of failures."""
    seconds = sys.argv[1] if len(sys.argv) > 1 else "60"
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((NATIVE / "tests").glob("*.cpp")):
            for sanitizer in SANITIZERS:
                print(f"{source.name} under {sanitizer}", file=sys.stderr, flush=True)
                program = build(source, sanitizer, Path(folder))
                failures += subprocess.run([str(program), seconds], check=False).returncode != 0
    print(f"{failures} failed", file=sys.stderr)
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
