# SPDX-License-Identifier: MIT
"""An Update: what one learner step does, as Programs plus the reduce step of each.

The reduce step is the parameter server of *Parallel Actors and Learners* (HiPC 2021): sum the
learners' shares in fixed order, divide by the batch size, clip, Adam, average the target networks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from copal.errors import ProgramError
from copal.program.program import VERSION, Program, parse


@dataclass(frozen=True)
class Adam:
    """Settings of Adam (Kingma and Ba 2015, Algorithm 1), with bias correction."""

    learning_rate: float = 1e-3
    """Step size."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the square root of the corrected second moment."""


@dataclass(frozen=True)
class Phase:
    """One row program and the optimiser step on its gradient."""

    program: Program
    """Its `gradient` names the network that the step changes."""
    optimiser: Adam
    """Settings of the step."""
    max_grad_norm: float | None = None
    """Averaged gradient times min(1, max_grad_norm / its Euclidean norm); None: no clipping."""
    every: int = 1
    """Run in updates u = 0, 1, ... with (u + 1) % every == 0."""


@dataclass(frozen=True)
class Target:
    """A network that follows another one: target += tau * (source - target)."""

    source: str
    """The network that learns."""
    target: str
    """The network that follows."""
    tau: float = 0.005
    """Averaging rate; 1 copies."""
    every: int = 1
    """Averaged after updates u with (u + 1) % every == 0."""


@dataclass(frozen=True)
class Update:
    """Everything a learner needs to know about an algorithm.

    Within one update the phases run in order, each with its optimiser step before the next one
    starts, then the targets are averaged in order. `td_error` of the first phase is the priority.
    """

    name: str
    """The algorithm."""
    phases: tuple[Phase, ...]
    """At least one."""
    targets: tuple[Target, ...]
    """May be empty."""
    policy: Program
    """Forward pass that acts: input `obs`, outputs `q` and `action` for DQN."""
    seed: int = 0
    """Key of the noise that learners make, below 2^64."""

    def networks(self) -> dict[str, int]:
        """Name to size of every parameter vector, in order of first use."""
        programs = [p.program for p in self.phases] + [self.policy]
        return {n.name: n.size for program in programs for n in program.networks}

    def noises(self) -> tuple[str, ...]:
        """Names of the phases' inputs made by the learner, in order of first use.

        The position of a name is its `stream` in `copal.program.noise`; the same name in two phases
        stands for the same numbers.
        """
        inputs = (b for p in self.phases for b in p.program.inputs if b.source == "normal")
        return tuple(dict.fromkeys(b.name for b in inputs))

    def trained(self) -> tuple[str, ...]:
        """Names of the networks that have an optimiser state, in order of first use."""
        return tuple(dict.fromkeys(str(p.program.gradient) for p in self.phases))

    def to_json(self) -> str:
        """The Update as JSON, one line."""
        data = asdict(self)
        for phase, plain in zip(self.phases, data["phases"], strict=True):
            plain["program"] = phase.program.to_dict()
        data["policy"] = self.policy.to_dict()
        return json.dumps({"version": VERSION, **data})

    @classmethod
    def from_json(cls, text: str) -> Update:
        """Inverse of `to_json`.

        Raises:
            ProgramError: The version is another one, or the content is malformed.
        """
        data = parse("update", text)
        if not isinstance(data, Mapping):
            raise ProgramError("update", "a dictionary", type(data).__name__)
        if data.get("version") != VERSION:
            raise ProgramError("version", str(VERSION), str(data.get("version")))
        try:
            return cls(
                name=data["name"],
                phases=tuple(
                    Phase(
                        Program.from_dict(p["program"]),
                        Adam(**p["optimiser"]),
                        p["max_grad_norm"],
                        p["every"],
                    )
                    for p in data["phases"]
                ),
                targets=tuple(Target(**t) for t in data["targets"]),
                policy=Program.from_dict(data["policy"]),
                seed=int(data.get("seed", 0)),
            )
        except (KeyError, TypeError) as e:
            raise ProgramError("update", "an Update as `to_json` writes it", repr(e)) from e
