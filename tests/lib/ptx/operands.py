# SPDX-License-Identifier: MIT
"""Operands: functions that read a register, constant, symbol or special register for some lanes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptx.kinds import DTYPES, Array, Lanes, PtxError, cast
from ptx.parse import Kernel

if TYPE_CHECKING:
    from ptx.machine import Machine

Source = Callable[["Machine", Lanes], Array]
Target = Callable[["Machine", Lanes, Array], None]


def source(kernel: Kernel, text: str, kind: str) -> Source:
    """What reads an operand.

    Args:
        kernel: Whose operand it is.
        text: As written.
        kind: PTX type that the instruction reads it as.

    Returns:
        A function of machine and lanes that gives one value a lane, or one for all.
    """
    dtype = DTYPES[kind]
    if text.startswith("%"):
        return _special(text, dtype) if _is_special(kernel, text) else _register(text, dtype)
    if text in kernel.symbols:
        return _symbol(kernel, text, dtype)
    constant = _constant(text, dtype)
    return lambda _machine, _lanes: constant


def target(kernel: Kernel, text: str) -> Target:
    """What writes a register: a function of machine, lanes and values; `_` takes none."""
    if text == "_":
        return lambda _machine, _lanes, _values: None
    dtype = _declared(kernel, text)
    poison = np.frombuffer(b"\xff" * dtype.itemsize, dtype)[0]

    def write(machine: Machine, lanes: Lanes, values: Array) -> None:
        values = cast(values, dtype)
        if lanes is None:
            machine.registers[text] = values
            return
        old = machine.registers.get(text)
        if old is None or len(old) != machine.lanes:
            full = np.empty(machine.lanes, dtype)
            full[:] = poison if old is None else old
            machine.registers[text] = old = full
        old[lanes] = values

    return write


def vector(text: str) -> list[str]:
    """The parts of `{a, b}`, or the operand alone."""
    return [p.strip() for p in text.strip("{}").split(",")] if text.startswith("{") else [text]


def address(kernel: Kernel, text: str) -> tuple[str, Source]:
    """Space that the base of `[base+offset]` lies in, if it is a symbol, and what computes it."""
    match = re.fullmatch(r"\[\s*([^+\s\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", text)
    if match is None:
        raise PtxError(f"an address was expected: {text}")
    base, offset = match.group(1), int(match.group(2) or "0", 0)
    space = kernel.symbols[base].space if base in kernel.symbols else ""
    kind = f"s{8 * _declared(kernel, base).itemsize}" if base.startswith("%") else "s64"
    read = source(kernel, base, kind)

    def compute(machine: Machine, lanes: Lanes) -> Array:
        return read(machine, lanes).astype(np.int64) + offset

    return space, compute


def _register(text: str, dtype: np.dtype[np.generic]) -> Source:
    def read(machine: Machine, lanes: Lanes) -> Array:
        try:
            value = machine.registers[text]
        except KeyError:
            raise PtxError(f"register {text} is read before it is written") from None
        if lanes is not None and len(value) != 1:
            value = value[lanes]
        return cast(value, dtype)

    return read


def _special(text: str, dtype: np.dtype[np.generic]) -> Source:
    def read(machine: Machine, lanes: Lanes) -> Array:
        if text not in machine.special:
            raise PtxError(f"special register {text} is not interpreted")
        value = machine.special[text]
        return cast(value if lanes is None or len(value) == 1 else value[lanes], dtype)

    return read


def _symbol(kernel: Kernel, text: str, dtype: np.dtype[np.generic]) -> Source:
    symbol = kernel.symbols[text]
    if symbol.space == "global":
        return lambda machine, _lanes: np.array([machine.variables[symbol.offset]], dtype)
    place = np.array([symbol.offset], dtype)
    return lambda _machine, _lanes: place


def _constant(text: str, dtype: np.dtype[np.generic]) -> Array:
    if text[:2].lower() == "0f":
        return cast(np.array(struct.unpack(">f", bytes.fromhex(text[2:])), np.float32), dtype)
    if text[:2].lower() == "0d":
        return cast(np.array(struct.unpack(">d", bytes.fromhex(text[2:])), np.float64), dtype)
    bits = 8 * dtype.itemsize
    value = int(text.rstrip("U"), 0) & ((1 << bits) - 1)
    if dtype.kind == "b":
        return np.array([value != 0])
    return np.array([value], f"u{dtype.itemsize}").view(dtype)


def _declared(kernel: Kernel, register: str) -> np.dtype[np.generic]:
    prefix = re.match(r"%[A-Za-z_]+", register)
    assert prefix is not None
    return kernel.registers[prefix.group()]


def _is_special(kernel: Kernel, text: str) -> bool:
    prefix = re.match(r"%[A-Za-z_]+", text)
    return prefix is None or prefix.group() not in kernel.registers
