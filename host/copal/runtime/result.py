# SPDX-License-Identifier: MIT
"""What a run of `copal.train` gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copal.runtime.policy import Policy


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its best policy and its figures."""

    best: Policy
    """Best policy of the evaluations, the last one if there was none."""
    best_at: int | None
    """Environment steps after which it acted so; None: the run was resumed from a checkpoint of an
    earlier version, which does not tell."""
    mean_return: float
    """Mean of `returns`; NaN if a signal ended the run before the evaluation."""
    returns: tuple[float, ...]
    """Returns of the best policy in the evaluation at the end, on seeds of its own."""
    env_steps: int
    """Environment steps, those before a resume included."""
    updates: int
    """Learner updates, those before a resume included."""
    env_steps_per_s: float
    """Environment steps a second of this session."""
    updates_per_s: float
    """Updates a second of this session."""
    wall_s: float
    """Seconds this session trained, evaluations during training included."""
    env_restarts: int
    """Environments replaced because they failed."""
    out: Path
    """Run folder."""
    stop_reason: str
    """`steps`, `return` (`stop_at_return` was reached and confirmed), or the name of a signal."""
    evaluated: bool = True
    """Whether an evaluation chose `best`; False: a signal came before the first one."""
    staleness_mean: float | None = None
    """Updates that other learners applied while one was computed, on average; None: `sync`."""
    staleness_max: int | None = None
    """The most such updates; None: `sync`."""
    report: str = ""
    """What the backend says about the whole run, cycles of an engine for instance."""

    def policy(self, obs: Any) -> Any:
        """Greedy action for one observation, or int64 [n] for several."""
        return self.best.act(obs)

    def save(self, path: Path | str | None = None) -> Path:
        """Writes the best policy into a folder, which `copal.load_policy` reads.

        Args:
            path: The folder; None: `policy` in the run folder.

        Returns:
            The folder.
        """
        folder = self.out / "policy" if path is None else Path(path)
        self.best.save(folder)
        return folder

    def summary(self) -> str:
        """The result in a few lines."""
        spread = ""
        if len(self.returns) > 1 and math.isfinite(self.mean_return):
            squares = sum((r - self.mean_return) ** 2 for r in self.returns)
            spread = f" +- {math.sqrt(squares / len(self.returns)):.1f}"
        end = "solved" if self.stop_reason == "return" else "all steps taken"
        policy = "" if self.best_at is None else f", by the policy of step {self.best_at:,}"
        score = (
            f"{end}: mean return {self.mean_return:.1f}{spread} over {len(self.returns)} episodes"
            f"{policy}"
            if self.returns
            else f"stopped by {self.stop_reason}; go on with: copal train --resume {self.out}"
        )
        speed = (
            f"{self.env_steps:,} env steps and {self.updates:,} updates, "
            f"{self.env_steps_per_s:,.0f} env steps/s over {self.wall_s:.1f} s"
        )
        if self.staleness_mean is not None:
            speed += f"\nstaleness of gradients: mean {self.staleness_mean:.2f}"
            speed += f", at most {self.staleness_max:,} updates"
        if self.report:
            speed += f"\n{self.report}"
        if self.env_restarts:
            speed += f"\n{self.env_restarts:,} environments failed and were replaced"
        chosen = "" if self.evaluated else f" (of step {self.best_at:,}, not evaluated)"
        return f"{score}\n{speed}\npolicy: {self.out / 'policy'}{chosen}"
