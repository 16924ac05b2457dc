# SPDX-License-Identifier: MIT
"""Reads PTX: kernels as basic blocks of instructions, their parameters and what they declare.

Handles what NVRTC emits for kernels whose functions are inlined; `.func` and calls are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from ptx.kinds import DTYPES, PtxError

SYNC = ("bar", "barrier", "shfl", "vote", "match", "activemask")
"""Instructions that threads execute together: each is a basic block of its own."""


@dataclass(frozen=True)
class Instruction:
    """One statement."""

    opcode: tuple[str, ...]
    """Its parts between the dots."""
    operands: tuple[str, ...]
    """As written; vectors with their braces, addresses with their brackets."""
    guard: tuple[str, bool] | None
    """Predicate register and whether it is negated."""
    text: str
    """The whole statement."""
    line: int
    """Line of the kernel's body, from 1."""
    used: int = -1
    """Bit a byte that a load needs: the compiler may read more than it was asked to."""


@dataclass(frozen=True)
class Symbol:
    """A name with a place in a state space."""

    space: str
    """`param`, `shared`, `local` or `global`."""
    offset: int
    """Bytes from the start of the space; for `global` the variable's number."""
    size: int
    """Bytes."""
    kind: str = "b8"
    """Type of one element."""


@dataclass
class Kernel:
    """One entry point."""

    name: str
    """As it is launched."""
    parameters: list[Symbol] = field(default_factory=list)
    """In order."""
    parameter_bytes: int = 0
    """Size of all of them, with padding."""
    registers: dict[str, np.dtype[np.generic]] = field(default_factory=dict)
    """Type of the registers that begin so, `%r` for instance."""
    symbols: dict[str, Symbol] = field(default_factory=dict)
    """Everything with an address."""
    shared_bytes: int = 0
    """Static shared memory a block."""
    local_bytes: int = 0
    """Stack a thread."""
    max_threads: int = 1024
    """What `.maxntid` allows a block."""
    blocks: list[list[Instruction]] = field(default_factory=list)
    """Basic blocks in order of address."""
    labels: dict[str, int] = field(default_factory=dict)
    """Which basic block a label names."""


@dataclass
class Module:
    """A translation unit."""

    target: str
    """Architecture, `sm_90` for instance."""
    kernels: dict[str, Kernel]
    """Entry points by name."""
    variables: list[bytes]
    """Initial contents of the `.global` and `.const` variables."""


def parse(text: str) -> Module:
    """Reads a whole PTX file.

    Raises:
        PtxError: It holds device functions that were not inlined.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    if re.search(r"(?m)^\s*(\.visible\s+|\.weak\s+)*\.func\b", text):
        raise PtxError("a device function was not inlined: calls are not interpreted")
    head = re.split(r"\.entry", text)[0]
    outside = re.sub(r"\.entry.*?\n\}", "", text, flags=re.S)
    variables: list[bytes] = []
    shared: dict[str, Symbol] = {}
    for space, kind, name, count, values in re.findall(
        r"\.(global|const|shared)\s+\.align\s+\d+\s+\.(\w+)\s+(\w+)\[(\d*)\]\s*(?:=\s*\{([^}]*)\})?;",
        outside,
    ):
        size = int(count or 0) * DTYPES[kind].itemsize
        if space == "shared":
            shared[name] = Symbol("shared", -1, size)
            continue
        data = np.zeros(int(count), np.int64)
        given = [int(v, 0) for v in values.split(",") if v.strip()]
        data[: len(given)] = given
        shared[name] = Symbol("global", len(variables), size, kind)
        variables.append(data.astype(DTYPES[kind]).tobytes())
    kernels = {}
    pattern = r"\.entry\s+(\w+)\s*\((.*?)\)\s*((?:\.\w+[^{.]*)*)\{(.*?)\n\}"
    for name, parameters, directives, body in re.findall(pattern, text, re.S):
        kernels[name] = _kernel(name, parameters, directives, body, shared)
    target = re.search(r"\.target\s+(\w+)", head)
    return Module(target.group(1) if target else "", kernels, variables)


def _kernel(
    name: str, parameters: str, directives: str, body: str, outer: dict[str, Symbol]
) -> Kernel:
    kernel = Kernel(name)
    if limit := re.search(r"\.(?:max|req)ntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", directives):
        kernel.max_threads = int(np.prod([int(v) for v in limit.groups() if v]))
    _parameters(kernel, parameters)
    for kind, prefix in re.findall(r"\.reg\s+\.(\w+)\s+(%\w+?)<\d+>;", body):
        kernel.registers[prefix] = DTYPES[kind]
    for space, align, symbol, size in re.findall(
        r"\.(shared|local)\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\];", body
    ):
        attribute = f"{space}_bytes"
        offset = _aligned(getattr(kernel, attribute), int(align))
        kernel.symbols[symbol] = Symbol(space, offset, int(size))
        setattr(kernel, attribute, offset + int(size))
    dynamic = _aligned(kernel.shared_bytes, 16)
    for symbol, place in outer.items():
        here = Symbol("shared", dynamic, 0) if place.space == "shared" else place
        kernel.symbols[symbol] = here
    kernel.shared_bytes = dynamic
    _statements(kernel, body)
    return kernel


def _parameters(kernel: Kernel, text: str) -> None:
    for part in (p for p in text.split(",") if p.strip()):
        words = part.split()
        name, count = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", words[-1]).groups()  # type: ignore[union-attr]
        kind = next(w[1:] for w in words if w[1:] in DTYPES)
        align = int(words[words.index(".align") + 1]) if ".align" in words else 0
        size = DTYPES[kind].itemsize * int(count or 1)
        offset = _aligned(kernel.parameter_bytes, align if count else DTYPES[kind].itemsize)
        symbol = Symbol("param", offset, size, kind)
        kernel.parameters.append(symbol)
        kernel.symbols[name] = symbol
        kernel.parameter_bytes = offset + size


def _statements(kernel: Kernel, body: str) -> None:
    """Splits the body into basic blocks: at labels, after branches, around what synchronises."""
    current: list[Instruction] = []
    used = -1

    def cut() -> None:
        nonlocal current
        if current:
            kernel.blocks.append(current)
            current = []

    for number, line in enumerate(body.splitlines(), 1):
        rest = line.strip()
        while label := re.match(r"(\$?\w+):\s*(.*)", rest):
            cut()
            kernel.labels[label.group(1)] = len(kernel.blocks)
            rest = label.group(2)
        if rest.startswith((".", "{", "}")) or not rest:
            rest = rest.lstrip("{} \t")
            if mask := re.match(r"\.pragma \"used_bytes_mask (\w+)\"", rest):
                used = int(mask.group(1), 0)
            if rest.startswith(".") or not rest:
                continue
        for statement in (s.strip() for s in rest.rstrip("}").split(";")):
            if not statement or statement.startswith("."):
                continue
            instruction = replace(_instruction(statement, number), used=used)
            used = -1
            alone = instruction.opcode[0] in SYNC
            if alone:
                cut()
            current.append(instruction)
            if alone or instruction.opcode[0] in ("bra", "ret", "exit", "trap"):
                cut()
    cut()


def _instruction(text: str, line: int) -> Instruction:
    match = re.match(r"(?:@(!?)(%\w+)\s+)?(\S+)\s*(.*)", text, re.S)
    assert match is not None
    negated, guard, opcode, rest = match.groups()
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
    return Instruction(
        tuple(opcode.split(".")),
        tuple(operands),
        (guard, bool(negated)) if guard else None,
        text,
        line,
    )


def _aligned(value: int, align: int) -> int:
    return -(-value // max(align, 1)) * max(align, 1)
