# SPDX-License-Identifier: MIT
"""Says what is going on where a command would be silent for long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

AFTER_S = 2.0
"""Seconds after which something is said."""


@contextlib.contextmanager
def told(text: str, say: Callable[[str], None]) -> Iterator[None]:
    """Calls `say(text)` once if the body takes longer than `AFTER_S`.

    Args:
        text: What the body does.
        say: Called from another thread; never after the body has ended.
    """
    lock, over = threading.Lock(), False

    def speak() -> None:
        with lock:
            if not over:
                say(text)

    timer = threading.Timer(AFTER_S, speak)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over = True
