# SPDX-License-Identifier: MIT
"""`python -m copal.bench.gpu_check`: is the GPU backend right on this GPU, and how fast is it?

Prints one table and writes JSON within eight minutes. Without a GPU, `--device emulate` runs the
comparison with float64 on the CPU and counts the figures that are left open.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from copal.bench import machine
from copal.bench.gpu import correct, replay, sanitizer, training, update
from copal.bench.gpu.config import NOT_MEASURED, Budget, GpuCheck
from copal.bench.runner import say
from copal.bench.table import Report, Row, markdown, number, times
from copal.errors import CopalError
from copal.gpu import open as devices
from copal.gpu import status

HEADER = ("part", "what", "figure", "to copal", "result")


def measure(config: GpuCheck) -> Report:
    """Does everything that the configuration asks for.

    Args:
        config: Parts and sizes.

    Returns:
        Rows `{"part", "name"}` with `gradient`, `td_error`, `parameters` (relative errors), `us`
        (median microseconds), `ratio` (to copal's), `updates_per_s`, `errors`, or `absent` with
        the reason; `ok` where something is judged.

    Raises:
        BackendUnavailableError: The device cannot be used; says why and what to do.
    """
    devices.TABLE.require(config.device)
    seed = config.seed or secrets.randbelow(2**31 - 1) + 1
    say(f"seed of the fresh numbers: {seed}")
    budget, rows = Budget(config.budget_s), list[Row]()
    makers: Mapping[str, Callable[[], Iterator[Row]]] = {
        "correct": lambda: correct.rows(config, budget, seed),
        "update": lambda: update.rows(config, budget),
        "replay": lambda: replay.rows(config, budget),
        "train": lambda: training.rows(config, budget),
        "sanitize": lambda: sanitizer.rows(config, budget),
    }
    for part in config.parts:
        rows += makers[part]()
    described = {**machine.describe(), "device": config.device, "seed": seed}
    if config.device == "cuda":
        described["gpus"] = [vars(gpu) for gpu in status.status().gpus]
    return Report(described, {"copal": machine.versions()}, rows)


def table(rows: Sequence[Row]) -> str:
    """All rows as one Markdown table; those that only a GPU can fill are counted behind it."""
    empty = sum(row.get("absent") == NOT_MEASURED for row in rows)
    lines = [_line(row) for row in rows if row.get("absent") != NOT_MEASURED]
    told = f"\n{empty} further figures: {NOT_MEASURED}, which `--device cuda` does" if empty else ""
    return markdown(HEADER, lines) + told


def right(rows: Sequence[Row]) -> bool:
    """Whether everything that was judged is right."""
    return all(row.get("ok", True) for row in rows)


def _line(row: Row) -> list[str]:
    name = str(row["name"])
    if row["part"] == "update":
        name += f", 8-{row['width']}-{row['width']}-4, batch {row['batch_size']}"
    result = "" if "ok" not in row else "right" if row["ok"] else "WRONG"
    if "absent" in row:
        return [row["part"], name, str(row["absent"]), "", result]
    ratio = times(row["ratio"]) if "ratio" in row else ""
    return [row["part"], name, _figure(row), ratio, result]


def _figure(row: Mapping[str, Any]) -> str:
    if "gradient" in row:
        worst = max(row["gradient"], row["td_error"], row["parameters"])
        return f"relative error {worst:.1e}"
    if "us" in row:
        return f"{number(row['us'])} us"
    if "updates_per_s" in row:
        return f"{number(row['updates_per_s'])} updates/s"
    return f"{row['errors']} errors"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the check; the exit status is 0 if all is right, 1 if not, 3 without the device."""
    import tyro

    config = tyro.cli(GpuCheck, prog="python -m copal.bench.gpu_check", args=arguments)
    try:
        report = measure(config)
    except CopalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if config.json is not None:
        config.json.write_text(report.to_json())
    print(table(report.rows))
    good = right(report.rows)
    if not good:
        print("something is WRONG: see the table", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
