# SPDX-License-Identifier: MIT
"""Installs the peers, each into a virtual environment of its own, since they exclude each other.

    python -m copal.bench.peers.install [NAME ...] [--root .venv-peers]

Each also gets the running copal, for its adapters. One that does not install is reported and left
out; the command still succeeds, and the benchmark has a row with the reason. pip's own settings
apply: `PIP_EXTRA_INDEX_URL` set to PyTorch's index of CPU builds keeps the downloads small.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from copal.bench.peers import REASON_FILE, REQUIREMENTS, environments, interpreter
from copal.bench.peers.share import share
from copal.errors import UnknownNameError

STAMP_FILE = "installed.txt"
"""Copy of the requirements that were installed, so that nothing is done twice."""

LOG_FILE = "install.log"
PIP_TIMEOUT_S = 3600


def install(environment: str, root: Path) -> str | None:
    """Makes one environment, or leaves it alone if its requirements have not changed.

    Args:
        environment: One of `environments()`.
        root: Folder of the environments.

    Returns:
        None if it is ready, else the reason why not; the reason is also kept beside it.
    """
    folder = root / environment
    requirements = REQUIREMENTS / f"{environment}.txt"
    wanted = requirements.read_text(encoding="utf-8")
    stamp = folder / STAMP_FILE
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reason = _fill(folder, interpreter(root, environment), requirements)
    if reason is None:
        stamp.write_text(wanted, encoding="utf-8")
    else:
        (folder / REASON_FILE).write_text(reason + "\n", encoding="utf-8")
    return reason


def _fill(folder: Path, python: Path, requirements: Path) -> str | None:
    command = [str(python), "-m", "pip", "install", "--requirement", str(requirements)]
    # The versions copal is built with are not those that a peer wants.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    try:
        venv.create(folder, with_pip=True, symlinks=sys.platform != "win32")
        with (folder / LOG_FILE).open("w", encoding="utf-8") as log:
            subprocess.run(
                command,
                check=True,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=PIP_TIMEOUT_S,
            )
    except subprocess.TimeoutExpired:
        return f"pip took longer than {PIP_TIMEOUT_S} s"
    except (OSError, subprocess.CalledProcessError) as error:
        return _last_line(folder / LOG_FILE) or str(error)
    return None


def _last_line(log: Path) -> str:
    if not log.exists():
        return ""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if "ERROR" in line]
    return lines[-1] if lines else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Installs what the command line names, or everything; returns 0 unless a name is unknown."""
    parser = argparse.ArgumentParser(description="install the frameworks to compare with")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(environments())}; default: all")
    parser.add_argument("--root", type=Path, default=Path(".venv-peers"))
    options = parser.parse_args(argv)
    for name in options.names:
        if name not in environments():
            print(f"error: {UnknownNameError.of('names', name, environments())}", file=sys.stderr)
            return 2
    for name in options.names or environments():
        print(f"{name}: installing", file=sys.stderr, flush=True)
        reason = install(name, options.root)
        print(f"{name}: {'ready' if reason is None else f'absent: {reason}'}", flush=True)
    share(options.root, options.names or environments())
    return 0


if __name__ == "__main__":
    sys.exit(main())
