# SPDX-License-Identifier: MIT
"""RLlib's DQN with the episodes left out between the buffer and the learner."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.dqn import DQN as PeerDQN
from ray.rllib.algorithms.dqn import DQNConfig as PeerConfig
from ray.rllib.policy.sample_batch import MultiAgentBatch

from copal.adapters.rllib.buffer import PrioritizedEpisodeReplayBuffer
from copal.errors import ConfigError

BUFFER = "copal.adapters.rllib.PrioritizedEpisodeReplayBuffer"


class DQNConfig(PeerConfig):
    """RLlib's configuration of DQN, with copal's buffer in it.

    Args:
        algo_class: As in RLlib; None: the `DQN` of this module.
    """

    def __init__(self, algo_class: Any = None) -> None:
        super().__init__(algo_class=algo_class or DQN)
        self.replay_buffer_config = {
            "type": BUFFER,
            "capacity": 50_000,
            "alpha": 0.6,
            "beta": 0.4,
        }


class DQN(PeerDQN):
    """RLlib's DQN, whose learner takes sampled columns and not episodes.

    Learner connectors work on episodes and are left out, so a configuration with some of its own
    is refused.
    """

    @classmethod
    def get_default_config(cls) -> DQNConfig:
        """The configuration to start from."""
        return DQNConfig()

    def setup(self, config: Any) -> None:
        """Builds everything, and joins the buffer's columns to the learner.

        Raises:
            ConfigError: The buffer is another one, the module is recurrent, or there are learner
                connectors.
        """
        super().setup(config)
        buffer = self.local_replay_buffer
        if not isinstance(buffer, PrioritizedEpisodeReplayBuffer):
            found = type(buffer).__name__
            raise ConfigError("replay_buffer_config", BUFFER, found, f'set "type": "{BUFFER}"')
        if getattr(self.config, "_learner_connector", None) is not None:
            hint = "use RLlib's DQN with this buffer, or drop the connector"
            raise ConfigError("learner_connector", "none", "one", hint)
        if self._module_is_stateful:
            raise ConfigError("rl_module", "one without a state", "a recurrent one")
        buffer.columns = True
        update = self.learner_group.update

        def update_from_columns(*, episodes: Any = None, **kwargs: Any) -> Any:
            if isinstance(episodes, MultiAgentBatch):
                return update(batch=episodes, **kwargs)
            return update(episodes=episodes, **kwargs)

        self.learner_group.update = update_from_columns
