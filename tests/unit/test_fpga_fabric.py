# SPDX-License-Identifier: MIT
"""How functions are cut into pipeline stages: cuts are allowed, registers few, results right."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xls

from copal.fpga import rtl

SOURCE = """
pub fn f(k: u8, x: u24, y: u24, z: u1) -> (u24, u1, u24) {
  let scaled = x * ((k + u8:3) as u24);
  let sum = scaled + y;
  let least = if sum < x { sum } else { x ^ y };
  (least + scaled, (y == u24:77) & z, if z { sum - least } else { y })
}
"""
ARGUMENTS = (8, 24, 24, 1)


@pytest.fixture(scope="module")
def fabric() -> ModuleType:
    """The module `hls/fabric.py`."""
    found: ModuleType = rtl.generator()._fabric()
    return found


@pytest.fixture(scope="module")
def function(fabric: ModuleType) -> Any:
    """What SOURCE computes, parsed."""
    ir = xls.convert_dslx_to_ir(SOURCE, "t.x", "t")
    return fabric.parse(xls.optimize_ir(ir, xls.mangle_dslx_name("t", "f")))


def longest(fabric: ModuleType, function: Any, plan: Any) -> float:
    """Delay of the longest path of nodes in one stage."""
    reached: dict[str, float] = {}
    for name, stage in plan.stage.items():
        node = function.nodes[name]
        before = [reached[o] for o in node.operands if plan.stage.get(o) == stage]
        reached[name] = max(before, default=0.0) + fabric.delay(node, function.nodes)
    return max(reached.values())


@pytest.mark.parametrize("held", [(), ("k",)])
@pytest.mark.parametrize("stages", [1, 2, 3, 5, 9])
def test_stages_are_ordered_and_short(
    fabric: ModuleType, function: Any, stages: int, held: tuple[str, ...]
):
    """No value is read before it is there, and no path is longer than promised."""
    plan = fabric.schedule(function, stages, held)
    assert longest(fabric, function, plan) <= plan.delay + 1e-9
    assert max(plan.stage.values()) < stages
    for name, stage in plan.stage.items():
        for operand in function.nodes[name].operands:
            if operand in plan.stage:
                assert plan.stage[operand] <= stage <= plan.last[operand]
    assert all(plan.last[name] == stages for name in function.results)
    assert all(plan.stage[n.name] == 0 for n in function.arguments if n.name not in held)


def test_more_stages_are_shorter_until_one_node_is_all(fabric: ModuleType, function: Any):
    """The promised delay falls to that of the slowest node, and no further."""
    delays = [fabric.schedule(function, stages).delay for stages in (1, 2, 4, 8, 20, 40)]
    assert delays == sorted(delays, reverse=True)
    slowest = max(fabric.delay(node, function.nodes) for node in function.nodes.values())
    assert delays[0] > 2 * slowest
    assert slowest <= delays[-1] <= slowest + 0.1


@pytest.mark.parametrize(("stages", "away"), [(2, 0), (9, 2)])
def test_operands_have_a_stage_to_reach_their_multiplier(
    fabric: ModuleType, function: Any, stages: int, away: int
):
    """If there are stages enough for that."""
    plan = fabric.schedule(function, stages)
    found = [
        plan.stage[name] - plan.stage[operand]
        for name, node in function.nodes.items()
        if node.op == "umul"
        for operand in node.operands
    ]
    assert min(found) == away


def test_a_comparison_is_made_before_it_waits(fabric: ModuleType):
    """One bit goes through the registers, not the word that it was made of."""
    ir = "package p\n\ntop fn f(x: bits[32] id=1) -> (bits[1]) {\n"
    ir += "  k: bits[32] = literal(value=7, id=2)\n  e: bits[1] = eq(x, k, id=3)\n"
    ir += "  ret t: (bits[1]) = tuple(e, id=4)\n}\n"
    plan = fabric.schedule(fabric.parse(ir), 6)
    assert plan.stage["e"] == 0
    assert plan.last["e"] == 6


def test_a_sum_waits_as_one_word(fabric: ModuleType):
    """Two operands that nothing else needs are added at once."""
    ir = "package p\n\ntop fn f(x: bits[32] id=1, y: bits[32] id=2) -> (bits[32]) {\n"
    ir += "  s: bits[32] = add(x, y, id=3)\n  ret t: (bits[32]) = tuple(s, id=4)\n}\n"
    assert fabric.schedule(fabric.parse(ir), 6).stage["s"] == 0


def test_a_result_that_never_changes_is_refused(fabric: ModuleType):
    """A function of held arguments alone has no stages."""
    ir = "package p\n\ntop fn f(x: bits[32] id=1) -> (bits[32]) {\n"
    ir += "  s: bits[32] = not(x, id=3)\n  ret t: (bits[32]) = tuple(s, id=4)\n}\n"
    with pytest.raises(ValueError, match="held"):
        fabric.schedule(fabric.parse(ir), 3, ("x",))


def translate(text: str, name: str) -> str:
    """A combinational module of a function."""
    package = xls.Package.parse_ir(text)
    package.set_top(name)
    options = {"module_name": name, "use_system_verilog": False, "delay_model": "unit"}
    made = package.schedule_and_codegen(generator="combinational", with_delay_model=True, **options)
    return str(made.get_verilog_text())


@pytest.mark.parametrize("stages", [1, 4])
def test_held_arguments_get_no_registers(fabric: ModuleType, function: Any, stages: int):
    """What depends on them alone is registered once, whatever the number of stages."""
    plan = fabric.schedule(function, stages, ("k",))
    text = fabric.verilog("f", function, plan, ("k",), translate)
    assert len(re.findall(r"reg \[\d+:0\] held_\w+;", text)) == 1
    assert re.search(r"reg \[7:0\] r\d", text) is None
    assert text.startswith("module f(\n  input wire clk,\n  input wire [7:0] k,")


@pytest.mark.parametrize("stages", [1, 2, 6, 40])
def test_stages_one_behind_the_other_compute_the_function(
    fabric: ModuleType, function: Any, stages: int, rng: np.random.Generator
):
    """The module of each stage is evaluated in turn, as the registers would feed it."""
    packages: dict[str, str] = {}

    def keep(text: str, name: str) -> str:
        packages[name] = text
        return ""

    plan = fabric.schedule(function, stages)
    whole = fabric.verilog("f", function, plan, (), keep)
    for _ in range(20):
        values = [int(rng.integers(1 << bits)) for bits in ARGUMENTS]
        if rng.integers(2):
            values[2] = 77
        assert evaluate(whole, packages, values) == expected(*values)


def expected(k: int, x: int, y: int, z: int) -> list[int]:
    """What SOURCE computes."""
    mask = (1 << 24) - 1
    scaled = x * ((k + 3) & 255) & mask
    total = (scaled + y) & mask
    least = total if total < x else x ^ y
    return [(least + scaled) & mask, (y == 77) & z, (total - least) & mask if z else y]


def evaluate(whole: str, packages: dict[str, str], values: list[int]) -> list[int]:
    """Runs the instances and registers of a module, those first whose inputs are known."""
    known = dict(zip("kxyz", values, strict=True))
    lines = whole.replace("(\n    .clk", "(.clk").splitlines()
    for line in lines * 4:
        try:
            result = step(line, packages, known)
        except KeyError:
            continue
        if result is not None:
            return result
    raise AssertionError("no result")


def step(line: str, packages: dict[str, str], known: dict[str, int]) -> list[int] | None:
    """Adds to `known` what a line makes of it; a KeyError if it lacks something."""
    if instance := re.match(r"  (f_\w+) u_\w+ \((.*)\);$", line):
        name, ports = instance[1], re.findall(r"\.(\w+)\(([\w ,{}]+)\)", instance[2])
        results = re.findall(r"\w+", dict(ports)["out"])
        package = xls.Package.parse_ir(packages[name])
        widths = dict(re.findall(r"(v\d+): bits\[(\d+)\] id", packages[name]))
        arguments = [
            xls.parse_typed_value(f"bits[{widths[port]}]:{known[wire]}")
            for port, wire in ports
            if port != "out"
        ]
        found = package.get_function(name).interpret(arguments)
        numbers = re.findall(r"bits\[\d+\]:(\d+)", str(found))
        known |= dict(zip(results, map(int, numbers), strict=True))
    elif register := re.match(r"    (\w+) <= (\w+);$", line):
        known[register[1]] = known[register[2]]
    elif result := re.match(r"  assign out = \{(.*)\};$", line):
        return [known[wire] for wire in result[1].split(", ")]
    elif ring := re.match(r"  delay .*\.in\(\{(.*)\}\), \.out\(\{(.*)\}\)\);$", line):
        inputs, outputs = ring[1].split(", "), ring[2].split(", ")
        known |= {out: known[into] for into, out in zip(inputs, outputs, strict=True)}
    return None
