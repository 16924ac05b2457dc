# SPDX-License-Identifier: MIT
"""Checks that the framework that an adapter plugs into is there, and is one it knows."""

from __future__ import annotations

import importlib.util
from importlib import metadata

from copal.errors import CopalError


class PeerError(CopalError, ImportError):
    """The framework of an adapter is missing, or of a version that the adapter does not know."""

    exit_code = 3


def require(module: str, distribution: str, first: str, extra: str = "") -> None:
    """Raises unless a framework is installed in a version that the adapter was written for.

    Args:
        module: Name that is imported.
        distribution: Name that pip installs.
        first: Oldest version that fits, `major.minor`; its major version is the only one.
        extra: Extra of the distribution in brackets, or nothing.

    Raises:
        PeerError: It is missing or another version; the hint is the command that installs it.
    """
    major = int(first.split(".", maxsplit=1)[0])
    command = f'pip install "{distribution}{extra}>={first},<{major + 1}"'
    if importlib.util.find_spec(module) is None:
        raise PeerError(distribution, f"version {first} or later", "nothing installed", command)
    found = metadata.version(distribution)
    if not _numbers(first) <= _numbers(found) < (major + 1, 0):
        raise PeerError(
            distribution, f"a version from {first} to below {major + 1}", found, command
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor number of a version."""
    parts = version.split(".")[:2]
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts)
