# SPDX-License-Identifier: MIT
"""The parts of a run, built from its settings, and how they go into a checkpoint and come back."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal import algorithms, envs
from copal.algorithms import Built
from copal.algorithms.base import SCALE
from copal.backends import registry
from copal.backends.base import Learner, LearnerState
from copal.config import BACKEND_SETTINGS, TrainConfig
from copal.errors import CheckpointError, ConfigError
from copal.native import native
from copal.replay import LinearSchedule, PrioritizedReplay, UniformReplay
from copal.runtime import exploration, files, loops, machine, normalization
from copal.runtime.actors import Actor, Shared
from copal.runtime.checkpoint import Checkpoint
from copal.runtime.control import Control, StepBudget
from copal.runtime.drawing_loop import ROWS
from copal.runtime.policy import PolicyFacts, join, make_policy
from copal.runtime.settings import algorithm_settings, check_exploration, known

SLACK_STEPS = 8
"""Env steps of an actor that may be under way beyond what the ratio asks for."""


@dataclass
class Session:
    """Everything that a run consists of."""

    config: TrainConfig
    """Its settings."""
    built: Built
    """The algorithm."""
    facts: PolicyFacts
    """What its policies are for."""
    replay: Any
    """The transitions."""
    learner: Learner
    """Parameters and optimiser."""
    loop: loops.Loop
    """What drives the learner."""
    store: Any
    """The newest weights of the acting network."""
    shared: Shared
    """What the actors share."""
    actors: list[Actor]
    """The actors, whose threads belong to the trainer."""
    epsilon: LinearSchedule
    """Share of random discrete actions by env step."""
    beta: LinearSchedule
    """Exponent of the importance weights by update."""

    @property
    def env_steps(self) -> int:
        """Steps that are in the replay."""
        return int(self.shared.gate.counters()["inserted"])

    @property
    def env_restarts(self) -> int:
        """Environments replaced because they failed."""
        return sum(a.environments.restarts for a in self.actors)

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes the whole state into a checkpoint's folder; nothing may be running.

        Returns:
            The counters to store beside the files.
        """
        state, device = self.learner.state(), self.loop.write_back()
        files.write_arrays(folder / "weights.safetensors", state.parameters)
        moments = {f"first/{k}": v for k, v in state.first_moment.items()}
        moments |= {f"second/{k}": v for k, v in state.second_moment.items()}
        files.write_arrays(folder / "optimiser.safetensors", moments)
        self.replay.save(folder / "replay.bin")
        actors = json.dumps([a.state() for a in self.actors])
        (folder / "actors.json").write_text(actors)
        return {
            "env_steps": self.env_steps,
            "updates": state.updates,
            "optimiser_steps": state.optimiser_steps,
            **device,
            **({"learner_notes": dict(state.notes)} if state.notes else {}),
        }

    def restore_actors(self, found: Checkpoint) -> list[int]:
        """Continues the episodes in progress; returns the streams that begin a new one."""
        states = found.json("actors.json")
        if len(states) != len(self.actors):
            raise CheckpointError("actors", str(len(self.actors)), str(len(states)))
        return [s for a, state in zip(self.actors, states, strict=True) for s in a.restore(state)]

    def close(self) -> None:
        """Frees the environments, and the device that the learner holds, if it holds one."""
        for actor in self.actors:
            actor.environments.close()
        self.learner.close()


def build(config: TrainConfig, control: Control, found: Checkpoint | None) -> Session:
    """Builds every part, from the checkpoint if there is one.

    Raises:
        ConfigError: A setting does not fit the environment, the algorithm or the backend.
        BackendUnavailableError: The backend cannot be used here.
        CheckpointError: The checkpoint does not fit the settings.
    """
    algorithm = algorithms.get(config.algo)
    backend = registry.require(config.backend, **_backend_settings(config))
    with contextlib.ExitStack() as undo:
        pools = list(_environments(config, undo))
        one = pools[0]
        settings = algorithm_settings(config, algorithm)
        built = algorithms.build(
            algorithm, one.observation_space, one.action_space, settings, config.seed
        )
        check_exploration(config, built.exploration)
        if SCALE in built.parameters and found is None:
            built.parameters[SCALE] = normalization.measure(config)
        state = LearnerState.initial(built.update, built.parameters)
        if found is not None:
            state = _learner_state(found, state)
        asynchronous = config.learner_mode == "async"
        learner = registry.learner(
            backend,
            built,
            state,
            batch_size=known(config.batch_size),
            learners=1 if asynchronous else config.learners,
        )
        undo.callback(learner.close)
        replay = _replay(config, built) if found is None else _load_replay(config, found)
        _require_memory(config, replay.nbytes)
        store = _store(built, state)
        env_steps = 0 if found is None else int(found.counters["env_steps"])
        gate = native.RatioGate(config.update_interval, _starts(config), _slack(config))
        gate.set_counters(env_steps, state.updates)
        beta = _beta(config)
        loop = loops.make(
            learner,
            replay,
            gate,
            store,
            acting=[network.name for network in built.update.policy.networks],
            batch_size=known(config.batch_size),
            beta=beta,
            async_learners=config.learners if asynchronous else 0,
            device_rows=None if found is None else found.counters.get(ROWS),
        )
        budget = StepBudget(config.steps, env_steps, control.wake)
        shared = Shared(replay, gate, budget, store, control)
        epsilon = _epsilon(config)
        actors = _actors(config, pools, built, shared, epsilon)
        undo.pop_all()
    facts = PolicyFacts(
        env=config.env,
        algo=algorithm.name,
        obs_shape=tuple(one.observation_space.shape),
        actions=one.actions,
        vectorization=config.vectorization,
        frame_stack=config.frame_stack,
        obs_dtype=str(one.obs.dtype),
        settings=dataclasses.asdict(settings) if built.update.policy.opaque() else {},
        factory=config.algo if built.update.policy.opaque() else "",
    )
    return Session(
        config, built, facts, replay, learner, loop, store, shared, actors, epsilon, beta
    )


def _backend_settings(config: TrainConfig) -> dict[str, Any]:
    given = {name: getattr(config, name) for name in BACKEND_SETTINGS}
    return {name: value for name, value in given.items() if value is not None}


def _environments(config: TrainConfig, undo: contextlib.ExitStack) -> Iterator[envs.Environments]:
    for i in range(config.actors):
        pool = envs.make(
            config.env,
            config.num_envs,
            seed=config.seed,
            first_stream=i * config.num_envs,
            vectorization=config.vectorization,
            frame_stack=config.frame_stack,
        )
        undo.callback(pool.close)
        yield pool


def _learner_state(found: Checkpoint, initial: LearnerState) -> LearnerState:
    parameters = found.arrays("weights.safetensors")
    moments = found.arrays("optimiser.safetensors")
    for name, vector in initial.parameters.items():
        if name not in parameters or parameters[name].shape != vector.shape:
            got = f"shape {parameters[name].shape}" if name in parameters else f"{list(parameters)}"
            raise CheckpointError(
                f"weights of `{name}`",
                f"shape {vector.shape}, as the run's settings say",
                got,
                "the checkpoint is of another algorithm, environment or width",
            )
    trained = list(initial.first_moment)
    try:
        return LearnerState(
            parameters,
            {name: moments[f"first/{name}"] for name in trained},
            {name: moments[f"second/{name}"] for name in trained},
            {name: int(found.counters["optimiser_steps"][name]) for name in trained},
            int(found.counters["updates"]),
            found.counters.get("learner_notes", {}),
        )
    except KeyError as e:
        raise CheckpointError("optimiser", f"the state of {trained}", f"no {e}") from e


def _store(built: Built, state: LearnerState) -> Any:
    """A store that holds the policy's networks, one behind another."""
    weights = join(built.update.policy, state.parameters)
    store = native.WeightStore(len(weights))
    store.publish(weights, state.updates)
    return store


def _replay(config: TrainConfig, built: Built) -> Any:
    kind = PrioritizedReplay if config.prioritized else UniformReplay
    options: dict[str, Any] = {"alpha": config.alpha} if config.prioritized else {}
    return kind(
        capacity=known(config.buffer_size),
        columns=built.columns,
        fanout=config.fanout,
        n_step=config.n_step,
        gamma=config.gamma,
        share_next_obs=config.share_next_obs,
        seed=config.seed,
        **options,
    )


def _require_memory(config: TrainConfig, nbytes: int) -> None:
    """Refuses a replay that the run will fill and the machine cannot hold.

    Args:
        config: The run.
        nbytes: Bytes of a full replay; a row's memory is taken as it is first written.

    Raises:
        ConfigError: It is larger than the machine's memory.
    """
    here, rows = machine.memory_gib(), known(config.buffer_size)
    needed = nbytes / 2**30 * min(1.0, config.steps / rows)
    if here is not None and needed > here:
        raise ConfigError(
            "buffer_size",
            f"rows for the {here:g} GiB of memory of this machine",
            f"{rows:,}, of which the run fills {needed:,.1f} GiB",
            f"such as --buffer-size {max(1, int(rows * here / needed / 2)):,}".replace(",", ""),
        )


def _load_replay(config: TrainConfig, found: Checkpoint) -> Any:
    kind = PrioritizedReplay if config.prioritized else UniformReplay
    replay = kind.load(found.path / "replay.bin")
    wanted = {
        "buffer_size": config.buffer_size,
        "n_step": config.n_step,
        "gamma": config.gamma,
        "share_next_obs": config.share_next_obs,
        "fanout": config.fanout,
        **({"alpha": config.alpha} if config.prioritized else {}),
    }
    stored = {**replay.settings, "buffer_size": replay.settings["capacity"]}
    for name, value in wanted.items():
        if stored[name] != value:
            raise CheckpointError(
                name,
                f"`{stored[name]}`, as the replay of the checkpoint was made with",
                f"`{value}` in config.json",
                "put it back, or start a new run",
            )
    return replay


def _starts(config: TrainConfig) -> int:
    # An n-step row is written n steps after its own; one whose next observation is shared can be
    # drawn once the row n steps later is written, too.
    pending = config.n_step * (2 if config.share_next_obs else 1)
    return max(known(config.learning_starts), pending * config.actors * config.num_envs)


def _slack(config: TrainConfig) -> int:
    return SLACK_STEPS * config.actors * config.num_envs


def _epsilon(config: TrainConfig) -> LinearSchedule:
    return LinearSchedule(
        config.epsilon_start, config.epsilon_end, int(config.epsilon_fraction * config.steps)
    )


def _beta(config: TrainConfig) -> LinearSchedule:
    updates = int(max(0, config.steps - known(config.learning_starts)) / config.update_interval)
    return LinearSchedule(config.beta_start, config.beta_end, updates)


def _actors(
    config: TrainConfig,
    pools: list[envs.Environments],
    built: Built,
    shared: Shared,
    epsilon: LinearSchedule,
) -> list[Actor]:
    policy = make_policy(built.update.policy, built.source)
    actors = []
    for i, pool in enumerate(pools):
        explore = exploration.make(
            built.exploration,
            policy,
            seed=config.seed,
            actor=i,
            count=config.num_envs,
            actions=pool.actions.width if pool.actions.kind == "box" else pool.actions.count,
            epsilon=epsilon,
            starts=known(config.learning_starts),
            sigma=config.exploration_noise or 0.0,
        )
        actors.append(Actor(i, pool, explore, built.columns, shared))
    return actors
