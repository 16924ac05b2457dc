# SPDX-License-Identifier: MIT
"""What is said where a command would be silent for long."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from copal.runtime import slow


def test_said_once_the_body_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """And while it still runs."""
    monkeypatch.setattr(slow, "AFTER_S", 0.0)
    said = threading.Event()
    heard: list[str] = []

    def say(text: str) -> None:
        heard.append(text)
        said.set()

    with slow.told("preparing", say):
        assert said.wait(60)
    assert heard == ["preparing"]


def test_nothing_is_said_of_what_is_quick_or_fails() -> None:
    """The timer goes with the body."""
    say = Mock()
    with slow.told("preparing", say):
        pass
    with pytest.raises(KeyError), slow.told("preparing", say):
        raise KeyError
    say.assert_not_called()
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer) and not
                t.finished.is_set()]  # fmt: skip
