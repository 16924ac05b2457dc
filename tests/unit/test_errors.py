# SPDX-License-Identifier: MIT
"""The typed errors say what was expected, what was got, and how to go on."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from copal.errors import (
    BackendUnavailableError,
    ConfigError,
    CopalError,
    SchemaError,
    UnknownNameError,
    reason,
)


def test_message_names_field_expected_got_and_hint() -> None:
    """The four parts appear in this order, the hint on a line of its own."""
    text = str(SchemaError("obs", "float32", "float64", "use `.astype('float32')`"))
    assert text == "`obs`: expected float32, got float64\nhint: use `.astype('float32')`"


@pytest.mark.parametrize(
    ("name", "near"), [("CartPole-v2", "CartPole-v1"), ("LunarLander", "LunarLander-v3")]
)
def test_unknown_name_lists_near_matches(name: str, near: str) -> None:
    """The hint proposes the names that look like what was typed."""
    known = ["CartPole-v1", "LunarLander-v3", "Pendulum-v1"]
    assert near in UnknownNameError.of("env", name, known).hint


def test_unknown_name_without_near_match_lists_all() -> None:
    """A short list of allowed names is shown whole."""
    error = UnknownNameError.of("algo", "zzz", ["dqn", "double-dqn"])
    assert "double-dqn, dqn" in str(error)
    assert error.hint == ""


def test_exit_codes() -> None:
    """1: the job failed, 2: usage, 3: the backend is not available."""
    assert CopalError.exit_code == 1
    assert ConfigError.exit_code == 2
    assert BackendUnavailableError.exit_code == 3


def test_errors_survive_pickling() -> None:
    """Worker processes can hand them on."""
    error = pickle.loads(pickle.dumps(ConfigError("alpha", "0 to 1", "2", "use 0.6")))
    assert (type(error), error.field, error.got) == (ConfigError, "alpha", "2")


def test_reasons_are_words(tmp_path: Path) -> None:
    """What the system says and of which file, without its number; other exceptions as they are."""
    with pytest.raises(OSError, match="No such file") as caught:
        (tmp_path / "none").read_text()
    assert reason(caught.value) == f"No such file or directory: `{tmp_path / 'none'}`"
    assert reason(OSError("a socket, closed")) == "a socket, closed"
    assert reason(ValueError("7")) == "7"
