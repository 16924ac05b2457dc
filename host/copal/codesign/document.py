# SPDX-License-Identifier: MIT
"""The files of profiles and plans: JSON with a version, read with care, of one machine."""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import Self

from copal.errors import PlanError, reason
from copal.runtime import files

SCHEMA = 1
"""Version of the files."""
LARGEST_FILE = 2**26
"""Characters of a file that are read."""
COMPARED = ("cpu", "cores", "isa", "copal")
"""What makes two machines the same for a profile or a plan."""
_WRITERS = {"profile": "`copal profile` writes one", "plan": "`copal allocate` writes one"}


@dataclasses.dataclass(frozen=True)
class Document(abc.ABC):
    """A frozen dataclass that is kept as a file."""

    kind: ClassVar[str]
    """`profile` or `plan`: names it in messages, and its version in the file."""

    @classmethod
    @abc.abstractmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """The document from the JSON values of its version.

        Raises:
            KeyError: Something is missing.
            TypeError, ValueError, AttributeError: Something is of another kind.
        """

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {f"copal_{self.kind}": SCHEMA, **dataclasses.asdict(self)}

    def save(self, path: Path) -> None:
        """Replaces the file at `path` in one step.

        Raises:
            PlanError: It cannot be written.
        """
        write(path, self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`.

        Raises:
            PlanError: It is of another version, or something is missing or of another kind.
        """
        version = data.get(f"copal_{cls.kind}")
        if version != SCHEMA:
            got = "none" if version is None else repr(version)
            raise PlanError(f"copal_{cls.kind}", f"version {SCHEMA}", got, _WRITERS[cls.kind])
        try:
            return cls.parse(data)
        except PlanError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            hint = _WRITERS[cls.kind]
            raise PlanError(cls.kind, f"a whole {cls.kind}", said(e), hint) from e

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file.

        Raises:
            PlanError: There is none, it is damaged, or of another version.
        """
        return cls.from_dict(_read(path, cls.kind))


def _read(path: Path, what: str) -> Mapping[str, Any]:
    """The JSON object in the file at `path`.

    Args:
        path: The file.
        what: `profile` or `plan`, for messages.

    Raises:
        PlanError: There is none, or it is damaged.
    """
    hint = _WRITERS[what]
    try:
        data = json.loads(_text(path))
    except (OSError, ValueError, RecursionError) as e:
        raise PlanError(what, f"a readable {what} in `{path}`", reason(e), hint) from e
    if not isinstance(data, dict):
        raise PlanError(what, f"a {what} in `{path}`", f"JSON of a {type(data).__name__}", hint)
    return data


def _text(path: Path) -> str:
    """Content of a file; of a device without an end no more than `LARGEST_FILE`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large, or no text.
    """
    with path.open(encoding="utf-8") as file:
        text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise ValueError(f"more than {LARGEST_FILE:,} characters")
    return text


def said(error: Exception) -> str:
    """What is wrong with a file, of an error of whoever read it."""
    if isinstance(error, KeyError):
        return f"no `{error.args[0]}`"
    return str(error) if isinstance(error, ValueError) else repr(error)


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON object, making the folder if needed.

    Raises:
        PlanError: It cannot be written.
    """
    if path.exists() and not path.is_file():  # a device would be replaced
        raise PlanError("out", "a file, or a name that is free", f"`{path}`", "choose another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, dict(data))
    except OSError as e:
        raise PlanError(
            "out", "a file that can be written", reason(e), "make room, or choose another"
        ) from e


def differences(machine: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What sets the machine of a profile apart from another one, a short text each.

    Args:
        machine: As the profile has it.
        here: As `copal.runtime.machine.describe` tells.
    """
    mine, other = _identity(here), _identity(machine)
    return [
        f"{name}: `{other[name]}` there, `{mine[name]}` here"
        for name in COMPARED
        if other[name] != mine[name]
    ]


def refuse_another(what: str, machine: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuses a profile or plan of another machine or version; one of no machine at all is taken.

    Args:
        what: `profile` or `plan`.
        machine: As the file has it.
        here: As `copal.runtime.machine.describe` tells.

    Raises:
        PlanError: They differ.
    """
    found = differences(machine, here) if machine else []
    if found:
        raise PlanError(
            what,
            "one of this machine and this version of copal",
            "; ".join(found),
            "measure here with `copal profile`, or take it as it is: --force",
        )


def _identity(machine: Mapping[str, Any]) -> dict[str, Any]:
    versions = machine.get("versions", {})
    return {**{n: machine.get(n) for n in COMPARED}, "copal": versions.get("copal")}
