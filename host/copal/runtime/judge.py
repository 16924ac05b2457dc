# SPDX-License-Identifier: MIT
"""Evaluates during a run, keeps the best policy, and scores it at the end on fresh seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.runtime import files
from copal.runtime.checkpoint import Checkpoint
from copal.runtime.control import NEVER, Control, next_multiple
from copal.runtime.evaluation import Interrupted, Score, play
from copal.runtime.metrics import MetricsLog, Progress
from copal.runtime.policy import Policy
from copal.runtime.session import Session

_BEST = "best.safetensors"
CONFIRM_ROUNDS = 3
"""How many times the episodes of an evaluation a new best policy plays once more."""
_FINAL_ROUND = 2**31 - 1


class Judge:
    """Decides which policy of a run is its best.

    A mean over a few episodes is noisy, and the best of many is lucky. So a policy that seems the
    best plays `CONFIRM_ROUNDS` times as many again on other seeds, and the mean over all decides.

    Args:
        parts: The run.
        control: Asked whether to stop; told when the wanted return is reached.
        log: Where scores go.
        show: Where messages go.
    """

    def __init__(self, parts: Session, control: Control, log: MetricsLog, show: Progress) -> None:
        self._parts, self._control, self._log, self._show = parts, control, log, show
        self._config = parts.config
        self._looked_at = 0
        self._rounds = 0
        self._best_mean = -np.inf
        self._best_at: int | None = None
        self._best: NDArray[np.float32] | None = None

    def look(self, env_steps: int, *, last: bool = False) -> None:
        """Evaluates the newest policy if that is due, or if it is the last chance."""
        due = env_steps >= self.next_look
        if last:
            due = self._best is None or (self._looked_at < env_steps and self.next_look < NEVER)
        if not due or (self._control.stop_reason and not last):
            return
        rounds = self._rounds
        try:
            self._evaluate(env_steps)
        except Interrupted:
            # As if it had never begun, so that a resumed run does it.
            self._rounds = rounds
            return
        self._looked_at = env_steps

    @property
    def next_look(self) -> int:
        """Env steps at which the next evaluation is due."""
        return next_multiple(self._looked_at, self._config.eval_interval)

    def final(self) -> Score | None:
        """Scores the best policy on seeds of its own; None if a signal came meanwhile."""
        if self._control.stop_reason not in (None, "return"):
            return None
        try:
            score = self._play(self.best_policy(), self._config.final_eval_episodes, _FINAL_ROUND)
        except Interrupted:
            return None
        self._log.write(
            "final",
            self._parts.env_steps,
            {"mean_return": score.mean, "std": score.std, "episodes": len(score.returns)},
        )
        return score

    @property
    def best_at(self) -> int | None:
        """Env steps of the best policy; None: from a checkpoint that does not tell."""
        return self._parts.env_steps if self._best is None else self._best_at

    def best_policy(self) -> Policy:
        """The best policy so far, the newest one before the first evaluation."""
        weights = self._best if self._best is not None else self._parts.store.read()[0]
        return Policy(self._parts.built.update.policy, weights, self._parts.facts)

    @property
    def evaluated(self) -> bool:
        """Whether the best policy was chosen by an evaluation."""
        return self._best is not None

    def keep_newest(self) -> None:
        """Saves the newest policy if there is none from an evaluation, so that a run has one."""
        if not self.evaluated:
            self._save()

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes the best weights into a checkpoint's folder; returns counters to store."""
        if self._best is not None:
            files.write_arrays(folder / _BEST, {"best": self._best})
        return {
            "evaluation_rounds": self._rounds,
            "evaluated_at": self._looked_at,
            "best_mean": None if self._best is None else self._best_mean,
            "best_at": self._best_at,
        }

    def restore(self, found: Checkpoint) -> None:
        """Goes on from a checkpoint, whose best policy becomes the run's again."""
        self._rounds = int(found.counters["evaluation_rounds"])
        self._looked_at = int(found.counters["evaluated_at"])
        if found.counters["best_mean"] is not None:
            self._best_mean = float(found.counters["best_mean"])
            self._best_at = found.counters.get("best_at")
            self._best = found.arrays(_BEST)["best"]
            self._save()

    def _evaluate(self, env_steps: int) -> None:
        weights, version = self._parts.store.read()
        policy = Policy(self._parts.built.update.policy, weights, self._parts.facts)
        episodes = self._config.eval_episodes
        score = self._next(policy, episodes)
        returns = score.returns
        if score.mean > self._best_mean:
            returns += self._next(policy, CONFIRM_ROUNDS * episodes).returns
        mean = float(np.mean(returns))
        better = mean > self._best_mean
        self._log.write(
            "eval",
            env_steps,
            {
                "mean_return": mean,
                "std": float(np.std(returns)),
                "episodes": len(returns),
                "length": score.mean_length,
                "updates": version,
                "best": better,
            },
        )
        checked = "" if len(returns) == episodes else " (a new best, checked)"
        if checked and not better:
            checked = " (seemed a new best, is not)"
        self._show.say(f"step {env_steps}: return {mean:.1f} over {len(returns)} episodes{checked}")
        if better:
            self._keep(mean, weights, env_steps)
        wanted = self._config.stop_at_return
        if wanted is not None and mean >= wanted:
            self._confirm(policy, wanted, env_steps)

    def _confirm(self, policy: Policy, wanted: float, env_steps: int) -> None:
        score = self._next(policy, self._config.final_eval_episodes)
        confirmed = score.mean >= wanted
        self._show.say(
            f"step {env_steps}: {score.mean:.1f} over {len(score.returns)} further episodes "
            f"{'confirms' if confirmed else 'does not confirm'} {wanted:g}"
        )
        if confirmed:
            self._keep(score.mean, policy.weights, env_steps)
            self._control.stop("return")

    def _keep(self, mean: float, weights: NDArray[np.float32], env_steps: int) -> None:
        self._best_mean, self._best, self._best_at = mean, weights, env_steps
        self._save()

    def _next(self, policy: Policy, episodes: int) -> Score:
        self._rounds += 1
        return self._play(policy, episodes, self._rounds)

    def _play(self, policy: Policy, episodes: int, number: int) -> Score:
        words = np.random.SeedSequence((self._config.seed, number)).generate_state(2)
        return play(policy, episodes, int(words[1] >> 1), stop=self._interrupted)

    def _interrupted(self) -> bool:
        return self._control.stop_reason not in (None, "return")

    def _save(self) -> None:
        if self._config.out is not None:
            self.best_policy().save(self._config.out / "policy")
