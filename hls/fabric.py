# SPDX-License-Identifier: MIT
"""Cuts a function into pipeline stages by the delays of an FPGA.

XLS schedules by the delays of an ASIC, in which a multiplier is slow and a chain of carries is as
slow as the gates it is made of. In an FPGA a hard multiplier costs as much as a few look-up tables,
a chain of carries a little more than one, and wires cost most. So the stages of deep functions are
chosen here, by the delays below; XLS then translates each stage alone.

    IR of the function -> delays, paths -> linear program: fewest registers -> a function a stage
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil, log

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

_NODE = re.compile(
    r"  (?P<ret>ret )?(?P<name>[\w.]+): (?P<type>.+?) = (?P<op>\w+)\((?P<args>.*)\)$"
)
_PARAMETER = re.compile(r"([\w.]+): (bits\[\d+\]) id=\d+")
_BITS = re.compile(r"bits\[(\d+)\]")
_NAME = re.compile(r"[A-Za-z_][\w.]*\b(?![=(])")
_PLACE = re.compile(r", pos=\[.*\]\)$")
_WIRES = {"bit_slice", "concat", "sign_ext", "zero_ext", "tuple", "literal", "not", "param"}
_GATES = {"and", "or", "xor", "nand", "nor"}
_SUMS = {"add", "sub", "neg"}
#: Stages from what makes an operand of a multiplier to the product. Multiplier blocks lie in a few
#: rows of the device, so one stage is for the way there, if there are stages enough.
AWAY = 2
#: Registers one behind the other from which on a ring in LUT RAM is smaller.
RING = 7
_PRODUCTS = {"umul", "smul"}
_ORDERS = {"ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"}


@dataclass(frozen=True)
class Node:
    """One operation of a function."""

    name: str
    """Its name."""
    type: str
    """Its type, as the IR has it."""
    op: str
    """What it does; `param` for an argument of the function."""
    text: str
    """What follows the type in the IR."""
    operands: tuple[str, ...]
    """Names of the nodes that it reads, some of them twice."""

    @property
    def bits(self) -> int:
        """Bits of its value; those of an array count for nothing, since it is constant."""
        found = _BITS.fullmatch(self.type)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Function:
    """A function whose results are the fields of a tuple."""

    nodes: Mapping[str, Node]
    """All nodes, arguments first, each after those it reads."""
    results: tuple[str, ...]
    """Names of the nodes that are its results."""

    @property
    def arguments(self) -> list[Node]:
        """Its arguments in order."""
        return [node for node in self.nodes.values() if node.op == "param"]


@dataclass(frozen=True)
class Schedule:
    """Where the stages of a function lie."""

    stage: Mapping[str, int]
    """Stage of every node, from 0; arguments that stay the same, and what depends on nothing but
    them and constants, have none."""
    last: Mapping[str, int]
    """Stage of the last node that reads it; the number of stages for a result."""
    delay: float
    """Delay of the longest path within a stage, in look-up tables."""


def parse(text: str) -> Function:
    """The top function of an optimised IR package."""
    lines = text[text.index("\ntop fn ") :].splitlines()[1:]
    nodes = {name: Node(name, kind, "param", "", ()) for name, kind in _PARAMETER.findall(lines[0])}
    results: tuple[str, ...] = ()
    for line in lines[1:]:
        found = _NODE.match(line)
        if found is None:
            break
        body = f"{found['op']}({found['args']})"
        operands = tuple(name for name in _NAME.findall(_PLACE.sub(")", body)) if name in nodes)
        node = Node(found["name"], found["type"], found["op"], body, operands)
        if found["ret"]:
            results = operands if node.op == "tuple" else (node.name,)
        nodes[node.name] = node
    return Function(nodes, results)


def delay(node: Node, nodes: Mapping[str, Node]) -> float:
    """Delay of a node, in look-up tables with their wires, but for the way to a multiplier."""
    widths = [nodes[name].bits for name in node.operands]
    if node.op in _WIRES:
        return 0.0
    if node.op in _GATES:
        return 0.5 if len(widths) == 2 else _tables(len(widths))
    if node.op in _SUMS or node.op in _ORDERS:
        return 1.9 + 0.04 * max(widths)
    if node.op in ("eq", "ne"):
        constant = any(nodes[name].op == "literal" for name in node.operands)
        return _tables(widths[0] if constant else 2 * widths[0])
    if node.op == "sel":
        return 1.0 + 0.75 * ceil(log(max(1, len(widths) - 2), 2))
    if node.op in ("priority_sel", "one_hot_sel"):
        return 1.0 + _tables(2 * (len(widths) - 1))
    if node.op in _PRODUCTS:
        return 4.5 if max(widths) <= 18 else 6.5
    if node.op in ("shll", "shrl", "shra"):
        return 1.0 * widths[1]
    if node.op == "array_index":
        return 5.0
    return _tables(max(widths))


def _tables(inputs: int) -> float:
    """Levels of four-input tables that a gate with so many inputs takes."""
    return float(max(1, ceil(log(max(inputs, 2), 4) - 1e-9)))


def schedule(function: Function, stages: int, held: Iterable[str] = ()) -> Schedule:
    """Chooses the stages: the shortest longest path, then the fewest bits of registers.

    Args:
        function: What to cut.
        stages: How many stages.
        held: Arguments that stay the same while anything is under way.

    Raises:
        ValueError: A result depends on nothing that moves.
    """
    nodes = function.nodes
    still = _still(function, held)
    if still & set(function.results):
        raise ValueError("a result depends on nothing but constants and held arguments")
    moving = [name for name in nodes if name not in still]
    delays = {name: delay(nodes[name], nodes) for name in moving}
    users: dict[str, list[str]] = {name: [] for name in moving}
    for name in moving:
        for operand in dict.fromkeys(nodes[name].operands):
            if operand in users:
                users[operand].append(name)
    low, high = max(delays.values()), sum(delays.values())
    away = AWAY if _depth(function, delays, high, AWAY) <= stages else 0
    while high - low > 0.05:
        middle = (low + high) / 2
        if _depth(function, delays, middle, away) <= stages:
            high = middle
        else:
            low = middle
    chosen, last = _fewest_registers(function, stages, delays, users, high, away)
    return Schedule(chosen, last, high)


def _still(function: Function, held: Iterable[str]) -> set[str]:
    """What depends on nothing but constants and `held`."""
    still = set(held)
    for node in function.nodes.values():
        if node.op != "param" and all(name in still for name in node.operands):
            still.add(node.name)
    return still


def _depth(function: Function, delays: Mapping[str, float], limit: float, away: int) -> int:
    """Stages that paths no longer than `limit` take, everything as early as can be."""
    at: dict[str, tuple[int, float]] = {}
    for name, own in delays.items():
        node = function.nodes[name]
        before = [at[o] for o in node.operands if o in at]
        if node.op in _PRODUCTS:
            before = [(stage + away, 0.0 if away else reached) for stage, reached in before]
        stage, reached = max(before, default=(0, 0.0))
        at[name] = (stage, reached + own) if reached + own <= limit else (stage + 1, own)
    return 1 + max(stage for stage, _ in at.values())


def _fewest_registers(
    function: Function,
    stages: int,
    delays: Mapping[str, float],
    users: Mapping[str, Sequence[str]],
    limit: float,
    away: int,
) -> tuple[dict[str, int], dict[str, int]]:
    """Stages and last uses by a linear program whose corners are whole numbers."""
    nodes, names = function.nodes, list(delays)
    index = {name: i for i, name in enumerate(names)}
    count = len(names)
    rows: list[tuple[int, int, int]] = []  # x[a] - x[b] <= c
    for name in names:
        i = index[name]
        rows += [(i, index[u], -away * (nodes[u].op in _PRODUCTS)) for u in users[name]]
        rows += [(index[user], count + i, 0) for user in users[name]]
        rows += [(i, index[far], -1) for far in _too_far(name, delays, users, limit, index)]
        rows.append((i, count + i, 0))
    bounds = [(0, stages - 1)] * count + [(0, stages)] * count
    for name in names:
        if function.nodes[name].op == "param":
            bounds[index[name]] = (0, 0)
    for name in function.results:
        bounds[count + index[name]] = (stages, stages)
    bits = np.array([function.nodes[name].bits for name in names], dtype=float)
    a, b, c = (np.array(column) for column in zip(*rows, strict=True))
    number = np.arange(len(rows))
    matrix = coo_array(
        (
            np.repeat([1.0, -1.0], len(rows)),
            (np.concatenate([number, number]), np.concatenate([a, b])),
        ),
        shape=(len(rows), 2 * count),
    ).tocsr()
    # A hair for every stage of delay, so that what costs nothing is not put off.
    cost = np.concatenate([-bits + 1e-3, bits])
    solved = linprog(cost, A_ub=matrix, b_ub=c, bounds=bounds, method="highs-ds")
    if not solved.success:
        raise ValueError(f"no schedule of {stages} stages: {solved.message}")
    found = np.rint(solved.x).astype(int)
    return (
        {name: int(found[i]) for name, i in index.items()},
        {name: int(found[count + i]) for name, i in index.items()},
    )


def _too_far(
    name: str,
    delays: Mapping[str, float],
    users: Mapping[str, Sequence[str]],
    limit: float,
    order: Mapping[str, int],
) -> list[str]:
    """The first nodes on the paths from `name` whose results come later than `limit`."""
    reached, far = {name: delays[name]}, []
    heap, seen = [(order[name], name)], {name}
    while heap:
        _, at = heappop(heap)
        if reached[at] > limit:
            far.append(at)
            continue
        for user in users[at]:
            reached[user] = max(reached.get(user, 0.0), reached[at] + delays[user])
            if user not in seen:
                seen.add(user)
                heappush(heap, (order[user], user))
    return far


def verilog(
    name: str,
    function: Function,
    plan: Schedule,
    held: Iterable[str],
    translate: Callable[[str, str], str],
) -> str:
    """Verilog of a scheduled function: registers, and a module a stage.

    Args:
        name: Of the module.
        function: What it computes.
        plan: Its stages.
        held: As for `schedule`.
        translate: Makes a combinational module of a function: its IR package, the name of both.
    """
    return _Writer(name, function, plan, held, translate).text()


class _Writer:
    """Puts the Verilog of one function together."""

    def __init__(
        self,
        name: str,
        function: Function,
        plan: Schedule,
        held: Iterable[str],
        translate: Callable[[str, str], str],
    ) -> None:
        self.name, self.function, self.plan, self.translate = name, function, plan, translate
        self.still, self.constant = _still(function, held), _still(function, ())
        self.short = {node: f"v{i}" for i, node in enumerate(function.nodes)}
        self.outer = {node.name for node in function.arguments}
        self.rings = self._waits()
        self.parts: list[str] = []
        self.body: list[str] = []

    def text(self) -> str:
        """All modules, the whole one first."""
        nodes, stages = self.function.nodes, max(self.plan.last.values())
        self._held()
        for stage in range(stages):
            self._stage(stage)
        for length, waiting in sorted(self.rings.items()):
            self._ring(length, waiting)
        width = sum(nodes[n].bits for n in self.function.results)
        ports = [f"  input wire [{n.bits - 1}:0] {n.name}," for n in self.function.arguments]
        results = ", ".join(f"r{stages}_{self.short[n]}" for n in self.function.results)
        head = [f"module {self.name}(", "  input wire clk,", *ports]
        head += [f"  output wire [{width - 1}:0] out", ");"]
        whole = [*head, *self.body, f"  assign out = {{{results}}};", "endmodule", ""]
        return "\n".join([*whole, *self.parts])

    def _waits(self) -> dict[int, list[tuple[str, int]]]:
        """Values that nothing reads for long: by length, names and stages of the start."""
        plan, nodes = self.plan, self.function.nodes
        read: dict[str, set[int]] = {n: {plan.stage[n]} for n in plan.stage}
        for n, stage in plan.stage.items():
            for operand in nodes[n].operands:
                if operand in read and nodes[n].op != "tuple":
                    read[operand].add(stage)
        for n in self.function.results:
            read[n].add(plan.last[n])
        found: dict[int, list[tuple[str, int]]] = {}
        for n, stages in read.items():
            for start, end in pairwise(sorted(stages)):
                if end - start > RING:
                    found.setdefault(end - start - 1, []).append((n, start + 1))
        return found

    def _ring(self, length: int, waiting: Sequence[tuple[str, int]]) -> None:
        """One line of registers, `rtl/ram.v`, for all values that wait for so many cycles."""
        ends = [(f"r{at + length}_{self.short[n]}", n) for n, at in waiting]
        nodes = self.function.nodes
        width = sum(nodes[n].bits for n, _ in waiting)
        into = ", ".join(f"r{at}_{self.short[n]}" for n, at in waiting)
        out = ", ".join(name for name, _ in ends)
        self.body.append(f"  delay #(.WIDTH({width}), .STAGES({length})) u_wait_{length} (")
        self.body.append(f"    .clk(clk), .in({{{into}}}), .out({{{out}}}));")

    def _held(self) -> None:
        """What depends on held arguments alone: one register is enough for all stages."""
        nodes = self.function.nodes
        cone = [n for n in nodes if n in self.still - self.constant - self.outer]
        read = {o for n in self.plan.stage for o in nodes[n].operands}
        wanted = [n for n in cone if n in read]
        if wanted:
            self._module(f"{self.name}_held", cone, wanted, 0)
            self._registers(
                "held", wanted, {n: f"{self.name}_held_{self.short[n]}" for n in wanted}
            )

    def _stage(self, stage: int) -> None:
        """The module of a stage and the registers behind it."""
        plan, nodes = self.plan, self.function.nodes
        inside = [n for n in plan.stage if nodes[n].op != "tuple"]
        chosen = [n for n in inside if plan.stage[n] == stage and n not in self.outer]
        alive = [n for n in inside if plan.stage[n] <= stage < plan.last[n]]
        made = [n for n in chosen if plan.last[n] > stage]
        label = f"{self.name}_{stage}"
        if made:
            self._module(label, chosen, made, stage)
        asleep = {
            n: at + length
            for length, waiting in self.rings.items()
            for n, at in waiting
            if at <= stage < at + length
        }
        ends = [n for n in alive if asleep.get(n) == stage + 1]
        self.body += [f"  wire [{nodes[n].bits - 1}:0] r{stage + 1}_{self.short[n]};" for n in ends]
        awake = [n for n in alive if n not in asleep]
        sources = {n: self._wire(n, stage) for n in awake}
        sources |= {n: f"{label}_{self.short[n]}" for n in made}
        self._registers(f"r{stage + 1}", awake, sources)

    def _wire(self, node: str, stage: int) -> str:
        """What holds a value at the start of a stage."""
        if node in self.outer and (stage == 0 or node in self.still):
            return node
        return f"{'held' if node in self.still else f'r{stage}'}_{self.short[node]}"

    def _registers(self, prefix: str, names: Sequence[str], sources: Mapping[str, str]) -> None:
        bits = self.function.nodes
        self.body += [f"  reg [{bits[n].bits - 1}:0] {prefix}_{self.short[n]};" for n in names]
        self.body.append("  always @(posedge clk) begin")
        self.body += [f"    {prefix}_{self.short[n]} <= {sources[n]};" for n in names]
        self.body.append("  end")

    def _module(self, label: str, chosen: Sequence[str], wanted: Sequence[str], stage: int) -> None:
        """A module of the nodes `chosen`, and its instance, whose results have wires."""
        nodes, short, own = self.function.nodes, self.short, set(chosen)
        read = dict.fromkeys(o for n in chosen for o in nodes[n].operands)
        inputs = [n for n in read if n not in own and n not in self.constant]
        constants = [n for n in nodes if n in self.constant]
        package = _package(self.function, label, short, [*constants, *chosen], inputs, wanted)
        self.parts.append(self.translate(package, label))
        wires = ", ".join(f"{label}_{short[n]}" for n in wanted)
        ports = [f".{short[n]}({self._wire(n, stage)})" for n in inputs] + [f".out({{{wires}}})"]
        self.body += [f"  wire [{nodes[n].bits - 1}:0] {label}_{short[n]};" for n in wanted]
        self.body.append(f"  {label} u_{label} ({', '.join(ports)});")


def _package(
    function: Function,
    label: str,
    short: Mapping[str, str],
    chosen: Sequence[str],
    inputs: Sequence[str],
    wanted: Sequence[str],
) -> str:
    """IR package of one function: of the nodes `chosen`, in order, those that `wanted` needs."""
    nodes, needed = function.nodes, set(wanted)
    for n in reversed(chosen):
        if n in needed:
            needed |= set(nodes[n].operands)
    number = iter(range(1, 1 << 30))

    def rename(text: str) -> str:
        text = _PLACE.sub(")", text)
        text = re.sub(r"\bid=\d+", lambda _: f"id={next(number)}", text)
        return _NAME.sub(lambda m: short.get(m[0], m[0]), text)

    types = ", ".join(nodes[n].type for n in wanted)
    heads = [f"{short[n]}: {nodes[n].type} id={next(number)}" for n in inputs]
    lines = [f"package {label}", "", f"top fn {label}({', '.join(heads)}) -> ({types}) {{"]
    used = [n for n in chosen if n in needed]
    lines += [f"  {short[n]}: {nodes[n].type} = {rename(nodes[n].text)}" for n in used]
    fields = ", ".join(short[n] for n in wanted)
    lines += [f"  ret results: ({types}) = tuple({fields}, id={next(number)})", "}", ""]
    return "\n".join(lines)
