# SPDX-License-Identifier: MIT
"""A device that is closed while a thread is inside it."""

from __future__ import annotations

import contextlib
import threading

import pytest

from copal.errors import FpgaError
from copal.fpga.in_use import InUse

LIMIT_S = 60.0


def test_what_nobody_is_in_is_freed_at_once() -> None:
    """Once, however often it is closed; calls are refused from then on."""
    freed: list[int] = []
    use = InUse(lambda: freed.append(1))
    with use, use:
        pass
    assert not freed
    use.close()
    use.close()
    assert freed == [1]
    with pytest.raises(FpgaError, match="one that was closed"), use:
        pass
    assert freed == [1]


def test_the_last_call_frees_what_was_closed_under_it() -> None:
    """Another thread's calls come to their end; one that fails leaves, too."""
    freed: list[str] = []
    use = InUse(lambda: freed.append(threading.current_thread().name))
    entered, closed = threading.Event(), threading.Event()

    def call() -> None:
        with contextlib.suppress(ValueError), use:
            entered.set()
            closed.wait(LIMIT_S)
            raise ValueError("a call that fails")

    thread = threading.Thread(target=call, name="inside", daemon=True)
    thread.start()
    assert entered.wait(LIMIT_S)
    use.close()
    assert use.closed
    assert not freed
    closed.set()
    thread.join(LIMIT_S)
    assert freed == ["inside"]
