# SPDX-License-Identifier: MIT
"""Settings that only the algorithm knows: `name=value`, read by the types of its dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from copal.algorithms import Algorithm
from copal.config import TrainConfig
from copal.errors import ConfigError, UnknownNameError

_SHARED = frozenset(f.name for f in dataclasses.fields(TrainConfig))
_SWITCH = {"true": True, "false": False}


def names(algorithm: Algorithm) -> tuple[str, ...]:
    """Settings of the algorithm's dataclass that TrainConfig lacks and its name leaves open."""
    fixed = getattr(algorithm, "fixed", None)
    decided = fixed if isinstance(fixed, Mapping) else {}
    fields = dataclasses.fields(algorithm.config)
    return tuple(f.name for f in fields if f.init and f.name not in {*_SHARED, *decided})


def parse(algorithm: Algorithm, texts: Iterable[str]) -> dict[str, Any]:
    """Setting to value.

    Args:
        algorithm: Whose settings they are.
        texts: `name=value` each. A tuple is written `1,2`, nothing is `None`.

    Raises:
        UnknownNameError: The algorithm has no such setting; the near matches are listed.
        ConfigError: A name is one of TrainConfig, or a value is not of its field's type.
    """
    known, kinds = names(algorithm), _kinds(algorithm)
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in _SHARED:
            hint = f"it is a setting of its own: --{name.replace('_', '-')} {value}"
            raise ConfigError("algo_settings", "settings that TrainConfig lacks", f"`{name}`", hint)
        if name not in known:
            if not known:
                got = f"`{name}`"
                raise UnknownNameError("algo_settings", f"none, `{algorithm.name}` has none", got)
            raise UnknownNameError.of("algo_settings", name, known)
        try:
            found[name] = _value(kinds.get(name), value)
        except (TypeError, ValueError) as e:
            expected = f"`{name}` as {_described(kinds.get(name))}"
            raise ConfigError("algo_settings", expected, f"`{value}`", _hint(e)) from e
    return found


def recorded(algorithm: Algorithm, texts: Sequence[str]) -> tuple[str, ...]:
    """All of the algorithm's own settings that text can express, those not in `texts` as they are.

    Args:
        algorithm: Whose settings they are.
        texts: `name=value` each; the last one of a name counts.

    Raises:
        UnknownNameError: See `parse`.
        ConfigError: See `parse`.
    """
    given = parse(algorithm, texts)
    kinds, found = _kinds(algorithm), []
    for field in dataclasses.fields(algorithm.config):
        if field.name not in names(algorithm):
            continue
        value = given.get(field.name, _default(field))
        text = _text(value)
        try:
            same = bool(_value(kinds.get(field.name), text) == value)
        except (TypeError, ValueError):
            same = False
        if same:
            found.append(f"{field.name}={text}")
    return tuple(found)


def _kinds(algorithm: Algorithm) -> dict[str, Any]:
    """Setting to type; without those of a dataclass whose types exist for type checkers only."""
    try:
        return typing.get_type_hints(algorithm.config)
    except (NameError, TypeError, AttributeError):
        return {}


def _described(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _hint(error: Exception) -> str:
    return str(error) if isinstance(error, TypeError) else ""


def _value(kind: Any, text: str) -> Any:
    """`text` as a `kind`.

    Raises:
        ValueError: It is none.
        TypeError: Text cannot express such a thing.
    """
    choices = get_args(kind)
    if kind is type(None):
        if text.lower() != "none":
            raise ValueError(text)
        return None
    if kind is bool:
        if text.lower() not in _SWITCH:
            raise ValueError(text)
        return _SWITCH[text.lower()]
    if kind in (int, float, str, Path):
        return kind(text)
    if get_origin(kind) is Literal:
        return _named(choices, text)
    if get_origin(kind) in (Union, types.UnionType):
        return _first(sorted(choices, key=lambda c: c is not type(None)), text)
    if get_origin(kind) is tuple and choices:
        parts = [p.strip() for p in text.split(",")] if text else []
        if choices[-1] is Ellipsis:
            choices = choices[:1] * len(parts)
        return tuple(_value(c, part) for c, part in zip(choices, parts, strict=True))
    raise TypeError("it cannot be given as text: set its default in the algorithm's dataclass")


def _named(choices: Iterable[Any], text: str) -> Any:
    for choice in choices:
        if str(choice) == text:
            return choice
    raise ValueError(text)


def _first(kinds: Iterable[Any], text: str) -> Any:
    for kind in kinds:
        try:
            return _value(kind, text)
        except ValueError:
            continue
    raise ValueError(text)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_text(v) for v in value)
    return str(value)
