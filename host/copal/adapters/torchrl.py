# SPDX-License-Identifier: MIT
"""A prioritized sampler and a storage of native rows for TorchRL's replay buffers.

    buffer = TensorDictReplayBuffer(
        storage=Storage(1_000_000),
        sampler=PrioritizedSampler(1_000_000, alpha=0.6, beta=0.4),
        priority_key="td_error",
        batch_size=256,
    )

Together the two share one copal buffer, and a draw brings its rows along in the same call. The
sampler also works with TorchRL's storages, and the storage with TorchRL's samplers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.adapters._peer import require
from copal.errors import CheckpointError, ConfigError, EmptyReplayError, SchemaError, reason

require("torchrl", "torchrl", "0.14")

import torch
from tensordict import TensorDict, is_tensor_collection
from torchrl.data.replay_buffers.samplers import PrioritizedSampler as PeerSampler
from torchrl.data.replay_buffers.samplers import Sampler as BaseSampler
from torchrl.data.replay_buffers.storages import Storage as BaseStorage
from torchrl.data.replay_buffers.storages import TensorStorage

from copal.adapters._slots import LastDraw, rows_in
from copal.adapters._state import pack, unpack
from copal.replay import PrioritizedReplay

__all__ = ["PrioritizedSampler", "Storage"]

_FILE = "copal.replay"


class Storage(TensorStorage):
    """Tensordicts as rows of a copal buffer, written in order round the ring.

    Args:
        max_size: Rows.
        alpha: Exponent of priorities if no `PrioritizedSampler` of this module says another.
        eps: Added to |priority|, likewise.

    Raises:
        ConfigError: A value is out of range.
    """

    device = torch.device("cpu")
    supports_conditional_update = False

    def __init__(self, max_size: int, alpha: float = 0.6, eps: float = 1e-8) -> None:
        BaseStorage.__init__(self, max_size)
        self.ndim = 1
        self._alpha, self._eps = alpha, eps
        self._last = LastDraw()
        self._keys: dict[str, Any] = {}
        self._native: PrioritizedReplay | None = None

    @property
    def replay(self) -> PrioritizedReplay:
        """The buffer behind it.

        Raises:
            EmptyReplayError: Nothing was written yet.
        """
        if self._native is None:
            raise EmptyReplayError("storage", "rows", "none yet", "extend the buffer first")
        return self._native

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Writes rows.

        Args:
            cursor: The slot of one row or those of many; the ring's next ones.
            data: A tensordict, of one row if `cursor` is a number.
            set_cursor: As in TorchRL.

        Raises:
            SchemaError: It is no tensordict, its keys, shapes or dtypes are not those of the first
                one, or the slots are not the next ones.
        """
        if isinstance(data, list):
            data = torch.stack(data)
        if not is_tensor_collection(data):
            raise SchemaError("data", "a tensordict", type(data).__name__)
        one = isinstance(cursor, int) or (isinstance(cursor, torch.Tensor) and not cursor.ndim)
        slots = np.atleast_1d(np.asarray(cursor, dtype=np.int64))
        rows = data.unsqueeze(0) if one else data
        arrays = _arrays(rows)
        if self._native is None:
            self._begin(rows, arrays)
        first = self.replay.next_id
        if not np.array_equal(slots, np.arange(first, first + len(slots)) % self.max_size):
            hint = "use a RoundRobinWriter, and change stored rows in a storage of TorchRL"
            got = f"{slots[0]} to {slots[-1]}"
            raise SchemaError("cursor", f"slots from {first % self.max_size} on", got, hint)
        self.replay.add(**arrays)
        self._last.forget()
        if set_cursor:
            self._set_last_cursor(cursor)
        self._bump_mutation_revision()

    def _begin(self, rows: Any, arrays: dict[str, NDArray[Any]]) -> None:
        alpha, eps, seed = self._alpha, self._eps, 0
        for buffer in self._attached_entities:
            sampler = getattr(buffer, "_sampler", None)
            if isinstance(sampler, PrioritizedSampler):
                alpha, eps, seed = sampler.alpha, sampler.eps, sampler.seed
        self._keys = {_name(key): key for key in _leaves(rows)}
        shapes = {name: (a.shape[1:], a.dtype) for name, a in arrays.items()}
        self._native = PrioritizedReplay(self.max_size, shapes, alpha=alpha, eps=eps, seed=seed)

    def draw(self, batch_size: int, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws rows by priority, which the next `get` of their slots returns.

        Args:
            batch_size: Rows.
            beta: Exponent of the importance weights.

        Returns:
            Slots, int64 [batch_size], and weights, float32 [batch_size].
        """
        batch = self.replay.sample(batch_size, beta)
        slots = self._last.keep(batch, self.max_size)
        return torch.from_numpy(slots), torch.from_numpy(batch.weights)

    def ids(self, slots: NDArray[Any]) -> NDArray[np.uint64]:
        """Ids of rows that are named by slot, uint64 [slots]."""
        return self._last.ids(slots, self.replay)

    def get(self, index: Any) -> Any:
        """Rows at slots: a tensordict of one row for a number, else of many."""
        if isinstance(index, int):
            return self._gather(np.array([index]))[0]
        if isinstance(index, slice):
            return self._gather(np.arange(len(self))[index])
        slots = np.asarray(index)
        batch = self._last.batch
        if batch is not None and slots.ndim == 1 and self._last.holds(slots):
            return self._tensordict({name: batch[name] for name in self._keys}, (len(slots),))
        return self._gather(slots)

    def _gather(self, slots: NDArray[Any]) -> Any:
        rows_in(slots, self.replay)
        columns = {name: self.replay.column(name)[slots] for name in self._keys}
        return self._tensordict(columns, slots.shape)

    def _tensordict(self, columns: dict[str, NDArray[Any]], shape: tuple[int, ...]) -> Any:
        flat = {name: torch.from_numpy(np.asarray(a)) for name, a in columns.items()}
        if all(isinstance(key, str) for key in self._keys.values()):
            return TensorDict._new_unsafe(flat, batch_size=torch.Size(shape))  # noqa: SLF001
        result = TensorDict({}, batch_size=shape)
        for name, value in flat.items():
            result.set(self._keys[name], value)
        return result

    def __len__(self) -> int:
        return 0 if self._native is None else min(self._native.next_id, self.max_size)

    @property
    def initialized(self) -> bool:
        """Whether rows were written."""
        return self._native is not None

    @property
    def shape(self) -> torch.Size:
        """Rows held."""
        return torch.Size([len(self)])

    def contains(self, item: Any) -> Any:
        """Whether slots hold a row."""
        index = torch.as_tensor(item)
        held = (index >= 0) & (index < len(self))
        return bool(held) if held.ndim == 0 else held

    def _empty(self) -> None:
        self._native, self._keys = None, {}
        self._last.forget()
        self._bump_mutation_revision()

    def state_dict(self) -> dict[str, Any]:
        """The whole state, priorities included."""
        packed = None if self._native is None else pack(self._native)
        return {"copal": packed, "keys": dict(self._keys)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` was called.

        Raises:
            CheckpointError: The rows are damaged, or of a storage of another size.
        """
        packed = state_dict["copal"]
        native = None if packed is None else unpack(packed)
        self._take(native, state_dict["keys"])

    def dumps(self, path: Any) -> None:
        """Writes the state into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        keys = {name: _path(key) for name, key in self._keys.items()}
        (folder / "keys.json").write_text(json.dumps(keys), encoding="utf-8")
        if self._native is not None:
            self._native.save(folder / _FILE)

    def loads(self, path: Any) -> None:
        """Reads what `dumps` wrote.

        Raises:
            CheckpointError: The folder is damaged, or of a storage of another size.
        """
        folder = Path(path)
        try:
            text = (folder / "keys.json").read_text(encoding="utf-8")
        except OSError as e:
            raise CheckpointError(str(path), "a folder that dumps wrote", reason(e)) from e
        keys = {name: _key(parts) for name, parts in json.loads(text).items()}
        self._take(PrioritizedReplay.load(folder / _FILE) if keys else None, keys)

    def _take(self, native: PrioritizedReplay | None, keys: dict[str, Any]) -> None:
        if native is not None and native.capacity != self.max_size:
            got = f"{native.capacity} rows"
            raise CheckpointError("storage", f"{self.max_size} rows", got)
        self._native, self._keys = native, dict(keys)
        self._last.forget()

    def __getstate__(self) -> dict[str, Any]:
        state = {**BaseStorage.__getstate__(self), **self.state_dict(), "_last": LastDraw()}
        del state["_native"], state["_keys"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = {"copal": state.pop("copal"), "keys": state.pop("keys")}
        BaseStorage.__setstate__(self, state)
        self.load_state_dict(own)


class PrioritizedSampler(PeerSampler):
    """Draws by priority (|TD error| + eps)^alpha, over a `Storage` or one of TorchRL's.

    New rows have the largest priority present. Weights are divided by the batch's largest, where
    TorchRL divides by the largest of the whole buffer.

    Args:
        max_capacity: Rows.
        alpha: Exponent of priorities, 0 (uniform) to 1.
        beta: Exponent of importance weights, 0 to 1; may be set at any time.
        eps: Added to |priority|.
        reduction: How TorchRL makes one priority of those of a sequence.
        seed: Seed of the draws.

    Raises:
        ConfigError: A value is out of range.
    """

    def __init__(
        self,
        max_capacity: int,
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-8,
        reduction: str = "max",
        seed: int = 0,
    ) -> None:
        if not 0 <= beta <= 1:
            raise ConfigError("beta", "a number in [0, 1]", f"{beta:g}")
        self._max_capacity, self._alpha, self._beta = max_capacity, alpha, beta
        self.eps, self.reduction, self.seed = eps, reduction, seed
        self._last = LastDraw()
        self._storage: Storage | None = None
        self._tree: PrioritizedReplay | None = None

    @property
    def alpha(self) -> float:
        """Exponent of priorities, fixed at construction."""
        return self._alpha

    @property
    def device(self) -> torch.device:
        """Where indices and weights are."""
        return torch.device("cpu")

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """Draws slots.

        Returns:
            Slots, int64 [batch_size], and `priority_weight`, float32 [batch_size].

        Raises:
            EmptyReplayError: There are no rows.
        """
        if isinstance(storage, Storage):
            self._storage = storage
            index, weight = storage.draw(batch_size, self._beta)
            return index, {"priority_weight": weight}
        batch = self._bare().sample(batch_size, self._beta)
        slots = self._last.keep(batch, self._max_capacity)
        return torch.from_numpy(slots), {"priority_weight": torch.from_numpy(batch.weights)}

    def _bare(self) -> PrioritizedReplay:
        """A buffer that holds priorities alone: a row a slot, drawn once it has a priority."""
        if self._tree is None:
            rows = self._max_capacity
            self._tree = PrioritizedReplay(
                rows, {"row": ((), "bool")}, alpha=self._alpha, eps=0.0, seed=self.seed
            )
            self._tree.add(row=np.zeros(rows, bool), priority=np.zeros(rows, np.float32))
        return self._tree

    @property
    def default_priority(self) -> float:
        """The largest priority present, 1 if there is none."""
        tree = self._storage.replay if self._storage is not None else self._tree
        largest = 0.0 if tree is None else float(tree.stats()["max_priority"])
        return float(largest ** (1 / self._alpha)) if largest > 0 and self._alpha else 1.0

    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        """Sets priorities.

        Args:
            index: Slots, a number or [rows]; -1 stands for a row that was not written.
            priority: TD errors of any sign, a number or [rows].
            storage: The storage that the slots are of.

        Raises:
            PriorityError: One is NaN or infinite; nothing is changed.
            SchemaError: A slot is out of range.
        """
        slots = np.atleast_1d(np.asarray(index, dtype=np.int64))
        td = np.abs(np.asarray(torch.as_tensor(priority).detach().cpu(), np.float64)).reshape(-1)
        td = np.broadcast_to(td, slots.shape)
        if (slots < 0).any():
            slots, td = slots[slots >= 0], td[slots >= 0]
        if not len(slots):
            return
        storage = storage if isinstance(storage, Storage) else self._storage
        if storage is not None:
            storage.replay.update_priorities(storage.ids(slots), td)
        else:
            self._bare().update_priorities(slots.astype(np.uint64), td + self.eps)

    def mark_update(self, index: Any, *, storage: Any = None) -> None:
        """Gives rows just written the largest priority; rows of a `Storage` enter with it."""
        if isinstance(storage, Storage):
            self._storage = storage
        else:
            self.update_priority(index, self.default_priority)

    def add(self, index: Any) -> None:
        """Nothing is left to do once `mark_update` was called."""

    def extend(self, index: Any) -> None:
        """Nothing is left to do once `mark_update` was called."""

    def _empty(self) -> None:
        self._storage, self._tree = None, None
        self._last.forget()

    def state_dict(self) -> dict[str, Any]:
        """Settings, and the priorities unless a `Storage` holds them."""
        packed = None if self._tree is None else pack(self._tree)
        return {"copal": packed, "alpha": self._alpha, "beta": self._beta, "eps": self.eps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` was called."""
        packed = state_dict["copal"]
        self._tree = None if packed is None else unpack(packed)
        self._alpha, self._beta = state_dict["alpha"], state_dict["beta"]
        self.eps = state_dict["eps"]
        self._last.forget()

    def dumps(self, path: Any) -> None:
        """Writes the state into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"alpha": self._alpha, "beta": self._beta, "eps": self.eps}
        (folder / "sampler.json").write_text(json.dumps(settings), encoding="utf-8")
        (folder / _FILE).unlink(missing_ok=True)
        if self._tree is not None:
            self._tree.save(folder / _FILE)

    def loads(self, path: Any) -> None:
        """Reads what `dumps` wrote.

        Raises:
            CheckpointError: The folder is damaged.
        """
        folder = Path(path)
        try:
            settings = json.loads((folder / "sampler.json").read_text(encoding="utf-8"))
        except OSError as e:
            raise CheckpointError(str(path), "a folder that dumps wrote", reason(e)) from e
        self._alpha, self._beta = settings["alpha"], settings["beta"]
        self.eps = settings["eps"]
        file = folder / _FILE
        self._tree = PrioritizedReplay.load(file) if file.exists() else None

    def __repr__(self) -> str:
        return f"PrioritizedSampler(alpha={self._alpha}, beta={self._beta}, eps={self.eps})"

    def __getstate__(self) -> dict[str, Any]:
        packed = None if self._tree is None else pack(self._tree)
        state = {**BaseSampler.__getstate__(self), "_tree": packed, "_last": LastDraw()}
        return {**state, "_storage": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tree = None if state["_tree"] is None else unpack(state["_tree"])


def _leaves(data: Any) -> list[Any]:
    return list(data.keys(include_nested=True, leaves_only=True))


def _arrays(rows: Any) -> dict[str, NDArray[Any]]:
    """Every tensor of a tensordict by dotted name, without copies where it is on the CPU."""
    found = {}
    for key in _leaves(rows):
        value = rows.get(key)
        if not isinstance(value, torch.Tensor):
            raise SchemaError(_name(key), "a tensor", type(value).__name__)
        try:
            found[_name(key)] = value.detach().cpu().contiguous().numpy()
        except TypeError as e:
            raise SchemaError(_name(key), "a dtype that NumPy has", str(value.dtype)) from e
    return found


def _name(key: Any) -> str:
    return key if isinstance(key, str) else ".".join(key)


def _path(key: Any) -> list[str]:
    return [key] if isinstance(key, str) else list(key)


def _key(parts: list[str]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)
