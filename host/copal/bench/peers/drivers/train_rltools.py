# SPDX-License-Identifier: MIT
"""RLtools' SAC through a Python Gymnasium environment; its C++ is compiled for the sizes asked.

It compiles with `-O3 -march=native -ffast-math`, takes its matrix products from MKL, and draws
uniformly. One step is one environment step and one update of both critics, of the actor and of the
temperature.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import rltools
from gymnasium.wrappers import RescaleAction

from .protocol import Reply, versions
from .training import Clock, Settings, parser, settings

NEVER_STEPS = 10**8
DISTRIBUTIONS = {"mkl": "mkl", "openblas": "scipy-openblas32"}


def build(chosen: Settings, library: str) -> Any:
    """The compiled module for the settings; compiles for half a minute unless it is cached.

    Args:
        chosen: The settings.
        library: Of the matrix products; only a part of the name under which it is cached.

    Raises:
        ValueError: RLtools cannot do what is asked.
    """
    if chosen.algo != "sac" or len(set(chosen.hidden)) != 1:
        raise ValueError("RLtools is measured with sac and hidden layers of equal width")

    def make() -> Any:
        env = RescaleAction(gymnasium.make(chosen.env), np.float32(-1), np.float32(1))
        env.reset(seed=chosen.seed)
        return env

    width, layers, rows = chosen.hidden[0], len(chosen.hidden) + 1, chosen.batch_size
    return rltools.SAC(
        make,
        interface_name=f"copal_{library}_h{width}x{layers}b{rows}s{chosen.learning_starts}",
        GAMMA=chosen.gamma,
        ACTOR_HIDDEN_DIM=width,
        ACTOR_NUM_LAYERS=layers,
        ACTOR_BATCH_SIZE=rows,
        ACTOR_TRAINING_INTERVAL=chosen.update_interval,
        CRITIC_HIDDEN_DIM=width,
        CRITIC_NUM_LAYERS=layers,
        CRITIC_BATCH_SIZE=rows,
        CRITIC_TRAINING_INTERVAL=chosen.update_interval,
        CRITIC_TARGET_UPDATE_INTERVAL=chosen.update_interval,
        CRITIC_POLYAK=1.0 - chosen.target_tau,
        OPTIMIZER_ALPHA=chosen.learning_rate,
        N_WARMUP_STEPS=chosen.learning_starts,
        REPLAY_BUFFER_CAP=chosen.buffer_size,
        STEP_LIMIT=NEVER_STEPS,
        enable_evaluation=False,
        COLLECT_EPISODE_STATS=False,
    )


def measure(arguments: list[str], reply: Reply, library: str) -> None:
    """Measures RLtools' rate with the products of one library."""
    options = parser(__doc__).parse_args(arguments)
    chosen = settings(options)
    state = build(chosen, library).State(chosen.seed)
    found = versions("rltools", DISTRIBUTIONS[library], "gymnasium", "numpy")
    clock = Clock(chosen.warm_steps, options.ops, found, reply)
    steps, before = 0, chosen.learning_starts
    while not clock.step(steps, max(0, steps - before) // chosen.update_interval):
        state.step()
        steps += 1


def main(arguments: list[str], reply: Reply) -> None:
    """Measures RLtools' rate with MKL, its own choice."""
    measure(arguments, reply, "mkl")
