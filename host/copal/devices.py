# SPDX-License-Identifier: MIT
"""Devices of a backend by name, and the reason why one cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from copal.errors import BackendUnavailableError, UnknownNameError

Opener = TypeVar("Opener", bound=Callable[..., Any])


class DeviceTable(Generic[Opener]):
    """Which devices there are.

    Args:
        kinds: Name to what says why it cannot be used here (None: it can), and what opens it.
        hint: Of a name, what to do where it cannot be used, beside what the reason says.

    Attributes:
        kinds: As given.
        hint: As given.
    """

    def __init__(
        self,
        kinds: Mapping[str, tuple[Callable[[], str | None], Opener]],
        hint: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.kinds = dict(kinds)
        self.hint = hint

    def check(self, device: str) -> None:
        """Refuses a name that no device has.

        Raises:
            UnknownNameError: There is none of this name.
        """
        if device not in self.kinds:
            raise UnknownNameError.of("device", device, self.kinds)

    def unavailable(self, device: str) -> str | None:
        """None if `device` can be used here, else the reason and what to do.

        Raises:
            UnknownNameError: There is none of this name.
        """
        self.check(device)
        return self.kinds[device][0]()

    def require(self, device: str) -> Opener:
        """What opens `device`.

        Raises:
            UnknownNameError: There is no device of this name.
            BackendUnavailableError: It cannot be used here.
        """
        reason = self.unavailable(device)
        if reason is not None:
            raise BackendUnavailableError(
                "device", f"`{device}` usable here", reason, self.hint(device)
            )
        return self.kinds[device][1]

    def reasons(self) -> list[tuple[str, str | None]]:
        """Every device's name with None, or the reason why it cannot be used."""
        return [(device, self.unavailable(device)) for device in self.kinds]
