# SPDX-License-Identifier: MIT
"""The settings of `copal profile`, `copal allocate` and `copal train --plan`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from copal.bounds import MOST_ROUNDS, at_most, check_count
from copal.codesign.solve import OBJECTIVES, check_cores
from copal.config import BACKEND_SETTINGS, DEVICES, TrainConfig
from copal.errors import ConfigError, PlanError
from copal.runtime.machine import allowed_cpus

#: Settings of a run that its speed depends on, besides actors, learners and the backend.
SPEED_SETTINGS = (
    "algo",
    "env",
    "vectorization",
    "frame_stack",
    "num_envs",
    "learner_mode",
    "hidden",
    "batch_size",
    "policy_delay",
    "max_grad_norm",
    "normalize_observations",
    "buffer_size",
    "prioritized",
    "fanout",
    "n_step",
    "share_next_obs",
    "algo_settings",
)

#: Settings of a run that nothing is measured with.
_NOT_MEASURED = ("resume", "deterministic", "actors", "learners", "backend")


@dataclass(frozen=True)
class ProfileConfig(TrainConfig):
    """Measure env steps a second over actors and updates a second over learners, here.

    Takes the settings of `copal train`; those that a speed depends on count. Both sides at once are
    also measured with the gate at `update_interval`, which predictions are the best for.

    Raises:
        ConfigError: A value is out of range.
        PlanError: There are fewer than 2 cores, or more than this machine has.
    """

    backend_flag: ClassVar[str] = "--backends"

    backends: tuple[str, ...] = ("cpu",)
    """What may run the learners: `cpu`, `torch`, `gpu`, `fpga`; one that cannot be used here is
    recorded with the reason, `fpga` without a board by the cycles of its RTL."""
    cores: int | None = None
    """Most threads of each side; None: the cores that this process may use."""
    repeats: int = 5
    """Every point is measured once a round; figures are medians over so many rounds."""
    seconds: float = 45.0
    """Time for all measurements together; building and filling the replay comes on top."""
    out: Path | None = None
    """File that gets the profile; None: profile.json. One that is there already and lacks
    measurements of these settings is completed."""
    force: bool = False
    """Replace a file of other settings or of another machine."""

    backend: Annotated[str, tyro.conf.Suppress] = "cpu"
    """Refused: see `backends`."""
    actors: Annotated[int, tyro.conf.Suppress] = 1
    """Refused: all numbers are measured."""
    learners: Annotated[int, tyro.conf.Suppress] = 1
    """Refused: all numbers are measured."""
    resume: Annotated[Path | None, tyro.conf.Suppress] = None
    """Refused: there is no run."""
    deterministic: Annotated[bool, tyro.conf.Suppress] = False
    """Refused: such a run has one thread."""

    def __post_init__(self) -> None:
        defaults = {f.name: f.default for f in dataclasses.fields(TrainConfig)}
        for name in _NOT_MEASURED:
            if getattr(self, name) != defaults[name]:
                expected = "nothing: it is what the profile helps to decide"
                raise ConfigError(name, expected, repr(getattr(self, name)), "leave it out")
        given = [name for name in BACKEND_SETTINGS if getattr(self, name) is not None]
        users = [backend for backend in self.backends if self.options(backend).keys() >= {*given}]
        # A device is checked for the backend that it belongs to.
        object.__setattr__(self, "backend", users[0] if given and users else "cpu")
        super().__post_init__()
        object.__setattr__(self, "backend", "cpu")
        if not self.backends or len(set(self.backends)) < len(self.backends):
            expected = "one or more backends, each once"
            raise ConfigError("backends", expected, " ".join(self.backends) or "none")
        check_count("repeats", self.repeats, at_most(MOST_ROUNDS))
        if not (0 < self.seconds < math.inf):
            raise ConfigError("seconds", "a finite number above 0", str(self.seconds))
        here = len(allowed_cpus())
        if self.cores is not None and self.cores > max(here, 1):
            raise PlanError(
                "cores",
                f"at most {here}, the cores that can be used here",
                str(self.cores),
                "for another machine give its curves to `copal allocate --cores`",
            )
        if self.cores is not None:
            check_cores(self.cores)

    @property
    def most(self) -> int:
        """Cores up to which curves are measured.

        Raises:
            PlanError: There is only one.
        """
        cores = len(allowed_cpus()) if self.cores is None else self.cores
        check_cores(cores)
        return cores

    def options(self, backend: str) -> dict[str, Any]:
        """The settings among them that are a backend's own."""
        return {
            name: getattr(self, name)
            for name, having in BACKEND_SETTINGS.items()
            if backend in having
            and getattr(self, name) is not None
            and (name != "device" or self.device in DEVICES.get(backend, ()))
        }

    def training(self) -> TrainConfig:
        """The settings of a run among them, but for those of a backend."""
        left_out = {"out", *BACKEND_SETTINGS}
        names = [f.name for f in dataclasses.fields(TrainConfig) if f.name not in left_out]
        return TrainConfig(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class AllocateConfig:
    """Decide how many cores act and how many learn, and on which backend.

    Raises:
        ConfigError: A value is out of range.
    """

    profile: tyro.conf.Positional[Path]
    """File of `copal profile`, or curves as `{"env_steps_per_s": [...], "updates_per_s": {"cpu":
    [...]}}`."""
    update_interval: float = 1.0
    """Environment steps an update; 0.5 means two updates a step."""
    objective: str = "throughput"
    """`throughput`; `latency`, of a step and the update that learns from it; or `energy-proxy`,
    core-seconds an env step."""
    cores: int | None = None
    """Cores to share out; None: those of the profile."""
    simulated: bool = False
    """Also choose backends whose rates are simulated; they are compared in any case."""
    out: Path | None = None
    """File that gets the plan; None: plan.json."""
    plot: Path | None = None
    """Image file that gets the curves, the solution and the frontier."""
    json: bool = False
    """Print the plan as JSON instead of text."""
    force: bool = False
    """Take a profile of another machine or of another version of copal."""

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            expected = f"one of {', '.join(OBJECTIVES)}"
            raise ConfigError("objective", expected, f"`{self.objective}`")
        if not (0 < self.update_interval < math.inf):
            expected = "a finite number above 0"
            raise ConfigError("update_interval", expected, str(self.update_interval))


@dataclass(frozen=True)
class PlannedTrain(TrainConfig):
    """Train an agent, by a plan if there is one.

    Raises:
        ConfigError: A value is out of range.
    """

    plan: Path | None = None
    """File of `copal allocate`: it says how many actors and learners, and on which backend."""
    force: bool = False
    """Take a plan of another machine or of another version of copal."""

    def training(self) -> TrainConfig:
        """The settings of a run among them."""
        names = [f.name for f in dataclasses.fields(TrainConfig)]
        return TrainConfig(**{name: getattr(self, name) for name in names})
