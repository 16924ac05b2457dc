# SPDX-License-Identifier: MIT
"""A trained policy: a Program and its weights, kept in a folder that needs no torch to load.

policy/
policy.json            the Program, the environment, its observations and actions
weights.safetensors    one flat float32 vector a network
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from copal import algorithms
from copal.algorithms import Source
from copal.envs.actions import Actions, Scale
from copal.errors import (
    CheckpointError,
    ConfigError,
    CopalError,
    NoSuchRunError,
    SchemaError,
    reason,
)
from copal.native import native
from copal.program import Program
from copal.runtime import files

FORMAT = 2
READABLE = (1, 2)
"""Formats that `Policy.load` reads; the first one knew discrete actions only."""
_FACTS, _WEIGHTS = "policy.json", "weights.safetensors"


@dataclass(frozen=True)
class PolicyFacts:
    """What a policy was trained for."""

    env: str
    """Environment id."""
    algo: str
    """Algorithm."""
    obs_shape: tuple[int, ...]
    """Shape of one observation."""
    actions: Actions
    """Kind, range and numbering of the actions."""
    vectorization: str = "gymnasium"
    """Where the environment came from."""
    frame_stack: int = 1
    """Newest observations that made one."""
    obs_dtype: str = "float32"
    """Of one observation: images are uint8."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The algorithm's settings, if only PyTorch can run the policy: to build its networks again."""
    factory: str = ""
    """What `algorithms.get` takes for that; empty: `algo`."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PolicyFacts:
        """From the content of policy.json, of any format in `READABLE`.

        Raises:
            KeyError: Something is missing.
            TypeError: Something is of another kind.
        """
        if data["format"] == 1:
            count, start = int(data["actions"]), int(data["action_start"])
            actions, stack = Actions("discrete", count, start), 1
        else:
            actions, stack = Actions.from_dict(data["actions"]), int(data["frame_stack"])
        shape = tuple(data["obs_shape"])
        return cls(
            data["env"],
            data["algo"],
            shape,
            actions,
            data["vectorization"],
            stack,
            data.get("obs_dtype", "float32"),
            data.get("settings", {}),
            data.get("factory", ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "actions": self.actions.to_dict()}


def make_policy(program: Program, source: Source | None = None) -> Any:
    """What runs a policy's Program: `act_into(source, obs, out, role="action", noise=None)`.

    `source` is a `native.WeightStore`, or one float32 vector: the Program's networks one behind
    another, in its order.

    Args:
        program: What to run.
        source: The code that it was captured from, for Programs that only PyTorch can run.

    Raises:
        ProgramError: The Program holds operations that the extension lacks.
    """
    if source is not None and program.opaque():
        from copal.backends.torch_policy import TorchPolicy

        return TorchPolicy(program, source)
    return native.Policy(program.to_dict())


class Policy:
    """Acts.

    Args:
        program: Forward pass with the input `obs` and the output `action`; a policy that draws
            actions has the input `noise` and the output `sample`, too.
        weights: The Program's networks one behind another, flat float32.
        facts: What it was trained for.

    Attributes:
        scale: Turns what `actions` returns into the environment's own numbers.

    Raises:
        CheckpointError: The weights do not fit the Program.
    """

    def __init__(self, program: Program, weights: NDArray[np.float32], facts: PolicyFacts) -> None:
        size = sum(network.size for network in program.networks)
        if np.shape(weights) != (size,):
            raise CheckpointError(
                "weights",
                f"{size} numbers for {[n.name for n in program.networks]}",
                f"shape {np.shape(weights)}",
                "the policy is of another algorithm, environment or width",
            )
        self.program, self.facts = program, facts
        self.weights = np.array(weights, np.float32)
        self._width = int(np.prod(facts.obs_shape, dtype=np.int64))
        self.scale = Scale(facts.actions)
        self._noise = next((b.width for b in program.inputs if b.name == "noise"), 0)
        self._policy = make_policy(program, _source(facts) if program.opaque() else None)

    def act(
        self, obs: Any, *, sample: bool = False, generator: np.random.Generator | None = None
    ) -> Any:
        """The action as the environment takes it.

        Args:
            obs: One observation [*shape], or several [n, *shape].
            sample: Draw from the policy's distribution instead of taking its best action.
            generator: Where a drawn action's noise comes from; None: a new one.

        Returns:
            Discrete: an int, or int64 [n]. Box: an array [*action shape] or [n, *action shape]
            within the bounds.

        Raises:
            SchemaError: Another shape.
            ConfigError: `sample` for a policy that is deterministic.
        """
        given = np.asarray(obs, np.float32)
        one = given.shape == self.facts.obs_shape
        if not one and (not given.ndim or given.shape[1:] != self.facts.obs_shape):
            raise SchemaError(
                "obs",
                f"shape {self.facts.obs_shape}, or with one more axis in front",
                str(given.shape),
            )
        flat = np.ascontiguousarray(given.reshape(-1, self._width))
        noise = self._draw(len(flat), generator) if sample else None
        actions = self.scale(self.actions(flat, noise))
        if not one:
            return actions
        return actions[0] if self.facts.actions.kind == "box" else int(actions[0])

    def __call__(self, obs: Any) -> Any:
        """Same as `act`."""
        return self.act(obs)

    def actions(self, obs: NDArray[Any], noise: NDArray[np.float32] | None = None) -> NDArray[Any]:
        """Actions in copal's own numbers, for contiguous observations [n, width].

        Args:
            obs: float32.
            noise: Standard normal numbers, float32 [n, width]: draws actions from them. None: the
                best actions.

        Returns:
            int64 [n] counted from 0, or float32 [n, width] in [-1, 1].
        """
        out = self.facts.actions.buffer(len(obs))
        if noise is None:
            self._policy.act_into(self.weights, obs, out)
        else:
            self._policy.act_into(self.weights, obs, out, role="sample", noise=noise)
        return out

    def _draw(self, count: int, generator: np.random.Generator | None) -> NDArray[np.float32]:
        if not self._noise:
            raise ConfigError(
                "sample",
                "False, since this policy is deterministic",
                "True",
                "policies of sac draw their actions",
            )
        generator = generator or np.random.default_rng()
        return generator.standard_normal((count, self._noise), dtype=np.float32)

    def save(self, folder: Path | str) -> None:
        """Writes the policy into `folder`, replacing what was there."""
        folder = Path(folder)
        new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir(parents=True)
        files.write_arrays(new / _WEIGHTS, split(self.program, self.weights))
        facts = {"format": FORMAT, **self.facts.to_dict(), "program": self.program.to_dict()}
        files.write_json(new / _FACTS, facts)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    @classmethod
    def load(cls, folder: Path | str, *, algo: str | None = None, env: str | None = None) -> Policy:
        """Reads a policy from its folder, or from the run folder that holds it.

        Args:
            folder: Where it is.
            algo: Algorithm that it has to be of, by any of its names; None: any.
            env: Environment that it has to be for; None: any.

        Raises:
            UnknownNameError: There is no algorithm `algo`.
            CheckpointError: There is none, it is damaged, of another format version, or not of
                `algo` or for `env`.
        """
        folder = Path(folder)
        if (folder / "policy" / _FACTS).exists():
            folder = folder / "policy"
        try:
            facts: Mapping[str, Any] = json.loads((folder / _FACTS).read_text())
        except (OSError, ValueError, RecursionError) as e:
            kind = NoSuchRunError if isinstance(e, FileNotFoundError) else CheckpointError
            raise kind(
                "dir", f"a policy in `{folder}`", reason(e), "give the folder of a run"
            ) from e
        if not isinstance(facts, dict) or facts.get("format") not in READABLE:
            expected = " or ".join(map(str, READABLE))
            got = repr(facts.get("format")) if isinstance(facts, dict) else type(facts).__name__
            raise CheckpointError("format", expected, got)
        check_kind(facts, f" in `{folder}`", algo=algo, env=env)
        try:
            program = Program.from_dict(facts["program"])
            vectors = files.read_arrays(folder / _WEIGHTS)
            weights = join(program, vectors)
            return cls(program, weights, PolicyFacts.from_dict(facts))
        except (KeyError, IndexError, TypeError, ValueError) as e:
            if isinstance(e, CopalError):
                raise
            raise CheckpointError(str(folder), "a whole policy", repr(e)) from e


def check_kind(
    facts: Mapping[str, Any], where: str = "", *, algo: str | None, env: str | None
) -> None:
    """Refuses a policy of another algorithm than `algo`, or for another environment than `env`.

    Raises:
        UnknownNameError: There is no algorithm `algo`.
        CheckpointError: It is another one.
    """
    algo = None if algo is None else algorithms.get(algo).name
    for name, wanted in (("algo", algo), ("env", env)):
        if wanted is not None and facts.get(name) != wanted:
            raise CheckpointError(
                name,
                f"a policy of `{wanted}`",
                f"one of `{facts.get(name)}`{where}",
                f"give another one, or ask for {facts.get(name)}",
            )


def join(program: Program, vectors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """The vectors of the Program's networks one behind another, in its order."""
    return np.concatenate([vectors[network.name] for network in program.networks])


def split(program: Program, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Inverse of `join`: network name to its part."""
    ends = np.cumsum([network.size for network in program.networks])[:-1]
    parts = np.split(weights, ends)
    return {n.name: part for n, part in zip(program.networks, parts, strict=True)}


def _source(facts: PolicyFacts) -> Source:
    """The networks and the forward pass of a policy that only PyTorch can run."""
    return _built_source(
        facts.factory or facts.algo,
        facts.obs_shape,
        facts.obs_dtype,
        json.dumps(facts.actions.to_dict()),
        json.dumps(dict(facts.settings)),
    )


@functools.lru_cache(maxsize=4)
def _built_source(
    algo: str, shape: tuple[int, ...], dtype: str, actions: str, settings: str
) -> Source:
    algorithm = algorithms.get(algo)
    high = np.inf if np.issubdtype(np.dtype(dtype), np.floating) else np.iinfo(dtype).max
    low = -np.inf if high == np.inf else 0
    observations = spaces.Box(low, high, shape, np.dtype(dtype).type)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(settings).items()}
    space = _action_space(Actions.from_dict(json.loads(actions)))
    chosen = algorithm.config(**given)
    return algorithms.build(algorithm, observations, space, chosen).source


def _action_space(actions: Actions) -> Any:
    if actions.kind == "discrete":
        return spaces.Discrete(actions.count)
    low, high = (
        np.array(bound, actions.dtype).reshape(actions.shape)
        for bound in (actions.low, actions.high)
    )
    return spaces.Box(low, high, dtype=np.dtype(actions.dtype).type)
