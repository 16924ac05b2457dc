# SPDX-License-Identifier: MIT
"""How a driver talks to the runner: JSON lines on standard output, requests on standard input.

A driver module has `main(arguments, reply)`; `reply(row)` writes one JSON line. Whatever else the
peer's libraries print goes to standard error, so a line on standard output is always a row:

    {"ready": true, "versions": {"cpprb": "11.0.0"}}      after the set-up
    {"op": "cycle", "n": 256, "us": 374.1, "calls": 9}    the answer to a request
    {"absent": "ImportError: No module named 'cpprb'"}    the peer cannot be measured here
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any

Reply = Callable[[dict[str, Any]], None]


def pin(cpus: Sequence[int]) -> None:
    """Keeps this process on some processors, where the system can.

    Args:
        cpus: Processor numbers as the system counts them; none at all leaves the process free.
    """
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)


def versions(*distributions: str) -> dict[str, str]:
    """Installed versions of the named distributions; those that are not installed are left out."""
    found = {}
    for name in distributions:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def requests(ops: str) -> Iterator[dict[str, Any]]:
    """Yields what to measure: from the command line if given, else line by line from stdin.

    Args:
        ops: Comma-separated `op:n` pairs, or an empty string to read JSON lines until the end.
    """
    if not ops:
        lines: Iterable[str] = iter(sys.stdin.readline, "")
        yield from (json.loads(line) for line in lines if line.strip())
        return
    for item in ops.split(","):
        op, _, n = item.partition(":")
        yield {"op": op, "n": int(n or 1)}


@contextlib.contextmanager
def private_stdout() -> Iterator[Reply]:
    """Yields a `reply` that alone writes to the real standard output."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    saved = os.dup(1)
    os.dup2(2, 1)

    def reply(row: dict[str, Any]) -> None:
        stream.write(json.dumps(row) + "\n")
        stream.flush()

    try:
        yield reply
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
        stream.close()


def serve(module: str, arguments: list[str]) -> int:
    """Imports a driver and runs it; a failure becomes an `absent` row, with its reason.

    Args:
        module: Dotted name of the driver.
        arguments: Its command line.

    Returns:
        0 if the driver ran to its end, 1 if it could not.
    """
    with private_stdout() as reply:
        try:
            importlib.import_module(module).main(arguments, reply)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises, its row says so
            import traceback

            traceback.print_exc()
            reply({"absent": f"{type(error).__name__}: {error}".splitlines()[0]})
            return 1
    return 0
