# SPDX-License-Identifier: MIT
"""Values of profiles and plans, which people edit: of the right kind and range, or named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Data = Mapping[str, Any]
LARGEST = 1e12
"""No rate, time or interval is beyond it, nor beyond its inverse."""
DERIVED = 1e40
"""Likewise of what was computed from them."""


def whole(data: Data, key: str, least: int = 1) -> int:
    """A whole number.

    Args:
        data: What holds it.
        key: By which name.
        least: The smallest that is right.

    Raises:
        KeyError: It is missing.
        ValueError: It is of another kind, or smaller.
    """
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _wrong(key, f"an integer of at least {least}", value)
    return value


def number(data: Data, key: str, *, above_zero: bool = False, largest: float = LARGEST) -> float:
    """A number from 0 to `largest`.

    Args:
        data: What holds it.
        key: By which name.
        above_zero: Whether 0 is wrong, and anything below the inverse of `largest`.
        largest: The largest that is right.

    Raises:
        KeyError: It is missing.
        ValueError: It is of another kind, or out of range.
    """
    return _number(key, data[key], above_zero, largest)


def numbers(data: Data, key: str, *, above_zero: bool = False) -> tuple[float, ...]:
    """A list of such numbers; empty only where 0 is right.

    Raises:
        KeyError: It is missing.
        ValueError: It is no list, or one of them is wrong.
    """
    values = data[key]
    if not isinstance(values, list | tuple) or (above_zero and not values):
        raise _wrong(key, "a list of numbers", values)
    return tuple(_number(key, value, above_zero, LARGEST) for value in values)


def text(data: Data, key: str) -> str:
    """A string.

    Raises:
        KeyError: It is missing.
        ValueError: It is of another kind.
    """
    value = data[key]
    if not isinstance(value, str):
        raise _wrong(key, "a text", value)
    return value


def record(data: Data, key: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        KeyError: It is missing.
        ValueError: It is of another kind.
    """
    value = data[key]
    if not isinstance(value, Mapping):
        raise _wrong(key, "a JSON object", value)
    return dict(value)


def speed_settings(data: Data) -> dict[str, Any]:
    """The settings of a run; those that a prediction counts with are checked.

    Raises:
        KeyError: They are missing.
        ValueError: They are no JSON object, or one of them is wrong.
    """
    found = record(data, "settings")
    for name in ("num_envs", "batch_size"):
        if found.get(name) is not None:
            whole(found, name)
    return found


def machine(data: Data) -> dict[str, Any]:
    """The machine; what it is compared by can be looked up.

    Raises:
        KeyError: It is missing.
        ValueError: It is no JSON object, or its versions are none.
    """
    found = record(data, "machine")
    if "versions" in found:
        record(found, "versions")
    return found


def _number(key: str, value: Any, above_zero: bool, largest: float) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    least = 1 / largest if above_zero else 0
    if not plain or not (least <= value <= largest):
        raise _wrong(key, f"a number from {least:g} to {largest:g}", value)
    return float(value)


def _wrong(key: str, expected: str, value: Any) -> ValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return ValueError(f"`{key}` = {shown}, which has to be {expected}")
