# SPDX-License-Identifier: MIT
"""What the FPGA engine would do on a board: the cycles of its RTL at a stated clock.

The cycle model is held to the RTL cycle for cycle by the tests. What no simulation can tell, the
transfers between host and board, is left out, and said to be.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from copal.codesign.profile import Cost, Curve, Point
from copal.codesign.rig import Rig
from copal.errors import CopalError
from copal.fpga.compiler import compile_update
from copal.fpga.engine import DEFAULT_CLOCK_MHZ, sized

PERIOD = 2
"""Updates that the cycles are averaged over: delayed phases run every other one."""
HOST_STAGES = ("sample", "priority")
"""What the host does for each update beside the engine, on the same thread."""


def stands_in(backend: str, options: Mapping[str, Any]) -> bool:
    """Whether the rates of a backend with these options are simulated."""
    return backend == "fpga" and options.get("device") != "pynq"


def curve(rig: Rig, options: Mapping[str, Any]) -> Curve:
    """The curve of an engine of the smallest size for the run's Update.

    Args:
        rig: What the Update comes from.
        options: `device`, `lanes`, `clock_mhz`, those that were given.

    Returns:
        One point, x = 1: a single thread feeds the engine. Without points, and with the reason, if
        the engine cannot run the Update.
    """
    clock_mhz = float(options.get("clock_mhz") or DEFAULT_CLOCK_MHZ)
    try:
        engine = sized(rig.built.update, rig.batch_size, options.get("lanes"))
        plan = compile_update(rig.built.update, engine, rig.batch_size)
    except CopalError as e:
        return Curve("fpga", (), absent=str(e).replace("\n", "; "), options=dict(options))
    cycles = statistics.fmean(plan.cycles(u) for u in range(PERIOD))
    source = (
        f"simulated: {cycles:,.0f} cycles of the RTL on {engine.lanes:,} lanes at "
        f"{clock_mhz:g} MHz, a clock that is stated and not measured; no transfers"
    )
    engine_us = cycles / clock_mhz
    point = Point(1, (1e6 / engine_us,), {"update": (engine_us,)})
    return Curve("fpga", (point,), source, 1, options=dict(options))


def with_host(found: Curve, costs: Iterable[Cost]) -> Curve:
    """The curve with the host's share of each update, as it was measured here.

    Args:
        found: A curve of `curve`.
        costs: Costs of stages.
    """
    host: dict[str, float] = {}
    for cost in costs:
        if cost.stage in HOST_STAGES:
            host.setdefault(cost.stage, cost.median_us)
    if not host or not found.points or len(found.points[0].stages) > 1:  # it has them already
        return found
    (engine_us,) = found.points[0].stages["update"]
    stages = {"update": (engine_us,), **{name: (us,) for name, us in host.items()}}
    rate = 1e6 / (engine_us + sum(host.values()))
    source = f"{found.source}; with {' and '.join(host)} measured on this host"
    return replace(found, points=(Point(1, (rate,), stages),), source=source)
