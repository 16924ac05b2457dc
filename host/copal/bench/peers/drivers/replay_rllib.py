# SPDX-License-Identifier: MIT
"""RLlib's prioritized episode buffer, the one its present API uses.

Rows come in as pieces of episodes, as its environment runners deliver them. When the buffer is
full, each new episode evicts an old one, so inserts are timed over whole episodes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer

from . import replay
from .protocol import Reply, versions

EPISODE_STEPS = 192
"""Three pieces of 64 steps, or 192 of one."""

WARM_UPDATES = 40
OBS_SPACE = gymnasium.spaces.Box(-10, 10, (replay.OBS_SIZE,), np.float32)
ACTION_SPACE = gymnasium.spaces.Discrete(replay.ACTIONS)


class Episodes:
    """An endless supply of pieces of episodes of `EPISODE_STEPS` steps; `add` copies each.

    Args:
        generator: Source of the contents.
        n: Steps a piece; divides `EPISODE_STEPS`.
    """

    def __init__(self, generator: np.random.Generator, n: int) -> None:
        rows = replay.transitions(generator, EPISODE_STEPS + 1)
        self.pieces = [self._piece(rows, start, n) for start in range(0, EPISODE_STEPS, n)]

    @staticmethod
    def _piece(rows: replay.Columns, start: int, n: int) -> Any:
        piece = SingleAgentEpisode(
            observations=list(rows["obs"][start : start + n + 1]),
            actions=list(rows["action"][start : start + n]),
            rewards=list(rows["reward"][start : start + n]),
            infos=[{}] * (n + 1),
            observation_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            terminated=start + n == EPISODE_STEPS,
            t_started=start,
            len_lookback_buffer=0,
        )
        piece.to_numpy()
        return piece

    def next(self, i: int) -> Any:
        """The piece of call i; a new episode begins whenever the last one is complete."""
        at = i % len(self.pieces)
        if at == 0:
            name = uuid.uuid4().hex
            for piece in self.pieces:
                piece.id_ = name
        return self.pieces[at]


class Rllib(replay.ReplayPeer):
    """One `PrioritizedEpisodeReplayBuffer`."""

    versions = versions("ray", "numpy", "gymnasium", "torch")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.buffer = PrioritizedEpisodeReplayBuffer(capacity=rows, alpha=replay.ALPHA)
        whole = Episodes(self.generator, EPISODE_STEPS)
        for i in range(rows // EPISODE_STEPS + 1):
            self.buffer.add(whole.next(i))
        for _ in range(WARM_UPDATES):
            self._sample(1024)
            self.buffer.update_priorities(self._td_errors(1024))

    def _sample(self, n: int) -> object:
        return self.buffer.sample(num_items=n, n_step=1, gamma=0.99, beta=replay.BETA)

    def _td_errors(self, n: int) -> NDArray[np.float64]:
        # Float32 here would make every sum in its tree a float32 sum.
        return replay.td_errors(self.generator, n).astype(np.float64)

    def calls_together(self, op: str, n: int) -> int:
        """Whole episodes, since each new one evicts an old one."""
        if op == "insert":
            return EPISODE_STEPS // n
        return EPISODE_STEPS if op == "cycle" else 1

    def insert(self, n: int) -> Callable[[int], object]:
        """Adds pieces of episodes."""
        episodes = Episodes(self.generator, n)
        return lambda i: self.buffer.add(episodes.next(i))

    def sample(self, n: int) -> Callable[[int], object]:
        """Draws one-step episodes."""
        return lambda _: self._sample(n)

    def update(self, n: int) -> Callable[[int], object]:
        """Sets the priorities of the rows drawn last, which here are chosen beforehand."""
        occupied = self.rows - EPISODE_STEPS
        places = [
            (self.generator.integers(0, occupied, n).tolist(), self._td_errors(n))
            for _ in range(replay.PREPARED)
        ]

        def call(i: int) -> None:
            rows, td = places[i % replay.PREPARED]
            # What `sample` leaves behind: the buffer takes no slots, it updates those drawn last.
            # A slot that holds no row would be accepted, and break a later draw.
            table = self.buffer._indices  # noqa: SLF001
            self.buffer._last_sampled_indices = [table[row][2] for row in rows]  # noqa: SLF001
            self.buffer.update_priorities(td)

        return call

    def cycle(self, n: int) -> Callable[[int], object]:
        """Adds one step, draws n, and updates those drawn."""
        episodes = Episodes(self.generator, 1)
        td = [self._td_errors(n) for _ in range(replay.PREPARED)]

        def call(i: int) -> None:
            self.buffer.add(episodes.next(i))
            self._sample(n)
            self.buffer.update_priorities(td[i % replay.PREPARED])

        return call


def main(arguments: list[str], reply: Reply) -> None:
    """Measures RLlib's episode buffer."""
    replay.run(Rllib, arguments, reply)
