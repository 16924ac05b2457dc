# SPDX-License-Identifier: MIT
"""A trained policy: a Program and its weights, kept in a folder that needs no torch to load.

policy/
policy.json            the Program, the environment, shapes, which networks it reads
weights.safetensors    one flat float32 vector a network
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import CheckpointError, NoSuchRunError, ProgramError, SchemaError
from copal.native import native
from copal.program import Program
from copal.runtime import files

FORMAT = 1
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
    actions: int
    """Number of discrete actions."""
    action_start: int = 0
    """The environment's number of the first action."""
    vectorization: str = "gymnasium"
    """Where the environment came from."""


class Policy:
    """Acts greedily.

    Args:
        program: Forward pass with the input `obs` and the outputs `q` and `action`.
        weights: Flat float32 vector of the Program's network.
        facts: What it was trained for.
    """

    def __init__(self, program: Program, weights: NDArray[np.float32], facts: PolicyFacts) -> None:
        if len(program.networks) != 1:
            raise ProgramError("networks", "one network", str(len(program.networks)))
        self.program, self.facts = program, facts
        self.weights = np.array(weights, np.float32)
        self._width = int(np.prod(facts.obs_shape, dtype=np.int64))
        self._native = native.Policy(program.to_dict())

    def act(self, obs: Any) -> Any:
        """The greedy action as the environment numbers it.

        Args:
            obs: One observation [*shape], or several [n, *shape].

        Returns:
            An int, or int64 [n].

        Raises:
            SchemaError: Another shape.
        """
        given = np.asarray(obs, np.float32)
        if given.shape == self.facts.obs_shape:
            flat = np.ascontiguousarray(given.reshape(1, self._width))
            return int(self.actions(flat)[0]) + self.facts.action_start
        if given.shape[1:] == self.facts.obs_shape and given.ndim == len(self.facts.obs_shape) + 1:
            flat = np.ascontiguousarray(given.reshape(len(given), self._width))
            return self.actions(flat) + self.facts.action_start
        raise SchemaError(
            "obs", f"shape {self.facts.obs_shape}, or with one more axis in front", str(given.shape)
        )

    def __call__(self, obs: Any) -> Any:
        """Same as `act`."""
        return self.act(obs)

    def actions(self, obs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Greedy actions counted from 0, int64 [n], for contiguous float32 [n, width]."""
        actions: NDArray[np.int64] = self._native.act(self.weights, obs)["action"]
        return actions

    def save(self, folder: Path | str) -> None:
        """Writes the policy into `folder`, replacing what was there."""
        folder = Path(folder)
        new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir(parents=True)
        files.write_arrays(new / _WEIGHTS, {self.program.networks[0].name: self.weights})
        facts = {"format": FORMAT, **asdict(self.facts), "program": self.program.to_dict()}
        files.write_json(new / _FACTS, facts)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    @classmethod
    def load(cls, folder: Path | str) -> Policy:
        """Reads a policy from its folder, or from the run folder that holds it.

        Raises:
            CheckpointError: There is none, it is damaged, or of another format version.
        """
        folder = Path(folder)
        if (folder / "policy" / _FACTS).exists():
            folder = folder / "policy"
        try:
            facts: Mapping[str, Any] = json.loads((folder / _FACTS).read_text())
        except (OSError, ValueError) as e:
            kind = NoSuchRunError if isinstance(e, FileNotFoundError) else CheckpointError
            raise kind("dir", f"a policy in `{folder}`", str(e), "give the folder of a run") from e
        if facts.get("format") != FORMAT:
            raise CheckpointError("format", str(FORMAT), str(facts.get("format")))
        try:
            program = Program.from_dict(facts["program"])
            weights = files.read_arrays(folder / _WEIGHTS)[program.networks[0].name]
            named = {f: facts[f] for f in PolicyFacts.__dataclass_fields__}
            named["obs_shape"] = tuple(named["obs_shape"])
        except (KeyError, IndexError) as e:
            raise CheckpointError(str(folder), "a whole policy", repr(e)) from e
        return cls(program, weights, PolicyFacts(**named))
