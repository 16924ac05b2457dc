# SPDX-License-Identifier: MIT
"""copal's replay inside other frameworks, in place of their own buffers.

Each module needs its framework installed and is imported on its own:

    copal.adapters.rllib      PrioritizedEpisodeReplayBuffer, and a DQN that trains on columns
    copal.adapters.sb3        PrioritizedReplayBuffer, and a DQN with importance weights
    copal.adapters.tianshou   PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer
    copal.adapters.torchrl    PrioritizedSampler, Storage
"""
