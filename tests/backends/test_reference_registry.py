# SPDX-License-Identifier: MIT
"""Backends by name: which there are, which can be used, and why not."""

from __future__ import annotations

import gymnasium as gym
import pytest

from copal import algorithms, backends
from copal.algorithms import Built
from copal.algorithms.dqn import DqnConfig
from copal.backends import LearnerState
from copal.errors import BackendUnavailableError, UnknownNameError


@pytest.fixture(scope="module")
def built() -> Built:
    """A small DQN."""
    spaces = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
    return algorithms.get("dqn").build(*spaces, DqnConfig(hidden=(4,)))


def test_every_backend_is_listed_with_its_reason() -> None:
    """Those that need nothing special can be used, the planned ones say that they are planned."""
    listed = dict(backends.devices())
    assert backends.names() == ("cpu", "gpu", "fpga", "torch", "reference")
    assert tuple(name for name in listed if ":" not in name) == backends.names()
    assert listed["torch"] is None
    assert listed["reference"] is None
    assert str(listed["gpu:cuda"]) in str(listed["gpu"])
    assert listed["gpu:emulate"] is None
    assert listed["fpga"] == listed["fpga:sim"] or str(listed["fpga:sim"]) in str(listed["fpga"])
    assert listed["fpga:model"] is None
    assert "pynq" in str(listed["fpga:pynq"])


@pytest.mark.parametrize("name", ["gpu"])
def test_unavailable_backend_is_refused_with_the_reason(name: str, built: Built) -> None:
    """Asked for by name or by force: never silently replaced, and exit code 3."""
    backend = backends.get(name)
    with pytest.raises(BackendUnavailableError) as caught:
        backends.require(name)
    assert str(backend.unavailable()) in str(caught.value)
    assert "--device emulate" in caught.value.hint
    assert caught.value.exit_code == 3
    state = LearnerState.initial(built.update, built.parameters)
    with pytest.raises(BackendUnavailableError):
        backend.learner(built.update, state, batch_size=4, learners=1)
    assert backend.supports(built.update.policy) is None


@pytest.mark.parametrize("name", ["torch", "reference"])
def test_available_backend_supports_dqn(name: str, built: Built) -> None:
    """`require` gives what `get` gives."""
    backend = backends.require(name)
    assert backend.name == name
    assert backend.supports(built.update.phases[0].program) is None


def test_unknown_backend_lists_near_matches() -> None:
    """A typing mistake is answered with what it may have meant."""
    with pytest.raises(UnknownNameError, match="did you mean `torch`"):
        backends.get("tourch")
