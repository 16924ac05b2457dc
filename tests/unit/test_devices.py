# SPDX-License-Identifier: MIT
"""Devices by name."""

from __future__ import annotations

import pytest

from copal.config import DEVICES
from copal.devices import DeviceTable
from copal.errors import BackendUnavailableError, UnknownNameError
from copal.fpga import open as fpga
from copal.gpu import open as gpu


@pytest.mark.parametrize(("backend", "table"), [("fpga", fpga.TABLE), ("gpu", gpu.TABLE)])
def test_settings_know_the_devices_there_are(backend: str, table: DeviceTable) -> None:
    """In the same order: the first one is the default."""
    assert DEVICES[backend] == tuple(table.kinds)


def test_a_device_is_opened_or_says_why_not() -> None:
    """With the table's hint; a name that is no device has near matches."""
    table = DeviceTable(
        {"here": (lambda: None, lambda: 5), "away": (lambda: "it is off", lambda: 6)},
        lambda device: f"instead of {device} use here",
    )
    assert table.require("here")() == 5
    assert table.reasons() == [("here", None), ("away", "it is off")]
    with pytest.raises(BackendUnavailableError, match=r"it is off[^$]*instead of away use here"):
        table.require("away")
    for ask in (table.check, table.unavailable, table.require):
        with pytest.raises(UnknownNameError, match="here"):
            ask("heer")
