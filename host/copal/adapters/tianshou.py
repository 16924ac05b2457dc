# SPDX-License-Identifier: MIT
"""tianshou's prioritized buffers over copal's replay.

    buffer = copal.adapters.tianshou.PrioritizedVectorReplayBuffer(
        100_000, buffer_num=10, alpha=0.6, beta=0.4
    )
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)

Rows of all environments share one ring, so an index is a slot of the ring and not of a part of it
that belongs to one environment; `next`, `prev` and `get_buffer_indices` follow an environment's
rows through it. Importance weights are divided by the batch's largest, as tianshou does.

The `DQN` of this module is tianshou's, with returns that are computed from these buffers' rows:
tianshou's own samples every batch twice and copies the flags of the whole buffer at each update.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from copal.adapters._peer import require
from copal.errors import ConfigError, EmptyReplayError, SchemaError

require("tianshou", "tianshou", "2.0")

import h5py
import torch
from tianshou.algorithm import DQN as PeerDQN
from tianshou.data import Batch
from tianshou.data import PrioritizedReplayBuffer as TianshouBuffer
from tianshou.data import PrioritizedVectorReplayBuffer as TianshouVectorBuffer
from tianshou.data import ReplayBuffer as Base
from tianshou.data.batch import alloc_by_keys_diff, create_value

from copal.adapters._links import Links
from copal.adapters._slots import LastDraw, as_stored, rows_in, slots_of
from copal.adapters._state import pack, unpack
from copal.replay import PrioritizedReplay

__all__ = ["DQN", "PrioritizedReplayBuffer", "PrioritizedVectorReplayBuffer"]

_ROWS = ("obs", "act", "rew", "terminated", "truncated", "obs_next")
"""What the native rows hold; the rest of a batch is kept beside them."""
_UNSUPPORTED = {
    "stack_num": 1,
    "ignore_obs_next": False,
    "save_only_last_obs": False,
    "sample_avail": False,
}
_Index = int | slice | list[int] | NDArray[Any]


class _Episodes:
    """Return, length and first slot of each environment's episode in progress."""

    def __init__(self, streams: int) -> None:
        self.returns: list[Any] = [0.0] * streams
        self.lengths = [0] * streams
        self.starts: list[int | None] = [None] * streams

    def step(self, stream: int, reward: Any, done: bool, slot: int) -> tuple[Any, int, int]:
        """Counts a step; returns the episode's return and length (0 before its end) and start."""
        start = self.starts[stream]
        start = slot if start is None else start
        total, length = self.returns[stream] + reward, self.lengths[stream] + 1
        if done:
            self.returns[stream], self.lengths[stream], self.starts[stream] = 0.0, 0, None
            return total, length, start
        self.returns[stream], self.lengths[stream], self.starts[stream] = total, length, start
        return total * 0, 0, start


class _Ring(Base):
    """What both buffers share: everything but how many environments there are."""

    buffer_num: int

    def _set_up(
        self, size: int, streams: int, alpha: float, beta: float, weight_norm: bool, **other: Any
    ) -> None:
        eps, seed = other.pop("eps", float(np.finfo(np.float32).eps)), other.pop("random_seed", 42)
        for name, value in other.items():
            if name not in _UNSUPPORTED:
                raise ConfigError(name, "an argument of this buffer", "an unknown one")
            if value != _UNSUPPORTED[name]:
                hint = "stack frames in the environment, or use tianshou's own buffer"
                raise ConfigError(name, f"{_UNSUPPORTED[name]}", f"{value}", hint)
        if not 0 < alpha <= 1:
            raise ConfigError("alpha", "a number above 0 and up to 1", f"{alpha:g}")
        Base.__init__(self, size, random_seed=seed)
        self.options.update(alpha=alpha, beta=beta)
        self.buffer_num = streams
        self._settings = {"alpha": alpha, "eps": eps, "seed": seed}
        self._weight_norm = weight_norm
        self.set_beta(beta)
        self._start_over()
        self._episodes = _Episodes(streams)

    def _start_over(self) -> None:
        self._replay: PrioritizedReplay | None = None
        self._meta = Batch()
        self._layout: dict[str, Any] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._links = Links(self.maxsize)
        self._done = np.zeros(self.maxsize, bool)
        self._stream = np.zeros(self.maxsize, np.int64)
        self._last = LastDraw()
        self._last_batch: Any = None
        self.last_index = np.zeros(self.buffer_num, np.int64)

    # Writing

    def add(
        self, batch: Any, buffer_ids: NDArray[Any] | list[int] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Adds a row of each environment.

        Args:
            batch: With obs, act, rew, terminated, truncated, obs_next, and whatever else.
            buffer_ids: The environment of each row; None: all, in order. A buffer of one
                environment takes a row without a leading axis then.

        Returns:
            Index, episode return, episode length (both 0 before the end) and index of the
            episode's first row, each [rows].

        Raises:
            SchemaError: A key is missing, or of another shape or dtype than before.
        """
        if buffer_ids is None and self.buffer_num == 1 and np.ndim(batch.terminated) == 0:
            batch = Batch({key: _stacked(batch[key]) for key in batch.get_keys()})
        streams = np.arange(self.buffer_num) if buffer_ids is None else np.asarray(buffer_ids)
        done = np.logical_or(batch.terminated, batch.truncated)
        slots = self._write(batch, streams, done)
        told = [
            self._episodes.step(int(stream), reward, bool(end), int(slot))
            for stream, reward, end, slot in zip(streams, batch.rew, done, slots, strict=True)
        ]
        returns, lengths, starts = zip(*told, strict=True)
        return slots, np.array(returns), np.array(lengths), np.array(starts)

    def update(self, buffer: Any) -> NDArray[Any]:
        """Adds all rows of another buffer, oldest first; returns their indices here, [rows]."""
        indices = buffer.sample_indices(0)[-self.maxsize :]
        if len(indices) == 0:
            return np.array([], int)
        batch = buffer[indices]
        ends = np.isin(indices, buffer.unfinished_index())
        done = np.logical_or(batch.terminated, batch.truncated) | ends
        for key in ("weight", "done"):
            batch.pop(key, None)
        return self._write(batch, np.zeros(len(indices), np.int64), done)

    def _write(self, batch: Any, streams: NDArray[Any], done: NDArray[Any]) -> NDArray[Any]:
        columns: dict[str, Any] = {}
        for key in _ROWS:
            if key not in batch.get_keys():
                raise SchemaError(key, f"a batch with {', '.join(_ROWS)}", "none of that name")
            _flatten(key, batch[key], columns)
        columns["rew"] = np.asarray(columns["rew"], np.float64)
        for key in ("terminated", "truncated"):
            columns[key] = np.asarray(columns[key], bool)
        columns = as_stored(columns, self._dtypes)
        if self._replay is None:
            self._dtypes = {name: a.dtype for name, a in columns.items()}
            self._layout = {key: _layout(key, batch[key]) for key in _ROWS}
            shapes = {name: (a.shape[1:], a.dtype) for name, a in columns.items()}
            self._replay = PrioritizedReplay(self.maxsize, shapes, **self._settings)
        ids = self._replay.add(**columns)
        slots = slots_of(ids, self.maxsize)
        self._last.forget()
        self._links.add(int(ids[0]), streams.tolist(), done.tolist())
        self._done[slots], self._stream[slots] = done, streams
        self.last_index[streams] = slots
        self._write_rest(batch, slots)
        return slots

    def _write_rest(self, batch: Any, slots: NDArray[Any]) -> None:
        rest = Batch()
        for key in batch.get_keys():
            if key not in _ROWS and key != "done":
                rest.__dict__[key] = batch[key]
        if not rest.get_keys():
            return
        try:
            self._meta[slots] = rest
        except ValueError:  # a key that was not there before
            if self._meta.get_keys():
                alloc_by_keys_diff(self._meta, rest, self.maxsize, False)
            else:
                self._meta = create_value(rest, self.maxsize, stack=False)
            self._meta[slots] = rest

    # Reading

    def sample(self, batch_size: int | None) -> tuple[Any, NDArray[Any]]:
        """Draws rows by priority.

        Args:
            batch_size: Rows; 0: all that are held, in order; None: all, shuffled.

        Returns:
            The batch, with importance weights as `weight`, and the rows' indices.
        """
        indices = self.sample_indices(batch_size)
        return self[indices], indices

    def sample_indices(self, batch_size: int | None) -> NDArray[Any]:
        """Draws indices as `sample` does, int64 [batch_size]."""
        if batch_size is None:
            return cast("NDArray[Any]", self._random_state.permutation(len(self)))
        if batch_size < 0 or len(self) == 0:
            return np.array([], int)
        if batch_size == 0:
            return self._in_order()
        drawn = self._native.sample(batch_size, min(self._beta, 1.0))
        slots = self._last.keep(drawn, self.maxsize)
        columns = {name: drawn[name] for name in drawn.keys()}  # noqa: SIM118
        self._last_batch = {key: _unflatten(self._layout[key], columns) for key in _ROWS}
        self._last_batch["done"] = self._done[slots]
        for key, value in self._meta[slots].items() if self._meta.get_keys() else ():
            self._last_batch[key] = value
        self._last_batch["weight"] = drawn.weights if self._weight_norm else self.get_weight(slots)
        return slots

    def __getitem__(self, index: _Index) -> Any:
        """Rows at `index`, a slot or many; `buffer[:]` are all of them in order."""
        slots: Any = index
        if isinstance(index, slice):
            slots = self._in_order() if index == slice(None) else self._indices[: len(self)][index]
        elif not isinstance(index, int | np.integer):
            slots = np.asarray(index)
            if slots.dtype == bool:
                slots = np.flatnonzero(slots)
        result = Batch()
        if isinstance(slots, np.ndarray) and slots.ndim == 1 and self._last.holds(slots):
            result.__dict__.update(self._last_batch)
        else:
            result.__dict__.update(self._gather(slots))
        return result

    def _gather(self, slots: Any) -> dict[str, Any]:
        found = {key: getattr(self, key)[slots] for key in _ROWS}
        found["done"] = self._done[slots]
        for key in ("info", "policy"):
            found[key] = Batch()
        for key in self._meta.get_keys():
            found[key] = self._meta[key][slots] if len(self._meta[key].shape) else Batch()
        weight = self.get_weight(slots)
        found["weight"] = weight / np.max(weight, initial=1e-30) if self._weight_norm else weight
        return found

    def __getattr__(self, key: str) -> Any:
        if key in _ROWS:
            columns = {name: self._native.column(name) for name in _names(self._layout[key])}
            return _unflatten(self._layout[key], columns)
        if key == "done":
            return self._done
        if key.startswith("_"):
            raise AttributeError(key)
        return super().__getattr__(key)

    @property
    def _native(self) -> PrioritizedReplay:
        if self._replay is None:
            raise EmptyReplayError("buffer", "rows", "none added yet", "collect steps first")
        return self._replay

    def __len__(self) -> int:
        return 0 if self._replay is None else min(self._replay.next_id, self.maxsize)

    def _in_order(self) -> NDArray[Any]:
        """All slots, environment by environment, each oldest first."""
        if self._replay is None:
            return np.array([], int)
        oldest = self._replay.next_id - len(self)
        slots = np.arange(oldest, self._replay.next_id) % self.maxsize
        order: NDArray[Any] = slots[np.argsort(self._stream[slots], kind="stable")]
        return order

    # Order of rows

    def next(self, index: int | NDArray[Any]) -> Any:
        """Index of the environment's next row; the row itself at the end of an episode."""
        ids = rows_in(index, self._native)
        return self._links.after(ids) % self.maxsize

    def prev(self, index: int | NDArray[Any]) -> Any:
        """Index of the environment's row before; the row itself at the start of an episode."""
        ids = rows_in(index, self._native)
        return self._links.before(ids) % self.maxsize

    def unfinished_index(self) -> NDArray[Any]:
        """Newest row of each episode in progress."""
        slots: NDArray[Any] = self._links.unfinished() % self.maxsize
        return slots

    def get_buffer_indices(self, start: int, stop: int) -> NDArray[Any]:
        """Indices of an environment's rows from `start` to before `stop`, within an episode.

        Raises:
            SchemaError: The row before `stop` does not follow `start`.
        """
        last = (stop - 1) % self.maxsize
        rows = [int(start)]
        while rows[-1] != last:
            following = int(self.next(rows[-1]))
            if following == rows[-1]:
                expected = f"a row after {start} in its episode"
                raise SchemaError("stop", expected, str(stop), "the episode outgrew the buffer")
            rows.append(following)
        return np.array(rows, dtype=int)

    def returns(
        self, indices: NDArray[Any], n_step: int, gamma: float
    ) -> tuple[NDArray[Any], Any, NDArray[np.float32]]:
        """What n-step targets are made of.

        Args:
            indices: As sampled, [rows].
            n_step: Rewards to sum; fewer at an episode's end and where it goes no further yet.
            gamma: Discount a step.

        Returns:
            The sums of rewards, float32 [rows]; the observations after the last of them; the
            discount of the value there, float32 [rows], 0 where the episode terminated.
        """
        if n_step == 1 and self._last.holds(indices):
            batch = self._last_batch
            reward, ended = batch["rew"].astype(np.float32), batch["terminated"]
            return reward, batch["obs_next"], np.where(ended, 0, gamma).astype(np.float32)
        steps = np.full(len(indices), n_step)
        ids = rows_in(indices, self._native)
        reward, last, count = self._links.sums(ids, steps, gamma, self.rew)
        slots = last % self.maxsize
        discount = np.where(self.terminated[slots], 0, np.power(gamma, count))
        return reward, self.obs_next[slots], discount.astype(np.float32)

    # Priorities

    def set_beta(self, beta: float) -> None:
        """Sets the exponent of the importance weights.

        Raises:
            ConfigError: It is not in [0, 1].
        """
        if not 0 <= beta <= 1:
            raise ConfigError("beta", "a number in [0, 1]", f"{beta:g}")
        self._beta = beta

    def get_weight(self, index: int | NDArray[Any]) -> Any:
        """Importance weights (N P)^-beta of rows, without a normalisation."""
        share = self._native.priorities()[index] / self._native.total_priority
        return np.power(np.maximum(share, 1e-30) * len(self), -self._beta)

    def update_weight(self, index: NDArray[Any], new_weight: Any) -> None:
        """Sets priorities to (|new_weight| + eps)^alpha.

        Args:
            index: As sampled.
            new_weight: TD errors, an array or tensor [rows].

        Raises:
            PriorityError: One is NaN or infinite; nothing is changed.
        """
        td = new_weight.detach().cpu().numpy() if hasattr(new_weight, "detach") else new_weight
        slots = np.asarray(index)
        self._native.update_priorities(
            self._last.ids(slots, self._native), np.asarray(td).reshape(len(slots))
        )

    def init_weight(self, index: ArrayLike) -> None:
        """Sets priorities to the largest present; new rows have it without being asked for."""
        slots = np.atleast_1d(np.asarray(index))
        largest = float(self._native.stats()["max_priority"]) ** (1 / self._settings["alpha"])
        td = np.full(len(slots), max(largest - self._settings["eps"], 0.0))
        self._native.update_priorities(rows_in(slots, self._native).astype(np.uint64), td)

    # The rest of the interface

    def reset(self, keep_statistics: bool = False) -> None:
        """Drops all rows; `keep_statistics` goes on counting the episodes in progress."""
        self._start_over()
        kept = self._episodes
        self._episodes = _Episodes(self.buffer_num)
        if keep_statistics:
            self._episodes.returns, self._episodes.lengths = kept.returns, kept.lengths

    def set_array_at_key(
        self,
        seq: NDArray[Any],
        key: str,
        index: _Index | None = None,
        default_value: float | None = None,
    ) -> None:
        """Sets values of a key that is not one of the transition's own.

        Raises:
            SchemaError: The key is stored in native rows, which are written once.
        """
        if key in (*_ROWS, "done"):
            raise SchemaError(key, "a key beside the transition", "one of the transition")
        if not self._meta.get_keys():
            self._meta = Batch(info=Batch())
        self._meta.set_array_at_key(seq, key, index, default_value)
        self._last.forget()

    def set_batch(self, batch: Any) -> None:  # noqa: ARG002
        """Refused: rows enter with `add`."""
        raise SchemaError("batch", "rows given to add", "a whole batch", "use add or update")

    def dropnull(self) -> None:
        """Refused: rows are written once."""
        raise SchemaError("buffer", "rows as they were added", "dropnull", "check before adding")

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_replay": None if self._replay is None else pack(self._replay)}
        return {**state, "_last": LastDraw(), "_last_batch": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        packed = state["_replay"]
        self.__dict__["_replay"] = None if packed is None else unpack(packed)

    def save_hdf5(self, path: str, compression: str | None = None) -> None:
        """Saves the whole buffer, priorities and all, as one data set of bytes."""
        data = np.frombuffer(pickle.dumps(self), np.uint8)
        with h5py.File(path, "w") as file:
            file.create_dataset("copal", data=data, compression=compression)

    @classmethod
    def load_hdf5(cls, path: str, device: str | None = None) -> Any:  # noqa: ARG003
        """Loads what `save_hdf5` wrote. Like a pickle: only from a source you trust."""
        with h5py.File(Path(path), "r") as file:
            return pickle.loads(file["copal"][()].tobytes())


class PrioritizedReplayBuffer(_Ring, TianshouBuffer):
    """For one environment; the arguments of tianshou's.

    Args:
        size: Rows.
        alpha: Exponent of priorities, above 0 and up to 1.
        beta: Exponent of importance weights, 0 to 1.
        weight_norm: Divide the weights by the batch's largest.
        **kwargs: `random_seed`; `eps`, added to |TD error|.

    Raises:
        ConfigError: A value is out of range, or an option (`stack_num` and its kin) is not served.
    """

    def __init__(
        self, size: int, alpha: float, beta: float, weight_norm: bool = True, **kwargs: Any
    ) -> None:
        self._set_up(int(size), 1, alpha, beta, weight_norm, **kwargs)


class PrioritizedVectorReplayBuffer(_Ring, TianshouVectorBuffer):
    """For several environments in one ring; the arguments of tianshou's.

    Args:
        total_size: Rows of all environments together.
        buffer_num: Environments.
        alpha: Exponent of priorities, above 0 and up to 1.
        beta: Exponent of importance weights, 0 to 1.
        weight_norm: Divide the weights by the batch's largest.
        **kwargs: `random_seed`; `eps`, added to |TD error|.

    Raises:
        ConfigError: A value is out of range, or an option (`stack_num` and its kin) is not served.
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        **kwargs: Any,
    ) -> None:
        if buffer_num < 1:
            raise ConfigError("buffer_num", "at least 1", str(buffer_num))
        self._set_up(int(total_size), buffer_num, alpha, beta, weight_norm, **kwargs)

    @property
    def subbuffer_edges(self) -> NDArray[Any]:
        """Bounds of the one ring."""
        return np.array([0, self.maxsize], dtype=int)


class DQN(PeerDQN):
    """tianshou's DQN; its targets come from `_Ring.returns` where the buffer is one of these.

    Arguments, losses and targets are tianshou's.
    """

    def train(self, mode: bool = True) -> Any:
        """Switches every module's mode; tianshou asks for it twice an update, mostly in vain."""
        if not hasattr(self, "_switched"):
            lagged = set() if self.model_old is None else set(self.model_old.module.modules())
            self._switched = [module for module in self.modules() if module not in lagged]
        if all(module.training == mode for module in self._switched):
            return self
        return super().train(mode)

    def _preprocess_batch(self, batch: Any, buffer: Any, indices: NDArray[Any]) -> Any:
        if not isinstance(buffer, _Ring) or np.ndim(batch.rew) > 1:
            return super()._preprocess_batch(batch, buffer, indices)
        reward, obs_next, discount = buffer.returns(indices, self.n_step, self.gamma)
        with torch.no_grad():
            value = self._value(Batch(obs=obs_next, info=Batch()))
            returns = torch.from_numpy(discount).to(value) * value
            batch.returns = torch.from_numpy(reward).to(value) + returns
            batch.weight = torch.from_numpy(batch.weight).to(value)
        return batch

    def _value(self, batch: Any) -> torch.Tensor:
        """Value of the next observations, [rows]: of the online network's action if double."""
        target = self.policy(batch, model=self.model_old) if self.use_target_network else None
        if not self.is_double and target is not None:
            value: torch.Tensor = target.logits.max(dim=1)[0]
            return value
        online = self.policy(batch)
        logits: torch.Tensor = online.logits if target is None else target.logits
        action = torch.from_numpy(online.act).to(logits.device)
        return logits.gather(1, action[:, None])[:, 0]


def _stacked(value: Any) -> Any:
    """A value of one row with a leading axis of length 1."""
    if isinstance(value, Batch):
        return Batch.stack([value]) if value.get_keys() else value
    return np.asarray(value)[None]


def _flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    """Arrays of a value that may be a nested batch (dictionary observations), by dotted name."""
    if isinstance(value, Batch):
        for key in value.get_keys():
            _flatten(f"{name}.{key}", value[key], into)
    else:
        into[name] = np.asarray(value)


def _layout(name: str, value: Any) -> Any:
    """The nesting that `_flatten` took apart: a column's name, or a mapping of key to layout."""
    if isinstance(value, Batch):
        return {key: _layout(f"{name}.{key}", value[key]) for key in value.get_keys()}
    return name


def _names(layout: Any) -> list[str]:
    if isinstance(layout, str):
        return [layout]
    return [name for part in layout.values() for name in _names(part)]


def _unflatten(layout: Any, columns: dict[str, Any]) -> Any:
    if isinstance(layout, str):
        return columns[layout]
    return Batch({key: _unflatten(part, columns) for key, part in layout.items()})
