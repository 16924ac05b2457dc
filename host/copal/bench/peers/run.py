# SPDX-License-Identifier: MIT
"""Starts one driver by path, in an environment that has the peer and no copal.

Example:
    .venv-peers/cpprb/bin/python run.py replay_cpprb --rows 100000 --ops cycle:256
"""

from __future__ import annotations

import importlib
import sys


def main() -> int:
    """Runs `drivers/<name>.py` with the rest of the command line; returns the exit status."""
    if len(sys.argv) < 2 or not sys.argv[1].isidentifier():
        print(f"usage: {sys.argv[0]} DRIVER [arguments]", file=sys.stderr)
        return 2
    name, arguments = sys.argv[1], sys.argv[2:]
    protocol = importlib.import_module("drivers.protocol")
    status: int = protocol.serve(f"drivers.{name}", arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
