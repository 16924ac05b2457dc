# SPDX-License-Identifier: MIT
"""Programs and Updates as text for people and as JSON for programs: `copal program show`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from copal.errors import ProgramError, UnknownNameError
from copal.program.cost import BYTES, OpCost, ProgramCost, cost
from copal.program.program import Program, parse
from copal.program.update import Update


@dataclass(frozen=True)
class Part:
    """One Program to show."""

    label: str
    """What `--phase` calls it: the network that the phase trains, or `policy`."""
    program: Program
    """The Program."""
    every: int = 1
    """Updates from one run of it to the next; 0: it is no part of the update."""


def parts_of(update: Update) -> list[Part]:
    """The phases in order, then the policy."""
    phases = [Part(str(p.program.gradient), p.program, p.every) for p in update.phases]
    return [*phases, Part("policy", update.policy, 0)]


def parts_from_json(text: str) -> list[Part]:
    """The Programs in a file: of an Update, a Program, or a saved policy.

    Raises:
        ProgramError: It is none of them.
    """
    data = parse("file", text)
    if isinstance(data, dict) and "phases" in data:
        return parts_of(Update.from_json(text))
    if isinstance(data, dict) and isinstance(data.get("program"), dict):
        data = data["program"]
    if not isinstance(data, dict) or "ops" not in data:
        raise ProgramError("file", "an Update, a Program or a policy.json", "other JSON")
    program = Program.from_dict(data)
    return [Part(program.gradient or "policy", program, 1 if program.gradient else 0)]


def chosen(parts: Sequence[Part], phase: str | None) -> list[Part]:
    """The parts called `phase`, all of them for None.

    Raises:
        UnknownNameError: None is called so.
    """
    found = [p for p in parts if phase is None or p.label == phase]
    if not found:
        raise UnknownNameError.of("phase", str(phase), [p.label for p in parts])
    return found


def to_dict(name: str, parts: Sequence[Part], batch_size: int) -> dict[str, Any]:
    """What `to_text` shows, as JSON values."""
    costs = [cost(p.program, batch_size) for p in parts]
    return {
        "name": name,
        "batch_size": batch_size,
        "programs": [
            {
                "phase": part.label,
                "name": part.program.name,
                "every": part.every,
                "gradient": part.program.gradient,
                "inputs": [asdict(b) for b in part.program.inputs],
                "outputs": dict(part.program.outputs),
                "networks": {n.name: n.size for n in part.program.networks},
                **asdict(counted),
            }
            for part, counted in zip(parts, costs, strict=True)
        ],
        "total": _total(parts, costs),
    }


def is_whole(parts: Sequence[Part]) -> bool:
    """Whether these are all parts of an Update: phases, and the policy."""
    return len({p.every > 0 for p in parts}) == 2


def _total(parts: Sequence[Part], costs: Sequence[ProgramCost]) -> dict[str, Any]:
    pairs = list(zip(parts, costs, strict=True))
    networks = {n.name: n.size for p in parts for n in p.program.networks}
    return {
        "of": "update" if is_whole(parts) else parts[0].label,
        "flops_per_update": sum(c.flops / p.every for p, c in pairs if p.every),
        "parameter_bytes": BYTES * sum(networks.values()),
        "buffer_bytes": max(c.buffer_bytes for c in costs),
    }


def to_text(name: str, parts: Sequence[Part], batch_size: int) -> str:
    """Tables of the operations and their costs."""
    costs = [cost(p.program, batch_size) for p in parts]
    blocks = [
        _program_text(part, counted, batch_size) for part, counted in zip(parts, costs, strict=True)
    ]
    total = _total(parts, costs)
    work = f"{_quantity(total['flops_per_update'], 'FLOP')} an update"
    whole, acts = is_whole(parts), parts[0].every == 0
    if acts:
        work = f"{_quantity(costs[0].flops, 'FLOP')} a batch"
    of = "" if whole else ", policy alone," if acts else f", phase `{parts[0].label}` alone,"
    left_out = "" if acts else "\n(optimiser steps and target networks left out)"
    blocks.append(
        f"{name}{of} with batch size {batch_size}: {work}, "
        f"parameters {_quantity(total['parameter_bytes'], 'B')}, "
        f"{'largest set of ' if whole else ''}buffers {_quantity(total['buffer_bytes'], 'B')}"
        f"{left_out}"
    )
    return "\n\n".join(blocks)


def file_of(path: Path) -> Path:
    """The file that `path` means: itself, or the policy.json of a run or policy folder."""
    if not path.is_dir():
        return path
    inside = (path / "policy" / "policy.json", path / "policy.json")
    return next((p for p in inside if p.exists()), inside[0])


def _program_text(part: Part, counted: ProgramCost, batch_size: int) -> str:
    program = part.program
    lines = [f"{part.label}: program `{program.name}`{_when(part)}", ""]
    lines += _aligned(
        ("input", "shape", "dtype", "source"),
        [(b.name, _shape((batch_size, b.width)), b.dtype, b.source) for b in program.inputs],
    )
    lines.append("")
    lines += _aligned(
        ("#", "operation", "output", "shape", "bytes", "FLOP", "rows", "reads"),
        [
            (
                str(i),
                op.kind,
                op.output,
                _shape(op.shape),
                f"{op.bytes:,}",
                f"{op.flops:,}",
                "each alone" if op.row_local else "summed",
                _reads(op),
            )
            for i, op in enumerate(counted.ops)
        ],
        right=(0, 4, 5),
    )
    outputs = ", ".join(f"{role} = {buffer}" for role, buffer in program.outputs.items())
    local = sum(op.row_local for op in counted.ops)
    lines += [
        "",
        f"outputs: {outputs}",
        f"{len(counted.ops)} operations, {local} on each row alone, "
        f"{len(counted.ops) - local} sums over rows; {_quantity(counted.flops, 'FLOP')} "
        f"({_quantity(counted.dense_flops, 'FLOP')} in dense products); "
        f"buffers {_quantity(counted.buffer_bytes, 'B')}, "
        f"parameters and gradient {_quantity(counted.parameter_bytes, 'B')}",
    ]
    return "\n".join(lines)


def _when(part: Part) -> str:
    if part.every == 0:
        return ", acts"
    often = "each update" if part.every == 1 else f"every {part.every} updates"
    return f", gradient of `{part.program.gradient}`, {often}"


def _reads(op: OpCost, limit: int = 3) -> str:
    if op.kind == "const":
        return f"{op.attrs['value']:.6g}"
    if op.kind == "param":
        return f"{op.attrs['network']}[{op.attrs['offset']}:]"
    if op.kind == "opaque":
        return f"{op.attrs['name']} of {', '.join(op.inputs)}"
    shown = ", ".join(op.inputs[:limit])
    rest = len(op.inputs) - limit
    return f"{shown}, and {rest} more" if rest > 0 else shown


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _quantity(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G"):
        if value < 1000 or prefix == "G":
            break
        value /= 1000
    return f"{value:.3g} {prefix}{unit}"


def _aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
