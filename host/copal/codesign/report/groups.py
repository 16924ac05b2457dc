# SPDX-License-Identifier: MIT
"""Runs of the same settings with different seeds make a group; what groups differ in names them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copal.codesign.report.folder import Run

APART = frozenset(
    {"seed", "out", "resume", "quiet", "tensorboard", "checkpoint_interval", "keep_checkpoints"}
)
"""Settings in which runs of one group may differ: they change neither learning nor its speed."""
TELLING = (
    "algo",
    "env",
    "backend",
    "device",
    "actors",
    "num_envs",
    "learners",
    "learner_mode",
    "update_interval",
    "steps",
)
"""Settings that groups are rather named by, in this order."""
LONG = 3
"""Settings in a label from which those with the value that most groups have are left out."""
_PLAIN = ("algo", "env", "backend", "device", "learner_mode")


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    index: int
    """Place in the report, from 0; chooses the colour."""
    label: str
    """What it is called, unique in the report."""
    runs: tuple[Run, ...]
    """Its runs, by seed."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings of its runs."""
        return self.runs[0].config

    @property
    def seeds(self) -> str:
        """Its seeds as text."""
        return ", ".join(shown(run.config.get("seed")) for run in self.runs)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """The groups of `runs`, in the order in which they first appear."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        settings = {k: v for k, v in run.config.items() if k not in APART}
        found.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    members = [
        sorted(group, key=lambda run: str(run.config.get("seed"))) for group in found.values()
    ]
    labels = _labels([group[0].config for group in members])
    return [
        Group(i, label, tuple(group))
        for i, (label, group) in enumerate(zip(labels, members, strict=True))
    ]


def differences(groups: Sequence[Group]) -> list[str]:
    """Settings that are not the same in all groups."""
    return _differing([group.config for group in groups])


def shown(value: Any) -> str:
    """A setting's value as text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(shown, value)) or "-"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def _differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for config in configs for name in config)
    return [
        name
        for name in names
        if name not in APART and len({json.dumps(c.get(name)) for c in configs}) > 1
    ]


def _labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """As few settings as tell the groups apart."""
    if len(configs) == 1:
        return [f"{shown(configs[0].get('algo'))} on {shown(configs[0].get('env'))}"]
    differing = _differing(configs)
    known = [n for n in TELLING if n in differing]
    chosen: list[str] = []
    found: set[tuple[str, ...]] = {()}
    for name in known + [n for n in differing if n not in known]:
        longer = {tuple(_part(n, c) for n in (*chosen, name)) for c in configs}
        if len(longer) > len(found):
            chosen, found = [*chosen, name], longer
        if len(found) == len(configs):
            break
    return [", ".join(_parts(chosen, config, configs)) or "base settings" for config in configs]


def _parts(
    names: Sequence[str], config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]
) -> list[str]:
    if len(names) > LONG:
        names = [n for n in names if _part(n, config) != _usual(n, configs)]
    return [_part(name, config) for name in names]


def _usual(name: str, configs: Sequence[Mapping[str, Any]]) -> str:
    """The part of a label that most groups have; of several, the first one."""
    return Counter(_part(name, config) for config in configs).most_common(1)[0][0]


def _part(name: str, config: Mapping[str, Any]) -> str:
    value = shown(config.get(name))
    return value if name in _PLAIN else f"{name.replace('_', ' ')} {value}"
