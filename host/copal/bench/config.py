# SPDX-License-Identifier: MIT
"""The settings of each `copal bench` verb; the command line is derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal.bench.peers import PEERS
from copal.bench.peers.drivers.curve import SETTINGS
from copal.bounds import MOST_ROUNDS, MOST_WIDTH, THREADS, at_most, check_count, check_hidden
from copal.config import COUNTS, FPGA_LANES, LEARNER_MODES
from copal.errors import ConfigError, UnknownNameError
from copal.runtime.machine import allowed_cpus

REPLAY_PEERS = tuple(peer.name for peer in PEERS if peer.replay)
TRAIN_ALGORITHMS = ("dqn", "sac")
FPGA_ALGORITHMS = ("dqn", "ddpg", "td3", "sac")
_BOUNDS = {
    **COUNTS,
    "threads": THREADS,
    "peer_threads": THREADS,
    "batch_sizes": COUNTS["batch_size"],
    "insert_sizes": COUNTS["batch_size"],
    "rows": COUNTS["buffer_size"],
    "rounds": at_most(MOST_ROUNDS),
    "obs": at_most(MOST_WIDTH),
    "actions": at_most(MOST_WIDTH),
}
"""Of the settings that count something."""


@dataclass(frozen=True)
class ReplayBench:
    """Insert, sample, update, and the whole cycle of them, beside other replay buffers.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: There is no such peer.
    """

    rows: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    """Capacities, each filled before it is measured; with `plot`, 10,000,000 comes on top."""
    batch_sizes: tuple[int, ...] = (32, 256)
    """Rows that are drawn, and whose priorities are set, at a time."""
    insert_sizes: tuple[int, ...] = (1, 64)
    """Rows that are inserted at a time."""
    peers: tuple[str, ...] = REPLAY_PEERS
    """Which others to measure; one that is not installed is a row that says so."""
    rounds: int = 5
    """Every implementation is measured once a round; figures are medians over rounds."""
    block_ms: float = 40.0
    """Length of one measurement in milliseconds."""
    scaling: bool = True
    """Also time one and two native threads on one buffer of the most `rows`; compiles a program."""
    cpu: int | None = None
    """Processor that everything is pinned to; None: the last one allowed."""
    peer_root: Path = Path(".venv-peers")
    """Folder with one environment a peer, as `make peers` makes it."""
    json: bool = False
    """Print JSON on stdout instead of tables."""
    plot: Path | None = None
    """Image file that gets the growth of the cycle's cost with the number of rows."""

    def __post_init__(self) -> None:
        _numbers("rows", self.rows)
        _numbers("batch_sizes", self.batch_sizes)
        _numbers("insert_sizes", self.insert_sizes)
        _count("rounds", self.rounds)
        _positive("block_ms", self.block_ms)
        _known("peers", self.peers, REPLAY_PEERS)
        if max(self.batch_sizes) > min(self.rows):
            raise ConfigError(
                "batch_sizes", f"at most {min(self.rows)} rows", str(max(self.batch_sizes))
            )


@dataclass(frozen=True)
class LearnerBench:
    """One update of an algorithm: captured and native, torch, NumPy, and the bare GEMMs.

    Raises:
        ConfigError: A value is out of range.
    """

    algo: str = "dqn"
    """Algorithm, a name of `copal.algorithms`."""
    obs: int | None = None
    """Numbers of an observation; None: 8, or 17 with continuous actions (HalfCheetah's)."""
    actions: int | None = None
    """Discrete actions, or components of a continuous one; None: 4, or 6."""
    batch_size: int = 64
    """Rows of the batch."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    threads: int = 1
    """Parallel learners, and threads of torch and NumPy."""
    rounds: int = 7
    """Every implementation is measured once a round; figures are medians over rounds."""
    json: bool = False
    """Print JSON on stdout instead of a table."""

    def __post_init__(self) -> None:
        _numbers("hidden", self.hidden)
        for name in ("obs", "actions"):
            if getattr(self, name) is not None:
                _count(name, getattr(self, name))
        _count("batch_size", self.batch_size)
        _count("threads", self.threads)
        _count("rounds", self.rounds)


@dataclass(frozen=True)
class TrainBench:
    """Environment steps a second of training, one update a step, beside other frameworks.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: There is no such peer, or it is not measured with this algorithm.
    """

    algo: str = "dqn"
    """`dqn`, or `sac` for an environment with continuous actions such as Pendulum-v1."""
    env: str = "LunarLander-v3"
    """Gymnasium id."""
    batch_size: int = 64
    """Rows of a batch."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    update_interval: int = 1
    """Environment steps an update."""
    actors: int = 1
    """Actor threads of copal."""
    num_envs: int = 1
    """Environments of each of copal's actors."""
    learners: int = 1
    """Parallel learners of copal."""
    peers: tuple[str, ...] | None = None
    """Which others to measure, None: all with this algorithm; an absent one is a row saying so."""
    peer_threads: int = 1
    """Threads of torch in the peers; a small network gains little from a second one."""
    seconds: float = 8.0
    """Length of one measurement, after the warm-up."""
    rounds: int = 3
    """Every implementation is measured once a round; figures are medians over rounds."""
    solve_seeds: tuple[int, ...] = ()
    """Also train copal and the torch loop to `solve_return` with each of these seeds."""
    solve_return: float = 200.0
    """Mean return of the evaluations that end such a run."""
    solve_steps: int = 400_000
    """Environment steps after which such a run ends in any case."""
    peer_root: Path = Path(".venv-peers")
    """Folder with one environment a peer, as `make peers` makes it."""
    json: bool = False
    """Print JSON on stdout instead of tables."""

    def __post_init__(self) -> None:
        _numbers("hidden", self.hidden)
        for name in ("batch_size", "update_interval", "actors", "num_envs", "learners"):
            _count(name, getattr(self, name))
        for name in ("peer_threads", "rounds", "solve_steps"):
            _count(name, getattr(self, name))
        _positive("seconds", self.seconds)
        _known("algo", (self.algo,), TRAIN_ALGORITHMS)
        _known("peers", self.peers or (), train_peers(self.algo))
        if self.solve_seeds and self.algo != "dqn":
            raise ConfigError("solve_seeds", "algo `dqn`", f"`{self.algo}`")


@dataclass(frozen=True)
class CurveBench:
    """Learning curves over environment steps, beside others at the same settings.

    Replay is uniform, one update follows each environment step, and both sides have one
    environment and one learner.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: No such peer has curves of this algorithm.
    """

    algo: str = "sac"
    """Algorithm, a name of `copal.algorithms`."""
    env: str = "HalfCheetah-v5"
    """Gymnasium id."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """A run of each implementation for each of them."""
    steps: int = 200_000
    """Environment steps of a run."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    learning_rate: float = 3e-4
    """Step size of Adam, for every network."""
    batch_size: int = 256
    """Rows of a batch."""
    buffer_size: int = 1_000_000
    """Rows that the replay buffer holds."""
    learning_starts: int = 10_000
    """Environment steps with random actions before the first update."""
    gamma: float = 0.99
    """Discount of a reward one step later."""
    target_tau: float = 0.005
    """Averaging rate of the target networks."""
    eval_interval: int = 10_000
    """Environment steps between two evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    peers: tuple[str, ...] | None = None
    """Which others to run, None: all with this algorithm; an absent one is a line saying so."""
    load: Path | None = None
    """Folder of finished curves; one that is found there with these settings is not run again."""
    save: Path = Path("runs/curves")
    """Folder that gets a file `NAME-seedN.jsonl` for each curve that is run."""
    peer_root: Path = Path(".venv-peers")
    """Folder with one environment a peer, as `make peers` makes it."""
    plot: Path | None = None
    """Image file that gets the curves: means over seeds, and bands from lowest to highest."""
    json: bool = False
    """Print JSON on stdout instead of a table."""

    def __post_init__(self) -> None:
        _numbers("hidden", self.hidden)
        if not self.seeds or min(self.seeds) < 0:
            raise ConfigError("seeds", "one or more integers of at least 0", str(self.seeds))
        for name in ("steps", "batch_size", "buffer_size", "eval_interval", "eval_episodes"):
            _count(name, getattr(self, name))
        _known("peers", self.peers or (), curve_peers(self.algo))

    def settings(self) -> dict[str, Any]:
        """What every implementation is run with, and what makes a finished curve fit."""
        named = {name: getattr(self, name) for name in SETTINGS}
        return {**named, "hidden": list(self.hidden)}


@dataclass(frozen=True)
class ScalingBench:
    """Steps and updates a second over actors and learners, and of the learner alone.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: There is no such mode.
    """

    algo: str = "dqn"
    """Algorithm, a name of `copal.algorithms`."""
    env: str = "LunarLander-v3"
    """Gymnasium id."""
    actors: tuple[int, ...] | None = None
    """Numbers of actor threads; None: 1 to the number of cores."""
    learners: tuple[int, ...] | None = None
    """Numbers of parallel learners, the first one what the others are compared with; None: 1 to
    the number of cores."""
    modes: tuple[str, ...] = LEARNER_MODES
    """`sync`: learners share each batch; `async`: each applies the gradient of its own one."""
    num_envs: int = 1
    """Environments of each actor."""
    batch_size: int = 64
    """Rows of a batch."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    update_interval: int = 1
    """Environment steps an update."""
    seconds: float = 4.0
    """Length of one training that is measured; the learner alone gets a quarter of it."""
    rounds: int = 3
    """Every combination is measured once a round; figures are medians over rounds."""
    json: bool = False
    """Print JSON on stdout instead of a table."""

    def __post_init__(self) -> None:
        _numbers("actors", self.actors_or_cores())
        _numbers("learners", self.learners_or_cores())
        _numbers("hidden", self.hidden)
        for name in ("num_envs", "batch_size", "update_interval", "rounds"):
            _count(name, getattr(self, name))
        _positive("seconds", self.seconds)
        if not self.modes:
            raise ConfigError("modes", f"some of {LEARNER_MODES}", "none")
        _known("modes", self.modes, LEARNER_MODES)
        if max(self.learners_or_cores()) > self.batch_size:
            raise ConfigError(
                "learners",
                f"at most batch_size = {self.batch_size}",
                str(max(self.learners_or_cores())),
                "each learner needs a row",
            )

    def actors_or_cores(self) -> tuple[int, ...]:
        """Numbers of actors that are measured."""
        return _to_cores() if self.actors is None else self.actors

    def learners_or_cores(self) -> tuple[int, ...]:
        """Numbers of learners that are measured."""
        return _to_cores() if self.learners is None else self.learners


def _to_cores() -> tuple[int, ...]:
    return tuple(range(1, len(allowed_cpus()) + 1))


def curve_peers(algo: str) -> tuple[str, ...]:
    """Names of the peers that have learning curves of an algorithm."""
    return tuple(peer.name for peer in PEERS if algo in peer.curve)


def train_peers(algo: str) -> tuple[str, ...]:
    """Names of the peers that are measured with an algorithm."""
    return tuple(peer.name for peer in PEERS if algo in peer.train)


ADAPTER_PEERS = ("rllib", "tianshou", "torchrl", "sb3")


@dataclass(frozen=True)
class FpgaBench:
    """Cycles, lane use, predicted rates, simulation speed and gradients of the FPGA engine.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: There is no such algorithm.
    """

    algos: tuple[str, ...] = FPGA_ALGORITHMS
    """Algorithms."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    batch_size: int = 64
    """Rows of a batch."""
    lanes: tuple[int, ...] = (64, 256, 1024)
    """Multipliers of the engines."""
    rtl_lanes: tuple[int, ...] = (64,)
    """Those of them whose RTL is built and run as well; others have the cycle model's figure."""
    clock_mhz: float = 100.0
    """Clock that cycles are turned into rates with, stated and not reached by any measurement."""
    boards: bool = True
    """Also DQN on the engines of the boards, beside the `cpu` backend on this machine."""
    speed: bool = True
    """Also the speed of `--device model` and `--device sim`."""
    gradient_steps: int = 20_000
    """Environment steps of training before gradients are compared with float64; 0: not at all."""
    batches: int = 50
    """Batches whose gradients are compared."""
    rounds: int = 5
    """Rates are medians over so many rounds."""
    json: bool = False
    """Print JSON on stdout instead of tables."""

    def __post_init__(self) -> None:
        _known("algos", self.algos, FPGA_ALGORITHMS)
        for name in ("hidden", "lanes"):
            _numbers(name, getattr(self, name))
        _known_lanes("lanes", self.lanes, FPGA_LANES)
        _known_lanes("rtl_lanes", self.rtl_lanes, self.lanes)
        for name in ("batch_size", "batches", "rounds"):
            _count(name, getattr(self, name))
        _positive("clock_mhz", self.clock_mhz)
        if self.gradient_steps < 0:
            raise ConfigError("gradient_steps", "0 or more", str(self.gradient_steps))


@dataclass(frozen=True)
class AdaptersBench:
    """Training steps of other frameworks' own DQN, with their buffer and with copal's in it.

    Raises:
        ConfigError: A value is out of range.
        UnknownNameError: There is no such framework.
    """

    env: str = "LunarLander-v3"
    """Gymnasium id."""
    batch_sizes: tuple[int, ...] = (64, 256)
    """Rows of a batch."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    n_step: int = 1
    """Rewards summed before the bootstrap."""
    rows: int = 1_000_000
    """Rows of the full buffer; 100,000 in RLlib, 200,000 in Stable-Baselines3 at most."""
    steps: int = 50
    """Training steps of one measurement."""
    rounds: int = 7
    """Every variant is measured once a round; figures are medians over rounds."""
    peers: tuple[str, ...] = ADAPTER_PEERS
    """Which frameworks to measure; one that is not installed is a row that says so."""
    peer_root: Path = Path(".venv-peers")
    """Folder with one environment a framework, as `make peers` makes it."""
    json: bool = False
    """Print JSON on stdout instead of a table."""

    def __post_init__(self) -> None:
        _numbers("hidden", self.hidden)
        _numbers("batch_sizes", self.batch_sizes)
        for name in ("n_step", "steps", "rounds"):
            _count(name, getattr(self, name))
        if self.rows < 10_000:
            raise ConfigError("rows", "at least 10,000", str(self.rows))
        _known("peers", self.peers, ADAPTER_PEERS)


def _numbers(field: str, values: tuple[int, ...]) -> None:
    if not values or min(values) < 1:
        raise ConfigError(field, "one or more integers of at least 1", str(values))
    if field == "hidden":
        check_hidden(values)
    for value in values:
        check_count(field, value, _BOUNDS.get(field))


def _count(field: str, value: int) -> None:
    check_count(field, value, _BOUNDS.get(field))


def _positive(field: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ConfigError(field, "a finite number above 0", str(value))


def _known(field: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError.of(field, name, known)


def _known_lanes(field: str, lanes: tuple[int, ...], known: tuple[int, ...]) -> None:
    for n in lanes:
        if n not in known:
            raise ConfigError(field, f"values of {', '.join(map(str, known))}", str(n))
