# SPDX-License-Identifier: MIT
"""RLlib's prioritized episode buffer over copal's replay, and a DQN that trains on its columns.

The buffer alone, named by its dotted path (RLlib 2.60 takes no class there):

    config.training(replay_buffer_config={
        "type": "copal.adapters.rllib.PrioritizedEpisodeReplayBuffer",
        "capacity": 1_000_000, "alpha": 0.6, "beta": 0.4,
    })

RLlib makes an object of every row that it samples, and takes it apart again. `DQNConfig` of this
module, used like RLlib's own, hands the sampled columns to the learner as they are.
"""

from copal.adapters._peer import require

require("ray", "ray", "2.60", "[rllib]")

from copal.adapters.rllib.buffer import PrioritizedEpisodeReplayBuffer
from copal.adapters.rllib.dqn import DQN, DQNConfig

__all__ = ["DQN", "DQNConfig", "PrioritizedEpisodeReplayBuffer"]
