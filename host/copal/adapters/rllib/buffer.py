# SPDX-License-Identifier: MIT
"""RLlib's prioritized episode buffer over native rows: a row a time step, drawn by priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.replay_buffers import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer as PeerBuffer

from copal.adapters._links import Links
from copal.adapters._slots import as_stored
from copal.adapters._state import pack, unpack
from copal.adapters.rllib.counts import Counts
from copal.errors import ConfigError, EmptyReplayError, SchemaError
from copal.replay import Batch, PrioritizedReplay

_BEYOND_EPISODES = ("include_infos", "include_extra_model_outputs")


class PrioritizedEpisodeReplayBuffer(PeerBuffer):
    """In the place of RLlib's buffer of that name, for one module without a recurrent state.

    Args:
        capacity: Time steps.
        batch_size_B: Rows of a sample that does not say.
        alpha: Exponent of priorities, 0 (uniform) to 1.
        beta: Exponent of importance weights of a sample that does not say, 0 to 1.
        eps: Added to |TD error|.
        seed: Seed of the draws.
        columns: Samples are batches of columns for `LearnerGroup.update(batch=...)` and not lists
            of episodes.
        metrics_num_episodes_for_smoothing: As in RLlib.
        **kwargs: Whatever else RLlib's buffers take is ignored.

    Raises:
        ConfigError: A value is out of range.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        batch_size_B: int = 16,  # noqa: N803 - RLlib's name
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-6,
        seed: int = 0,
        columns: bool = False,
        metrics_num_episodes_for_smoothing: int = 100,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        EpisodeReplayBuffer.__init__(
            self,
            capacity=capacity,
            batch_size_B=batch_size_B,
            batch_length_T=1,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
        )
        if not 0 <= alpha <= 1:
            raise ConfigError("alpha", "a number in [0, 1]", f"{alpha:g}")
        self.rng = np.random.default_rng(seed)
        self.columns = columns
        self._beta = beta
        self._settings: dict[str, Any] = {"alpha": alpha, "eps": eps, "seed": seed}
        self._replay: PrioritizedReplay | None = None
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._links = Links(capacity)
        self._counts = Counts()
        self._drawn: NDArray[np.uint64] | None = None
        self._spaces: tuple[Any, Any] = (None, None)

    @property
    def replay(self) -> PrioritizedReplay:
        """The buffer behind it.

        Raises:
            EmptyReplayError: Nothing was added yet.
        """
        if self._replay is None:
            raise EmptyReplayError("buffer", "episodes", "none added yet", "add some first")
        return self._replay

    def add(self, episodes: Any) -> None:
        """Adds every time step of episodes or of chunks of them, each in order of time.

        Args:
            episodes: One `SingleAgentEpisode` or a list of them; a chunk continues the one of the
                same id.

        Raises:
            SchemaError: Observations are not one array, or of another shape than before.
        """
        chunks = episodes if isinstance(episodes, list) else [episodes]
        before = self._counts.snapshot()
        for chunk in chunks:
            if len(chunk):
                self._add_chunk(chunk)
        if self._replay is not None:
            self._counts.evict(self._replay.next_id - self.capacity)
        self._update_add_metrics(**self._counts.added_since(before))

    def _add_chunk(self, chunk: SingleAgentEpisode) -> None:
        rows = len(chunk)
        obs = _array("obs", chunk.get_observations(slice(0, rows + 1)))
        ended = chunk.is_terminated or chunk.is_truncated
        last = np.arange(rows) == rows - 1
        columns = {
            "obs": obs[:-1],
            "action": _array("action", chunk.get_actions(slice(0, rows))),
            "reward": np.asarray(chunk.get_rewards(slice(0, rows)), np.float32),
            "next_obs": obs[1:],
            "terminated": last & chunk.is_terminated,
            "truncated": last & chunk.is_truncated,
        }
        columns = as_stored(columns, self._dtypes)
        if self._replay is None:
            self._dtypes = {name: a.dtype for name, a in columns.items()}
            shapes = {name: (a.shape[1:], a.dtype) for name, a in columns.items()}
            self._replay = PrioritizedReplay(self.capacity, shapes, **self._settings)
            self._spaces = (chunk.observation_space, chunk.action_space)
        for part in _parts(rows, self.capacity):
            ids = self._replay.add(**{name: a[part] for name, a in columns.items()})
            self._links.add(int(ids[0]), [chunk.id_] * len(ids), (last[part] & ended).tolist())
        self._counts.add(chunk.id_, rows, int(ids[-1]), ended)

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,  # noqa: N803 - RLlib's name
        batch_length_T: int | None = None,  # noqa: N803 - RLlib's name
        n_step: int | tuple[int, int] | None = None,
        beta: float | None = None,
        gamma: float = 0.99,
        **kwargs: Any,
    ) -> Any:
        """Draws rows by priority.

        Args:
            num_items: Rows.
            batch_size_B: The same, by its other name.
            batch_length_T: 0 or 1.
            n_step: Rewards to sum, or a pair (low, high) to draw low to high - 1 from for each
                row. At an episode's end, and where it goes no further yet, fewer are summed.
            beta: Exponent of the importance weights; None: the buffer's.
            gamma: Discount of the sum.
            **kwargs: Whatever else RLlib passes.

        Returns:
            Episodes of one step each, with `weights` and `n_step` among their outputs; or, with
            `columns`, a `MultiAgentBatch`.

        Raises:
            ConfigError: Sequences are asked for, or something that is not kept.
            EmptyReplayError: There is nothing to draw.
        """
        if (batch_length_T or 1) > 1 or kwargs.get("lookback"):
            hint = "use RLlib's own buffer with recurrent modules"
            raise ConfigError("batch_length_T", "single steps", str(batch_length_T), hint)
        for name in _BEYOND_EPISODES:
            if kwargs.get(name):
                raise ConfigError(name, "False", "True", "the buffer keeps transitions only")
        rows = num_items or batch_size_B or self.batch_size_B
        batch = self.replay.sample(rows, self._beta if beta is None else beta)
        self._drawn = batch.ids
        self.sampled_timesteps += rows
        steps = self._steps(n_step, rows)
        columns = self._columns(batch, steps, gamma)
        self._log_sample(batch.ids, steps)
        if self.columns:
            return MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(columns)}, rows)
        return list(self._episodes(columns))

    def _steps(self, n_step: Any, rows: int) -> NDArray[np.int64]:
        if isinstance(n_step, Sequence):
            return self.rng.integers(n_step[0], n_step[1], rows)
        return np.full(rows, n_step or 1, np.int64)

    def _columns(
        self, batch: Batch, steps: NDArray[np.int64], gamma: float
    ) -> dict[str, NDArray[Any]]:
        """The batch under the names of RLlib's learner, folded over `steps`."""
        columns = {
            "obs": batch["obs"],
            "actions": batch["action"],
            "weights": batch.weights,
        }
        if steps.max() == 1:
            return {
                **columns,
                "rewards": batch["reward"],
                "new_obs": batch["next_obs"],
                "terminateds": batch["terminated"],
                "truncateds": batch["truncated"],
                "n_step": np.ones(len(steps), np.float32),
            }
        replay = self.replay
        total, last, count = self._links.sums(
            batch.ids.astype(np.int64), steps, gamma, replay.column("reward")
        )
        slots = last % self.capacity
        return {
            **columns,
            "rewards": total,
            "new_obs": replay.column("next_obs")[slots],
            "terminateds": replay.column("terminated")[slots],
            "truncateds": replay.column("truncated")[slots],
            "n_step": count,
        }

    def _episodes(self, columns: dict[str, NDArray[Any]]) -> Iterator[SingleAgentEpisode]:
        """One episode of one step a row."""
        obs = np.stack([columns["obs"], columns["new_obs"]], axis=1)
        observation_space, action_space = self._spaces
        for row in range(len(obs)):
            one = slice(row, row + 1)
            yield SingleAgentEpisode(
                id_=str(row),
                observations=InfiniteLookbackBuffer(data=obs[row]),
                observation_space=observation_space,
                infos=[{}, {}],
                actions=InfiniteLookbackBuffer(data=columns["actions"][one]),
                action_space=action_space,
                rewards=InfiniteLookbackBuffer(data=columns["rewards"][one]),
                terminated=bool(columns["terminateds"][row]),
                truncated=bool(columns["truncateds"][row]),
                extra_model_outputs={
                    "weights": InfiniteLookbackBuffer(data=columns["weights"][one]),
                    "n_step": InfiniteLookbackBuffer(data=columns["n_step"][one]),
                },
                len_lookback_buffer=0,
                t_started=0,
            )

    def update_priorities(
        self,
        priorities: NDArray[Any],
        module_id: str | None = None,  # noqa: ARG002
    ) -> None:
        """Sets the priorities of the rows that were sampled last.

        Args:
            priorities: TD errors of any sign, [rows].
            module_id: Not used.

        Raises:
            SchemaError: They are not as many as were sampled, or nothing was.
            PriorityError: One is NaN or infinite.
        """
        drawn = 0 if self._drawn is None else len(self._drawn)
        if self._drawn is None or len(priorities) != drawn:
            hint = "call sample before each update_priorities"
            raise SchemaError("priorities", f"{drawn}, as sampled", str(len(priorities)), hint)
        self.replay.update_priorities(self._drawn, np.asarray(priorities))
        self._drawn = None

    # Counters, in RLlib's words

    def __len__(self) -> int:
        return self.get_num_timesteps()

    def get_num_timesteps(self, module_id: str | None = None) -> int:  # noqa: ARG002
        """Time steps held."""
        return 0 if self._replay is None else len(self._replay)

    def get_num_episodes(self, module_id: str | None = None) -> int:  # noqa: ARG002
        """Episodes of which a time step is held."""
        return self._counts.held

    def get_num_episodes_evicted(self, module_id: str | None = None) -> int:  # noqa: ARG002
        """Episodes that were held and are no more."""
        return self._counts.evicted_episodes

    def get_added_timesteps(self, module_id: str | None = None) -> int:  # noqa: ARG002
        """Time steps that were ever added."""
        return self._counts.steps

    def _log_sample(self, ids: NDArray[np.uint64], steps: NDArray[np.int64]) -> None:
        rows, mean = len(ids), float(steps.mean())
        figures: dict[str, Any] = {
            "num_steps_sampled": rows,
            "num_episodes_per_sample": rows,
            "num_steps_per_sample": len(np.unique(ids)),
            "sampled_n_step": mean,
            "num_resamples": 0,
        }
        self._update_sample_metrics(
            num_env_steps_sampled=rows,
            num_episodes_per_sample=rows,
            num_env_steps_per_sample=figures["num_steps_per_sample"],
            sampled_n_step=mean,
            num_resamples=0,
            **{f"agent_to_{name}": {DEFAULT_AGENT_ID: v} for name, v in figures.items()},
            **{f"module_to_{name}": {DEFAULT_MODULE_ID: v} for name, v in figures.items()},
        )

    # Checkpoints

    def get_state(self) -> dict[str, Any]:
        """The whole state, rows, priorities and random numbers included."""
        return {
            "copal": None if self._replay is None else pack(self._replay),
            "links": self._links,
            "counts": self._counts,
            "spaces": self._spaces,
            "dtypes": self._dtypes,
            "sampled_timesteps": self.sampled_timesteps,
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on where `get_state` was called.

        Raises:
            CheckpointError: The rows are damaged, or of another version.
        """
        replay = None if state["copal"] is None else unpack(state["copal"])
        self._replay, self._drawn = replay, None
        self._links, self._counts = state["links"], state["counts"]
        self._spaces, self._dtypes = tuple(state["spaces"]), state["dtypes"]
        self.sampled_timesteps = state["sampled_timesteps"]
        self.rng.bit_generator.state = state["rng"]


def _parts(rows: int, capacity: int) -> Iterator[slice]:
    for first in range(0, rows, capacity):
        yield slice(first, min(first + capacity, rows))


def _array(name: str, value: Any) -> NDArray[Any]:
    """Values of a chunk, [steps, ...]."""
    if isinstance(value, dict | tuple) or (isinstance(value, list) and isinstance(value[0], dict)):
        hint = "add RLlib's FlattenObservations to the env-to-module connectors"
        raise SchemaError(name, "one array a step", "a nested structure", hint)
    return np.asarray(value)
