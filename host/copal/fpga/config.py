# SPDX-License-Identifier: MIT
"""What an engine is built with: array size, lanes, formats, memory depths, pipeline stages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isqrt

from copal.config import FPGA_LANES
from copal.errors import ConfigError
from copal.fpga.isa import FIELDS, HEAD

ABI = 1
ID = 0x434F504C

MOST_SUM_BITS = 48
"""What the adder behind a multiplier has."""

#: Pipeline stages asked of XLS, a module. `float` lanes are deep so that adders reach the clock.
STAGES: Mapping[str, int] = {
    "decode": 3,
    "seq": 1,
    "rotate": 1,
    "row": 2,
    "drain": 1,
    "pick": 2,
    "post": 6,
    "skew": 1,
    "ranges": 2,
    "gather": 2,
    "squares": 5,
    "shrink": 2,
    "vec": 34,
    "adam": 134,
}


@dataclass(frozen=True)
class Depths:
    """Words of every memory; any number from 1 to 2^20."""

    code: int = 256
    """Instructions."""
    vector: int = 1024
    """Words of V, each one column of P rows."""
    a: int = 4096
    """Rows of a bank of A: weights, gradients."""
    b: int = 4096
    """Rows of a bank of B: inputs of layers, gradients."""
    parameters: int = 2048
    """Words of each of W, T, M, S and G."""
    bias: int = 64
    """Words of BIAS and of GB."""
    mask: int = 4096
    """Words of MASK."""
    range: int = 128
    """Entries of RANGE, at most 255."""


@dataclass(frozen=True)
class EngineConfig:
    """Parameters of one generated engine.

    Raises:
        ConfigError: A value is out of range or does not go with another one.
    """

    array_size: int = 8
    """P: the array has P x P lanes; a power of two from 4 to 32."""
    a_bits: int = 18
    """W: bits of the operands in A, weights and gradients; 16 or 18, a port of a multiplier."""
    b_bits: int = 22
    """WB: bits of the operands in B, inputs of layers; from W to 25, the wider port."""
    sum_bits: int = 48
    """ACC: bits of a lane's sum; W + WB plus the logarithm of the longest sum."""
    vector_lanes: int = 4
    """VL: float32 lanes of the vector unit, a power of two up to P."""
    adam_lanes: int = 4
    """AL: float32 lanes of the optimiser, a power of two from 2 to P / 2."""
    functions: bool = True
    """Whether the vector lanes have exp, log and tanh."""
    depths: Depths = field(default_factory=Depths)
    """Words of the memories."""

    def __post_init__(self) -> None:
        p = self.array_size
        _power_of_two("array_size", p, 4, 32)
        _power_of_two("vector_lanes", self.vector_lanes, 1, p)
        _power_of_two("adam_lanes", self.adam_lanes, 2, p // 2)
        if self.a_bits not in (16, 18):
            raise ConfigError("a_bits", "16 or 18", str(self.a_bits))
        if not self.a_bits <= self.b_bits <= 25:
            raise ConfigError("b_bits", f"{self.a_bits} to 25", str(self.b_bits))
        least = self.a_bits + self.b_bits + 4
        if not least <= self.sum_bits <= MOST_SUM_BITS:
            expected = f"{least} to {MOST_SUM_BITS}"
            raise ConfigError("sum_bits", expected, str(self.sum_bits))
        for name, words in asdict(self.depths).items():
            most = 255 if name == "range" else 1 << 20
            if not 1 <= words <= most:
                raise ConfigError(f"depths.{name}", f"1 to {most} words", str(words))

    @property
    def lanes(self) -> int:
        """Multipliers of the array, P x P."""
        return self.array_size**2

    def fence(self, op: str) -> int:
        """Cycles that a fence adds: from the last slot until the results can be read.

        Args:
            op: Name of the instruction, `PRODUCT` for instance.
        """
        post, skew, vec, adam = (STAGES[name] for name in ("post", "skew", "vec", "adam"))
        drain = STAGES["rotate"] + self.array_size + STAGES["pick"] + post
        stages = {
            "PRODUCT": drain + max(STAGES["gather"], skew) + 5,
            "VECTOR": vec + 3,
            "QUANT": vec + post + skew + 3,
            "UPDATE": adam + post + skew + 5,
            "NORM": STAGES["squares"] + 1 + STAGES["shrink"] + 2,
            "BROADCAST": 4,
            "SCALAR": 2,
        }
        return stages[op]

    def parameters(self) -> dict[str, int]:
        """Everything that the generated sources depend on, as plain numbers by name."""
        p = self.array_size
        sizes = {
            "P": p,
            "LP": p.bit_length() - 1,
            "W": self.a_bits,
            "WB": self.b_bits,
            "ACC": self.sum_bits,
            "VL": self.vector_lanes,
            "AL": self.adam_lanes,
            "FUNCTIONS": int(self.functions),
        }
        sizes |= {f"DEPTH_{name.upper()}": words for name, words in asdict(self.depths).items()}
        sizes |= {f"STAGES_{name.upper()}": n for name, n in STAGES.items()}
        names = ("PRODUCT", "VECTOR", "QUANT", "UPDATE", "NORM", "BROADCAST", "SCALAR")
        sizes |= {f"FENCE_{op}": self.fence(op) for op in names}
        for op, fields in FIELDS.items():
            at = 0
            for name, bits, _ in HEAD + fields:
                sizes[f"AT_{op.name}_{name.upper()}"] = at
                at += bits
            sizes[f"BITS_{op.name}"] = at
        return sizes

    def digest(self) -> str:
        """Hexadecimal digest of `parameters`, 16 characters: the name of a build."""
        plain = json.dumps(self.parameters(), sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:16]


def array_size(lanes: int) -> int:
    """P of an array with so many lanes.

    Raises:
        ConfigError: No array has that many.
    """
    if lanes not in FPGA_LANES:
        raise ConfigError("lanes", f"one of {', '.join(map(str, FPGA_LANES))}", str(lanes))
    return isqrt(lanes)


def _power_of_two(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most or value & (value - 1):
        raise ConfigError(name, f"a power of two from {least} to {most}", str(value))
