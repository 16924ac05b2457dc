# SPDX-License-Identifier: MIT
"""The settings of a training run: one frozen dataclass, checked in one place."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import tyro

from copal.bounds import (
    MOST_ENVIRONMENTS,
    MOST_EPISODES,
    MOST_FRAMES,
    MOST_REWARDS,
    MOST_ROWS,
    MOST_STORED,
    THREADS,
    at_most,
    check_count,
    check_hidden,
)
from copal.errors import ConfigError

VECTORIZATIONS = ("gymnasium", "envpool")
LEARNER_MODES = ("sync", "async")
FANOUTS = (2, 4, 8, 16, 32, 64)
DEVICES = {"fpga": ("sim", "model", "pynq"), "gpu": ("cuda", "emulate")}
REPLAY_DEVICES = ("cpu", "gpu")
FPGA_LANES = (16, 64, 256, 1024)
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_FLOAT32 = f", up to {LARGEST_FLOAT32:.1e}"


@dataclass(frozen=True)
class TrainConfig:
    """All settings of one run. The defaults train DQN on LunarLander-v3.

    A setting that is None takes the algorithm's own value; the run's config.json holds the values
    that were taken.

    Raises:
        ConfigError: A value is out of range, or two of them do not go together.
    """

    #: What chooses a backend on the command line.
    backend_flag: ClassVar[str] = "--backend"

    algo: str = "dqn"
    """Algorithm, a name of `copal.algorithms` or `package.module:object`."""
    env: Annotated[str, tyro.conf.arg(aliases=("--env-id",))] = "LunarLander-v3"
    """Environment id, as Gymnasium (or EnvPool) registers it."""
    backend: str = "cpu"
    """What runs the learner; `copal devices` lists those of this machine."""
    device: str | None = None
    """Of backend fpga: `sim` (the engine's RTL), `model` (the same bits, faster) or `pynq` (a
    board); None: `sim`. Of backend gpu: `cuda`, or `emulate` (on the CPU, slow); None: `cuda`."""
    replay_device: str | None = None
    """Of backend gpu: where batches are drawn and priorities kept, `cpu`, or `gpu` (rows are copied
    there as they come); None: `cpu`."""
    lanes: int | None = None
    """Of backend fpga: multipliers of the engine, 16, 64, 256 or 1024; None: 64, or the board's."""
    clock_mhz: float | None = None
    """Of backend fpga: clock that reports of cycles are turned into times with; None: 100, or the
    board's."""
    steps: Annotated[int, tyro.conf.arg(aliases=("--total-timesteps",))] = field(
        default=300_000, metadata=at_most()
    )
    """Environment steps in all, over every actor."""
    seed: int = field(default=1, metadata=at_most(2**64 - 1, least=0))
    """Seed of networks, environments, exploration and replay."""
    out: Path | None = None
    """Run folder; None: `runs/<env>__<algo>__<seed>__<time>`."""
    resume: Path | None = None
    """Run folder whose newest checkpoint is continued, with its own settings."""

    actors: int = field(default=1, metadata=THREADS)
    """Actor threads; `copal train --actors auto` measures first how many are best."""
    num_envs: int = field(default=1, metadata=at_most(MOST_ENVIRONMENTS))
    """Environments of each actor, stepped together."""
    learners: int = field(default=1, metadata=THREADS)
    """Parallel learners, which share each batch; `copal train --learners auto` likewise."""
    learner_mode: str = "sync"
    """`sync`: learners share each batch; `async`: each applies the gradient of its own one."""
    update_interval: float = 1.0
    """Environment steps per learner update; 0.5 means two updates a step."""
    deterministic: bool = False
    """One thread in one seeded order: slower, the same bits each time."""
    vectorization: str = "gymnasium"
    """Where environments come from: `gymnasium` or `envpool`."""
    frame_stack: int = field(default=1, metadata=at_most(MOST_FRAMES))
    """Newest observations that make one, along a new first axis; 1: no such axis."""

    hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers."""
    learning_rate: Annotated[float | None, tyro.conf.arg(aliases=("--lr",))] = None
    """Step size of Adam."""
    actor_learning_rate: float | None = None
    """Step size of the actor's Adam; None: `learning_rate`."""
    batch_size: int | None = field(default=None, metadata=at_most(MOST_ROWS))
    """Rows of a batch."""
    gamma: float = 0.99
    """Discount of a reward one step later."""
    huber: bool | None = None
    """Huber loss instead of the squared error."""
    max_grad_norm: float | None = None
    """Clip gradients to this Euclidean norm; 0: no clipping."""
    target_tau: float | None = None
    """Averaging rate of the target network; 1 copies."""
    target_update_interval: int | None = field(default=None, metadata=at_most())
    """Updates between two averagings (or copies) of the target network."""
    reward_scale: float = 1.0
    """Factor of the rewards in the loss."""
    normalize_observations: bool = False
    """Shift and scale observations by what a short random rollout measures before the run."""

    policy_delay: int | None = field(default=None, metadata=at_most())
    """TD3: updates of the critics for one of the actor."""
    target_noise: float | None = None
    """TD3: standard deviation of the noise on the target's action, whose range is [-1, 1]."""
    target_noise_clip: float | None = None
    """TD3: largest such noise."""
    initial_temperature: float | None = None
    """SAC: first weight of the entropy, its only one without `autotune`."""
    target_entropy: float | None = None
    """SAC: entropy that the temperature is tuned for, in nats; None: minus the action's width."""
    autotune: bool | None = None
    """SAC: tune the temperature."""

    algo_settings: tuple[str, ...] = ()
    """The algorithm's own settings, `name=value` each, for one of your own for instance."""

    buffer_size: int | None = field(default=None, metadata=at_most(MOST_STORED))
    """Rows that the replay buffer holds."""
    learning_starts: int | None = field(default=None, metadata=at_most(least=0))
    """Environment steps before the first update; continuous actions are random until then."""
    prioritized: bool | None = None
    """Draw rows by priority instead of uniformly."""
    alpha: float = 0.6
    """Exponent of the priorities; 0 draws uniformly."""
    beta_start: float = 0.4
    """Exponent of the importance weights at the first update."""
    beta_end: float = 1.0
    """Exponent of the importance weights at the last update."""
    fanout: int = 16
    """Children of a node of the sum tree, a power of two from 2 to 64."""
    n_step: int = field(default=1, metadata=at_most(MOST_REWARDS))
    """Rewards summed before the bootstrap."""
    share_next_obs: bool = False
    """Keep each observation once: half the memory, slightly slower sampling."""

    epsilon_start: float = 1.0
    """Discrete actions: share of random ones at the first step."""
    epsilon_end: float = 0.05
    """Discrete actions: share of random ones once the decay is over."""
    epsilon_fraction: float = 0.05
    """Discrete actions: share of `steps` over which epsilon decays."""
    exploration_noise: float | None = None
    """DDPG, TD3: standard deviation of the noise on an action, whose range is [-1, 1]."""

    eval_interval: int = field(default=5_000, metadata=at_most(least=0))
    """Environment steps between two evaluations; 0: only at the end."""
    eval_episodes: int = field(default=10, metadata=at_most(MOST_EPISODES))
    """Episodes of a periodic evaluation; a policy that seems the best plays more."""
    final_eval_episodes: int = field(default=100, metadata=at_most(MOST_EPISODES))
    """Episodes of the evaluation of the best policy at the end, on seeds of its own."""
    stop_at_return: float | None = None
    """Stop once an evaluation, and a second one on fresh seeds, reach this mean return."""
    checkpoint_interval: int = field(default=50_000, metadata=at_most(least=0))
    """Environment steps between two checkpoints; 0: only at the end."""
    keep_checkpoints: int = field(default=2, metadata=at_most())
    """Checkpoints kept, newest first."""
    tensorboard: bool = True
    """Write TensorBoard events into the run folder."""
    quiet: bool = False
    """No progress on stderr."""

    def __post_init__(self) -> None:
        # What people type in Python: a path as text, widths as a list.
        for name in ("out", "resume"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        own: Any = self.algo_settings
        if isinstance(own, Iterable) and not isinstance(own, str):
            object.__setattr__(self, "algo_settings", tuple(own))
        if isinstance(self.hidden, Iterable):
            object.__setattr__(self, "hidden", tuple(self.hidden))
        _make_plain(self)
        _check_types(self)
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        plain = asdict(self)
        plain["algo_settings"] = list(self.algo_settings)
        plain["hidden"] = None if self.hidden is None else list(self.hidden)
        for name in ("out", "resume"):
            plain[name] = None if plain[name] is None else str(plain[name])
        return plain

    def to_json(self) -> str:
        """The settings as JSON, one a line."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainConfig:
        """Inverse of `to_dict`.

        Raises:
            ConfigError: A name is not a setting, or a value is out of range.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ConfigError("config", "settings of this version", f"`{unknown[0]}`")
        return cls(**data)


def resolve(config: TrainConfig, defaults: Mapping[str, Any]) -> TrainConfig:
    """The settings with the algorithm's own values in place of None.

    Args:
        config: What was asked for.
        defaults: Setting to value, `Algorithm.defaults`; what it lacks is taken from `FALLBACKS`,
            or remains None.

    Raises:
        ConfigError: `defaults` holds a name that is not a setting of algorithms, or values that do
            not go together with the others.
    """
    unknown = sorted(set(defaults) - OPTIONAL | _RUN & set(defaults))
    if unknown:
        raise ConfigError(
            "defaults",
            "settings that are None in TrainConfig until the algorithm is known: "
            + ", ".join(sorted(OPTIONAL - _RUN)),
            f"`{unknown[0]}`",
            "the others have the same defaults for every algorithm",
        )
    own = {**FALLBACKS, **defaults}
    return replace(config, **{n: v for n, v in own.items() if getattr(config, n) is None})


#: Settings that a run cannot do without, for an algorithm that says nothing about them.
FALLBACKS: Mapping[str, Any] = {
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "prioritized": True,
}

#: Further spellings of settings on the command line, those of other frameworks.
ALIASES = {"env_id": "env", "total_timesteps": "steps", "lr": "learning_rate"}

#: Settings that a resumed run may change; every other one has to agree with the checkpoint.
RESUMABLE = frozenset(
    {
        "steps",
        "out",
        "resume",
        "backend",
        "device",
        "replay_device",
        "lanes",
        "clock_mhz",
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


#: Settings that count something, with their bounds.
COUNTS = {f.name: f.metadata for f in fields(TrainConfig) if "at_most" in f.metadata}

#: Settings that may be None.
OPTIONAL = frozenset(f.name for f in fields(TrainConfig) if f.default is None)

#: Settings that only some backends have, and which ones have them.
BACKEND_SETTINGS = {
    "device": ("fpga", "gpu"),
    "replay_device": ("gpu",),
    "lanes": ("fpga",),
    "clock_mhz": ("fpga",),
}

_RUN = frozenset({"out", "resume", "stop_at_return", *BACKEND_SETTINGS})

#: Switches that are None until the algorithm is known.
OPTIONAL_SWITCHES = ("huber", "autotune", "prioritized")


def switches() -> tuple[str, ...]:
    """Names of the settings that are True or False."""
    plain = (f.name for f in fields(TrainConfig) if isinstance(f.default, bool))
    return (*plain, *OPTIONAL_SWITCHES)


def _make_plain(c: TrainConfig) -> None:
    """NumPy's numbers as Python's own, which JSON can hold."""
    for name, value in vars(c).items():
        if isinstance(value, np.generic):
            object.__setattr__(c, name, value.item())
    if isinstance(c.hidden, tuple):
        widths = (w.item() if isinstance(w, np.generic) else w for w in c.hidden)
        object.__setattr__(c, "hidden", tuple(widths))


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
    for name in switches():
        value = getattr(c, name)
        if not isinstance(value, bool) and not (value is None and name in OPTIONAL_SWITCHES):
            raise ConfigError(name, "True or False", repr(value))
    _check_own(c.algo_settings)
    if c.hidden is None:
        return
    widths = c.hidden if isinstance(c.hidden, tuple) else (None,)
    if not all(isinstance(w, int) and not isinstance(w, bool) for w in widths):
        raise ConfigError("hidden", "a tuple of integers", repr(c.hidden), "such as (256, 256)")


def _check_own(given: Any) -> None:
    """Whether each is `name=value`; which names there are depends on the algorithm."""
    texts = given if isinstance(given, tuple) else (None,)
    if not all(isinstance(t, str) and "=" in t[1:] for t in texts):
        raise ConfigError("algo_settings", "`name=value` each", repr(given), "such as omega=5")
    found = [t.partition("=")[0] for t in texts]
    if len(set(found)) < len(found):
        raise ConfigError("algo_settings", "each name once", repr(given))


def _check(c: TrainConfig) -> None:
    for name, bounds in COUNTS.items():
        if getattr(c, name) is not None or name not in OPTIONAL:
            check_count(name, getattr(c, name), bounds)
    for name in ("update_interval", "learning_rate", "actor_learning_rate", "reward_scale"):
        _positive(c, name)
    _positive(c, "initial_temperature")
    for name in ("max_grad_norm", "target_noise", "target_noise_clip", "exploration_noise"):
        _not_negative(c, name)
    for name in ("gamma", "alpha", "beta_start", "beta_end", "epsilon_start", "epsilon_end"):
        _inside(c, name, 0.0, 1.0)
    _inside(c, "epsilon_fraction", 0.0, 1.0)
    _inside(c, "target_tau", 0.0, 1.0)
    if c.target_tau == 0.0:
        raise ConfigError("target_tau", "a number in (0, 1]", "0", "1 copies the network")
    if c.fanout not in FANOUTS or not isinstance(c.fanout, int):
        raise ConfigError("fanout", f"one of {FANOUTS}", str(c.fanout), "16 suits most sizes")
    if c.hidden is not None:
        check_hidden(c.hidden)
    for name, known in (("vectorization", VECTORIZATIONS), ("learner_mode", LEARNER_MODES)):
        if getattr(c, name) not in known:
            raise ConfigError(name, f"one of {', '.join(known)}", f"`{getattr(c, name)}`")
    for name in ("stop_at_return", "target_entropy"):
        value = _number(c, name)
        if value is not None and not math.isfinite(value):
            raise ConfigError(name, "a finite number or None", str(value))
    _check_sizes(c)
    _check_pairs(c)


def _check_sizes(c: TrainConfig) -> None:
    """Settings that bound each other; one that is None is checked once it is known."""
    if c.actors * c.num_envs > MOST_ENVIRONMENTS:
        raise ConfigError(
            "num_envs",
            f"at most {MOST_ENVIRONMENTS:,} environments of all actors together",
            f"{c.actors:,} actors with {c.num_envs:,} each",
        )
    shared = c.learner_mode == "sync"
    if shared and c.batch_size is not None and c.learners > c.batch_size:
        raise ConfigError(
            "learners",
            f"at most batch_size = {c.batch_size}",
            str(c.learners),
            "each learner needs a row; use fewer learners or a larger batch",
        )
    if c.buffer_size is None:
        return
    if c.batch_size is not None and c.batch_size > c.buffer_size:
        raise ConfigError("batch_size", f"at most buffer_size = {c.buffer_size}", str(c.batch_size))
    if c.learning_starts is not None and c.steps > c.buffer_size < c.learning_starts:
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


def _check_pairs(c: TrainConfig) -> None:
    if c.resume is None:  # else the run knows its backend
        _check_backend_settings(c)
    envpool = c.vectorization == "envpool"
    if c.deterministic and envpool:
        raise ConfigError(
            "deterministic",
            "vectorization `gymnasium`",
            "`envpool`",
            "EnvPool cannot restore an episode, so a resumed run would differ",
        )
    if c.frame_stack > 1 and envpool:
        raise ConfigError(
            "frame_stack",
            "1 with vectorization `envpool`",
            str(c.frame_stack),
            "EnvPool stacks the frames of its games by itself",
        )
    if c.learner_mode == "async" and (c.deterministic or c.backend != "cpu"):
        raise ConfigError(
            "learner_mode",
            "`sync` where the run is deterministic or the backend is not `cpu`",
            "`async`",
            "gradients are applied in the order in which threads happen to finish",
        )


def _check_backend_settings(c: TrainConfig) -> None:
    for name, having in BACKEND_SETTINGS.items():
        if getattr(c, name) is not None and c.backend not in having:
            flags = " or ".join(f"`{c.backend_flag} {b}`" for b in having)
            raise ConfigError(
                name,
                f"nothing with backend `{c.backend}`, which has no such setting",
                repr(getattr(c, name)),
                f"add {flags}, or leave {name} out",
            )
    if c.device is not None and c.device not in DEVICES[c.backend]:
        raise ConfigError("device", f"one of {', '.join(DEVICES[c.backend])}", repr(c.device))
    if c.replay_device not in (None, *REPLAY_DEVICES):
        expected = f"one of {', '.join(REPLAY_DEVICES)}"
        raise ConfigError("replay_device", expected, repr(c.replay_device))
    if c.replay_device == "gpu" and c.share_next_obs:
        raise ConfigError(
            "share_next_obs",
            "False with replay_device `gpu`, whose rows are complete each",
            "True",
            "leave one of them out",
        )
    if c.lanes is not None and (c.lanes not in FPGA_LANES or not isinstance(c.lanes, int)):
        raise ConfigError("lanes", f"one of {', '.join(map(str, FPGA_LANES))}", repr(c.lanes))
    _positive(c, "clock_mhz")


def _number(c: TrainConfig, name: str) -> float | None:
    value = getattr(c, name)
    if value is None and name in OPTIONAL:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ConfigError(name, "a number", repr(value))
    try:
        number = float(value)
    except OverflowError:  # a huge integer
        return math.inf
    # What float32, the type of the learners, turns into infinity is refused as such.
    return math.copysign(math.inf, number) if abs(number) > LARGEST_FLOAT32 else number


def _positive(c: TrainConfig, name: str) -> None:
    value = _number(c, name)
    if value is not None and not (math.isfinite(value) and value > 0):
        raise ConfigError(name, f"a finite number above 0{_FLOAT32}", repr(value))


def _not_negative(c: TrainConfig, name: str) -> None:
    value = _number(c, name)
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise ConfigError(name, f"a finite number of at least 0{_FLOAT32}", repr(value))


def _inside(c: TrainConfig, name: str, low: float, high: float) -> None:
    value = _number(c, name)
    if value is not None and not low <= value <= high:
        raise ConfigError(name, f"a number in [{low:g}, {high:g}]", repr(value))
