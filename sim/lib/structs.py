# SPDX-License-Identifier: MIT
"""Bits of DSLX structs, read from their source: the first field has the high bits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


class Structs:
    """The structs of one DSLX file.

    Args:
        path: The file.
        types: Bits of types that are declared elsewhere, `common::Lane` for instance.
    """

    def __init__(self, path: Path, types: Mapping[str, int]) -> None:
        text = re.sub(r"//.*", "", path.read_text())
        self.types = types
        self.fields = {
            name: re.findall(r"(\w+)\s*:\s*([\w:]+)", body)
            for name, body in re.findall(r"struct (\w+) \{(.*?)\}", text, re.S)
        }

    def bits(self, kind: str) -> int:
        """Bits of a type."""
        plain = kind.split("::")[-1]
        if plain in self.fields:
            return sum(self.bits(k) for _, k in self.fields[plain])
        if kind in self.types:
            return self.types[kind]
        found = re.fullmatch(r"[us](\d+)", kind)
        assert found, f"unknown type {kind}"
        return int(found[1])

    def pack(self, kind: str, values: Mapping[str, object]) -> int:
        """A struct as one number; fields that are not given are zero."""
        word = 0
        for name, of in self.fields[kind.split("::")[-1]]:
            value, bits = values.get(name, 0), self.bits(of)
            number = self.pack(of, value) if isinstance(value, Mapping) else int(str(value))
            word = word << bits | number & (1 << bits) - 1
        return word

    def unpack(self, kind: str, word: int) -> dict[str, int]:
        """The fields of a struct; inner structs as numbers."""
        out, at = {}, self.bits(kind)
        for name, of in self.fields[kind.split("::")[-1]]:
            at -= self.bits(of)
            out[name] = word >> at & (1 << self.bits(of)) - 1
        return out
