# SPDX-License-Identifier: MIT
"""A headless Chromium, driven through the pipe of its debugging protocol."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_S = 120.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """Path of a Chromium; None: there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched(program: str, profile: Path) -> Iterator[Browser]:
    """A browser that ends with the block.

    Args:
        program: Path of a Chromium.
        profile: An empty folder.
    """
    (ours_in, theirs_out), (theirs_in, ours_out) = _pipe(), _pipe()
    # Not `3<&`: some shells take one digit only.
    command = f'exec "$@" 3</proc/self/fd/{theirs_in} 4>/proc/self/fd/{theirs_out}'
    process = subprocess.Popen(
        ["/bin/sh", "-c", command, "sh", program, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_in, ours_out)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        os.close(ours_in)
        os.close(ours_out)


def _pipe() -> tuple[int, int]:
    """Ends to read from and to write to, above the two numbers that Chromium wants."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Browser:
    """Sends commands, keeps what comes in between.

    Args:
        source: Where answers and events come from.
        sink: Where commands go.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink, self._buffer, self._sent = source, sink, b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of one command.

        Raises:
            RuntimeError: The browser refuses it, or has ended.
            TimeoutError: It does not answer.
        """
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._sink, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._sent:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                found: dict[str, Any] = answer["result"]
                return found

    def wait(self, method: str, session: str) -> None:
        """Returns once the event has come; it may have come before."""
        while not any(
            e.get("method") == method and e.get("sessionId") == session for e in self.events
        ):
            self.events.append(self._next())

    def open(self, path: Path, width: int = 1200, height: int = 900) -> Page:
        """Loads the file at `path` into a new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable", session)
        page = Page(self, session)
        page.resize(width, height)
        self.call("Page.navigate", session, url=path.as_uri())
        self.wait("Page.loadEventFired", session)
        return page

    def _next(self) -> dict[str, Any]:
        limit = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._buffer:
            if not select.select([self._source], [], [], max(0.0, limit - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            received = os.read(self._source, 1 << 20)
            if not received:
                raise RuntimeError("the browser has ended")
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Page:
    """One tab.

    Args:
        browser: What it is a tab of.
        session: Name of the connection to it.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command for this tab."""
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """Value of a JavaScript expression.

        Raises:
            RuntimeError: It throws.
        """
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        """Makes the window so many pixels large."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, scheme: str) -> None:
        """Lets the system prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def centre(self, selector: str) -> tuple[float, float]:
        """Where the first match is in the window, after scrolling to it."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        return box[0], box[1]

    def point(self, x: float, y: float) -> None:
        """Moves the mouse there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Clicks the middle of the first match."""
        x, y = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def complaints(self) -> list[str]:
        """Exceptions and whatever the console says."""
        return [
            json.dumps(e["params"])
            for e in self._own()
            if e["method"]
            in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        ]

    def requested(self) -> list[str]:
        """Addresses that were fetched."""
        return [
            e["params"]["request"]["url"]
            for e in self._own()
            if e["method"] == "Network.requestWillBeSent"
        ]

    def _own(self) -> list[dict[str, Any]]:
        # An answer that comes after all events so far.
        self.value("1")
        return [e for e in self._browser.events if e.get("sessionId") == self._session]
