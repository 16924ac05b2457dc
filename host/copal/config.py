# SPDX-License-Identifier: MIT
"""The settings of a training run: one frozen dataclass, checked in one place."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from copal.errors import ConfigError

VECTORIZATIONS = ("gymnasium", "envpool")
FANOUTS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class TrainConfig:
    """All settings of one run. The defaults train DQN on LunarLander-v3.

    Raises:
        ConfigError: A value is out of range, or two of them do not go together.
    """

    algo: str = "dqn"
    """Algorithm, a name of `copal.algorithms`."""
    env: Annotated[str, tyro.conf.arg(aliases=("--env-id",))] = "LunarLander-v3"
    """Environment id, as Gymnasium (or EnvPool) registers it."""
    backend: str = "cpu"
    """What runs the learner; `copal devices` lists those of this machine."""
    steps: Annotated[int, tyro.conf.arg(aliases=("--total-timesteps",))] = 300_000
    """Environment steps in all, over every actor."""
    actors: int = 1
    """Actor threads."""
    num_envs: int = 1
    """Environments of each actor, stepped together."""
    learners: int = 1
    """Parallel learners; they share each batch."""
    update_interval: float = 1.0
    """Environment steps per learner update; 0.5 means two updates a step."""
    batch_size: int = 64
    """Rows of a batch."""
    seed: int = 1
    """Seed of networks, environments, exploration and replay."""
    out: Path | None = None
    """Run folder; None: `runs/<env>__<algo>__<seed>__<time>`."""
    resume: Path | None = None
    """Run folder whose newest checkpoint is continued, with its own settings."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    learning_rate: Annotated[float, tyro.conf.arg(aliases=("--lr",))] = 5e-4
    """Step size of Adam."""
    gamma: float = 0.99
    """Discount of a reward one step later."""
    huber: bool = True
    """Huber loss instead of the squared error."""
    max_grad_norm: float | None = 10.0
    """Clip gradients to this Euclidean norm; None: no clipping."""
    target_tau: float = 0.005
    """Averaging rate of the target network; 1 copies."""
    target_update_interval: int = 1
    """Updates between two averagings (or copies) of the target network."""

    buffer_size: int = 100_000
    """Rows that the replay buffer holds."""
    learning_starts: int = 1_000
    """Environment steps before the first update."""
    prioritized: bool = True
    """Draw rows by priority instead of uniformly."""
    alpha: float = 0.6
    """Exponent of the priorities; 0 draws uniformly."""
    beta_start: float = 0.4
    """Exponent of the importance weights at the first update."""
    beta_end: float = 1.0
    """Exponent of the importance weights at the last update."""
    fanout: int = 16
    """Children of a node of the sum tree, a power of two from 2 to 64."""
    n_step: int = 1
    """Rewards summed before the bootstrap."""
    share_next_obs: bool = False
    """Keep each observation once: half the memory, slightly slower sampling."""

    epsilon_start: float = 1.0
    """Share of random actions at the first step."""
    epsilon_end: float = 0.05
    """Share of random actions once the decay is over."""
    epsilon_fraction: float = 0.05
    """Share of `steps` over which epsilon decays."""

    eval_interval: int = 5_000
    """Environment steps between two evaluations; 0: only at the end."""
    eval_episodes: int = 10
    """Episodes of a periodic evaluation; a policy that seems the best plays more."""
    final_eval_episodes: int = 100
    """Episodes of the evaluation of the best policy at the end, on seeds of its own."""
    stop_at_return: float | None = None
    """Stop once an evaluation, and a second one on fresh seeds, reach this mean return."""
    checkpoint_interval: int = 50_000
    """Environment steps between two checkpoints; 0: only at the end."""
    keep_checkpoints: int = 2
    """Checkpoints kept, newest first."""

    deterministic: bool = False
    """One thread in one seeded order: slower, the same bits each time."""
    vectorization: str = "gymnasium"
    """Where environments come from: `gymnasium` or `envpool`."""
    tensorboard: bool = True
    """Write TensorBoard events into the run folder."""
    quiet: bool = False
    """No progress on stderr."""

    def __post_init__(self) -> None:
        # What people type in Python: a path as text, widths as a list.
        for name in ("out", "resume"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        if isinstance(self.hidden, Iterable):
            object.__setattr__(self, "hidden", tuple(self.hidden))
        _check_types(self)
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        plain = asdict(self)
        plain["hidden"] = list(self.hidden)
        for name in ("out", "resume"):
            plain[name] = None if plain[name] is None else str(plain[name])
        return plain

    def to_json(self) -> str:
        """The settings as JSON, one a line."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainConfig:
        """Inverse of `to_dict`.

        Raises:
            ConfigError: A name is not a setting, or a value is out of range.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ConfigError("config", "settings of this version", f"`{unknown[0]}`")
        return cls(**data)


#: Further spellings of settings on the command line, those of other frameworks.
ALIASES = {"env_id": "env", "total_timesteps": "steps", "lr": "learning_rate"}

#: Settings that a resumed run may change; every other one has to agree with the checkpoint.
RESUMABLE = frozenset(
    {
        "steps",
        "out",
        "resume",
        "backend",
        "eval_interval",
        "eval_episodes",
        "final_eval_episodes",
        "stop_at_return",
        "checkpoint_interval",
        "keep_checkpoints",
        "tensorboard",
        "quiet",
    }
)


def _check_types(c: TrainConfig) -> None:
    if not isinstance(c.env, str):
        raise ConfigError(
            "env",
            "an id as text",
            repr(c.env),
            "call gymnasium.register(...) and pass its id, or `module:Name-v0`",
        )
    for name in ("algo", "backend", "vectorization"):
        if not isinstance(getattr(c, name), str):
            raise ConfigError(name, "a name as text", repr(getattr(c, name)))
    for name in ("out", "resume"):
        if not isinstance(getattr(c, name), Path | None):
            raise ConfigError(name, "a path or None", repr(getattr(c, name)))
    for field in fields(c):
        if isinstance(field.default, bool) and not isinstance(getattr(c, field.name), bool):
            raise ConfigError(field.name, "True or False", repr(getattr(c, field.name)))
    widths = c.hidden if isinstance(c.hidden, tuple) else (None,)
    if not all(isinstance(w, int) and not isinstance(w, bool) for w in widths):
        raise ConfigError("hidden", "a tuple of integers", repr(c.hidden), "such as (256, 256)")


def _check(c: TrainConfig) -> None:
    for name in ("steps", "actors", "num_envs", "learners", "batch_size", "buffer_size", "n_step"):
        _at_least(c, name, 1)
    for name in ("target_update_interval", "eval_episodes", "final_eval_episodes"):
        _at_least(c, name, 1)
    for name in ("seed", "learning_starts", "eval_interval", "checkpoint_interval"):
        _at_least(c, name, 0)
    _at_least(c, "keep_checkpoints", 1)
    if c.seed >= 2**64:
        raise ConfigError("seed", "an integer below 2^64", str(c.seed))
    _positive(c, "update_interval")
    _positive(c, "learning_rate")
    if c.max_grad_norm is not None:
        _positive(c, "max_grad_norm")
    for name in ("gamma", "alpha", "beta_start", "beta_end", "epsilon_start", "epsilon_end"):
        _inside(c, name, 0.0, 1.0)
    _inside(c, "epsilon_fraction", 0.0, 1.0)
    _inside(c, "target_tau", 0.0, 1.0)
    if c.target_tau == 0.0:
        raise ConfigError("target_tau", "a number in (0, 1]", "0", "1 copies the network")
    if c.fanout not in FANOUTS:
        raise ConfigError("fanout", f"one of {FANOUTS}", str(c.fanout), "16 suits most sizes")
    if not c.hidden or min(c.hidden) < 1:
        raise ConfigError("hidden", "widths of at least 1", str(c.hidden), "such as 256 256")
    if c.vectorization not in VECTORIZATIONS:
        raise ConfigError("vectorization", f"one of {VECTORIZATIONS}", f"`{c.vectorization}`")
    if c.stop_at_return is not None and not math.isfinite(c.stop_at_return):
        raise ConfigError("stop_at_return", "a finite return or None", str(c.stop_at_return))
    _check_pairs(c)


def _check_pairs(c: TrainConfig) -> None:
    if c.learners > c.batch_size:
        raise ConfigError(
            "learners",
            f"at most batch_size = {c.batch_size}",
            str(c.learners),
            "each learner needs a row; use fewer learners or a larger batch",
        )
    if c.batch_size > c.buffer_size:
        raise ConfigError("batch_size", f"at most buffer_size = {c.buffer_size}", str(c.batch_size))
    if c.learning_starts > c.buffer_size and c.buffer_size < c.steps:
        raise ConfigError(
            "learning_starts",
            f"at most buffer_size = {c.buffer_size}",
            str(c.learning_starts),
            "rows that were overwritten are never learnt from",
        )
    waiting = 2 * c.n_step * c.actors * c.num_envs
    if c.share_next_obs and c.buffer_size <= waiting:
        raise ConfigError(
            "buffer_size",
            f"more than 2 * n_step * actors * num_envs = {waiting}, since share_next_obs is on",
            str(c.buffer_size),
            "rows would be overwritten before their next observation is known",
        )
    if c.deterministic and c.vectorization == "envpool":
        raise ConfigError(
            "deterministic",
            "vectorization `gymnasium`",
            "`envpool`",
            "EnvPool cannot restore an episode, so a resumed run would differ",
        )


def _at_least(c: TrainConfig, name: str, low: int) -> None:
    value = getattr(c, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(name, f"an integer of at least {low}", repr(value))


def _number(c: TrainConfig, name: str) -> float:
    value = getattr(c, name)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ConfigError(name, "a number", repr(value))
    return float(value)


def _positive(c: TrainConfig, name: str) -> None:
    value = _number(c, name)
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(name, "a finite number above 0", repr(value))


def _inside(c: TrainConfig, name: str, low: float, high: float) -> None:
    value = _number(c, name)
    if not low <= value <= high:
        raise ConfigError(name, f"a number in [{low:g}, {high:g}]", repr(value))
