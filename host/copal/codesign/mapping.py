# SPDX-License-Identifier: MIT
"""Where replay and learner go: the iteration-time rule of PEARL's system composer.

Source: C. Zhang, Y. Meng, V. Prasanna, *A Framework for Mapping DRL Algorithms With Prioritized
Replay Buffer Onto Heterogeneous Platforms*, IEEE TPDS 2023, and its successor PEARL, CF 2024:

    T_itr = T_sample + max(T_update + T_insert, T_learn), plus what goes over the link between them

over the devices of the replay and of the learner. Only what was measured is compared.
"""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass

from copal.codesign.profile import Profile

REPLAY_STAGES = ("sample", "priority", "insert")
"""Stages that a device of the replay must have."""
HOST = "cpu"
"""The device of host memory."""
IN_HOST_MEMORY = ("cpu", "torch", "reference")
"""Backends whose weights lie where the actors read them."""


@dataclass(frozen=True)
class Mapping:
    """A device for the replay and one for the learner."""

    replay: str
    """Where the replay is."""
    learner: str
    """What runs the updates."""
    iteration_us: float
    """Microseconds of an iteration."""
    transfer_us: float
    """Those among them that go to the link between the two; 0 in the same memory."""
    samples_per_s: float
    """Rows learnt from a second, at best: batch over iteration."""
    simulated: bool = False
    """Whether the learner's time is simulated."""


def iteration_us(
    replay: AnyMapping[str, float], learn_us: float, transfer_us: float, rows_inserted: float
) -> float:
    """The rule.

    Args:
        replay: Microseconds of `sample` and `priority`, an update, and of `insert`, a row.
        learn_us: Of an update.
        transfer_us: Of the batch to the learner, and of what comes back.
        rows_inserted: Rows that enter the replay in an iteration.
    """
    upkeep = replay["priority"] + rows_inserted * replay["insert"]
    return replay["sample"] + transfer_us + max(upkeep, learn_us)


def mappings(profile: Profile) -> list[Mapping]:
    """Every pair of devices whose stages and transfers were measured, the fastest first.

    The replay of copal is in host memory, so its device is `cpu`. A learner elsewhere counts with
    a measured `transfer_weights` (the way of the batch to it is part of its `update`), or, without
    transfers, if it is simulated.

    Args:
        profile: What was measured.
    """
    costs = {(c.backend, c.stage): c.median_us for c in profile.costs}
    rows = int(profile.settings.get("batch_size") or 0)
    inserted = float(profile.settings.get("num_envs") or 1)
    found = []
    for curve in profile.learners:
        name = curve.backend
        stages = curve.points[0].stages if curve.simulated and curve.points else {}
        learn = costs.get((name, "update")) or next(iter(stages.get("update", ())), None)
        replay = _replay_stages(costs, name)
        moved = 0.0 if name in IN_HOST_MEMORY else costs.get((name, "transfer_weights"))
        if moved is None and curve.simulated:
            moved = 0.0
        if learn is None or replay is None or moved is None or not rows:
            continue
        total = iteration_us(replay, learn, moved, inserted)
        found.append(Mapping(HOST, name, total, moved, rows / total * 1e6, curve.simulated))
    return sorted(found, key=lambda m: (m.iteration_us, m.learner))


def _replay_stages(
    costs: AnyMapping[tuple[str, str], float], backend: str
) -> dict[str, float] | None:
    """The replay's stages as this learner's thread sees them, or as the `cpu` backend's does."""
    found = {}
    for stage in REPLAY_STAGES:
        seen = [costs.get((name, stage)) for name in (backend, HOST, "")]
        known = [us for us in seen if us is not None]
        if not known:
            return None
        found[stage] = known[0]
    return found
