# SPDX-License-Identifier: MIT
"""Decides where each value of a Program lies, and which operations one instruction does at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from copal.program import Op, Program

#: (kind, position) of an input that a product reads as integers, and the memory it reads them from.
PRODUCT_INPUTS: Mapping[tuple[str, int], str] = {
    ("dense", 0): "B",
    ("dense_grad_input", 0): "B",
    ("dense_grad_weight", 0): "A",
    ("dense_grad_weight", 1): "B",
    ("sum_over_rows", 0): "A",
}

#: Operations whose result is another view of their input, or no memory at all.
_VIEWS = frozenset({"neg", "abs", "slice", "const", "concat"})


@dataclass(frozen=True)
class Fusion:
    """What `fuse` decided for one Program."""

    needs: Mapping[str, frozenset[str]]
    """Buffer to the operand memories, A or B, in which products read it."""
    direct: frozenset[str]
    """Buffers that a product writes to A or B itself; they are never in V."""
    relus: frozenset[str]
    """Those of them that are a relu, computed by the product below."""
    masked: frozenset[str]
    """Those of them that are a relu_grad, computed by the product below."""
    inside: frozenset[str]
    """Buffers that only the product's sum ever holds: inputs of `relus` and `masked`."""
    gathered: frozenset[str]
    """Products in V that only `gather` reads: they stay integers until they are picked."""
    homes: Mapping[str, tuple[str, int]]
    """Buffer to (buffer, column): it is written into that one from this column on."""
    bias_sums: Mapping[int, int]
    """Number of a dense_grad_weight to that of the sum_over_rows that it does as well."""


def pruned(program: Program) -> Program:
    """The Program without operations whose results nobody reads."""
    needed, kept = set(program.outputs.values()), list[Op]()
    for op in reversed(program.ops):
        if op.output is None or op.output.name in needed:
            kept.append(op)
            needed.update(op.inputs)
    return replace(program, ops=tuple(reversed(kept)))


def fuse(program: Program) -> Fusion:
    """Looks for operations that instructions can do together."""
    uses = _uses(program)
    defined = {op.output.name: op for op in program.ops if op.output is not None}
    outputs = set(program.outputs.values())
    relus, masked = _masks(uses, defined, outputs)
    inside = {defined[name].inputs[0] for name in relus | masked}
    direct = relus | masked
    for name, op in defined.items():
        read = name not in inside | outputs and bool(uses[name])
        read = read and all(use in PRODUCT_INPUTS for use, _ in uses[name])
        if read and op.kind in ("dense", "dense_grad_input"):
            direct.add(name)
    gathered = {
        name
        for name, op in defined.items()
        if op.kind in ("dense", "dense_grad_input")
        and name not in outputs
        and uses[name]
        and all(use == ("gather", 0) for use, _ in uses[name])
    }
    needs = {
        name: frozenset(PRODUCT_INPUTS[use] for use, _ in found if use in PRODUCT_INPUTS)
        for name, found in uses.items()
    }
    taken = direct | inside | gathered
    return Fusion(
        needs=needs,
        direct=frozenset(direct),
        relus=frozenset(relus),
        masked=frozenset(masked),
        inside=frozenset(inside),
        gathered=frozenset(gathered),
        homes=_homes(program, uses, defined, outputs, taken),
        bias_sums=_bias_sums(program),
    )


def occurrence(program: Program, number: int) -> int:
    """How many operations before this one add to the same part of the gradient."""
    op = program.ops[number]
    return sum(_part(other) == _part(op) for other in program.ops[:number])


def _part(op: Op) -> tuple[str, int] | None:
    if op.output is not None:
        return None
    return op.kind, int(op.attrs["weight" if op.kind == "dense_grad_weight" else "offset"])


_Uses = Mapping[str, list[tuple[tuple[str, int], str | None]]]


def _uses(program: Program) -> _Uses:
    """Buffer to its readers: (kind, position), and the name of the reader's result."""
    uses: dict[str, list[tuple[tuple[str, int], str | None]]] = {
        b.name: [] for b in program.buffers()
    }
    for op in program.ops:
        for position, name in enumerate(op.inputs):
            uses[name].append(
                ((op.kind, position), op.output.name if op.output is not None else None)
            )
    return uses


def _masks(uses: _Uses, defined: Mapping[str, Op], outputs: set[str]) -> tuple[set[str], set[str]]:
    """The relus and relu_grads that products do: the largest sets that go together."""

    def starts(name: str, below: str) -> bool:
        op = defined[name]
        product = defined.get(op.inputs[0])
        sole = product is not None and len(uses[op.inputs[0]]) == 1
        return sole and defined[op.inputs[0]].kind == below and op.inputs[0] not in outputs

    relus = {n for n, op in defined.items() if op.kind == "relu" and starts(n, "dense")}
    masked = {
        n for n, op in defined.items() if op.kind == "relu_grad" and starts(n, "dense_grad_input")
    }
    while True:
        kept_masked = {
            n
            for n in masked
            if n not in outputs
            and defined[n].inputs[1] in relus
            and all(use in PRODUCT_INPUTS for use, _ in uses[n])
        }
        kept_relus = {
            n
            for n in relus
            if n not in outputs
            and all(
                use in PRODUCT_INPUTS or (use == ("relu_grad", 1) and by in kept_masked)
                for use, by in uses[n]
            )
        }
        if (kept_relus, kept_masked) == (relus, masked):
            return relus, masked
        relus, masked = kept_relus, kept_masked


def _homes(
    program: Program,
    uses: _Uses,
    defined: Mapping[str, Op],
    outputs: set[str],
    taken: set[str],
) -> dict[str, tuple[str, int]]:
    widths = {b.name: b.width for b in program.buffers()}
    homes: dict[str, tuple[str, int]] = {}

    def written(name: str) -> bool:
        op = defined.get(name)
        return op is not None and op.kind not in _VIEWS and name not in taken | set(homes)

    for op in reversed(program.ops):
        if op.output is None:
            continue
        if op.kind == "concat":
            start = 0
            for part in op.inputs:
                if written(part):
                    homes[part] = (op.output.name, start)
                start += widths[part]
        elif op.kind == "where":
            rest = op.inputs[2]
            sole = len(uses[rest]) == 1 and rest not in outputs
            if sole and written(rest) and widths[rest] == op.output.width:
                homes[rest] = (op.output.name, 0)
    return homes


def _bias_sums(program: Program) -> dict[int, int]:
    """Pairs each sum over rows with a weight gradient of the same integers."""
    pairs: dict[int, int] = {}
    for i, op in enumerate(program.ops):
        if op.kind != "sum_over_rows":
            continue
        for j, other in enumerate(program.ops):
            fits = other.kind == "dense_grad_weight" and other.inputs[0] == op.inputs[0]
            if fits and j not in pairs and occurrence(program, i) == occurrence(program, j):
                pairs[j] = i
                break
    return pairs
