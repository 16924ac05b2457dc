# SPDX-License-Identifier: MIT
"""The engine's instructions: fields and their encoding. docs/hardware.md says what each does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from copal.errors import ProgramError

BITS = 320
"""Bits of an instruction."""
BEATS = BITS // 64
"""64-bit beats of an instruction, low bits first."""
STATUS_BEATS = 4
"""Beats of STATUS."""
SETS = 4
"""Sets of scalars in K."""
SET_SIZE = 16
"""Registers of a set."""
NO_RANGE = 255
"""Value of a `range` field for results that are not counted."""


class Op(IntEnum):
    """Kinds of instructions."""

    END = 0
    PRODUCT = 1
    VECTOR = 2
    QUANT = 3
    UPDATE = 4
    NORM = 5
    BROADCAST = 6
    SCALAR = 7


class Vop(IntEnum):
    """Operations of the vector unit."""

    MOV = 0
    ADD = 1
    MUL = 2
    DIV = 3
    MIN = 4
    MAX = 5
    LT = 6
    LE = 7
    EQ = 8
    SIGN = 9
    RELUG = 10
    SELZ = 11
    ITOF = 12
    SQRT = 13
    EXP = 14
    LOG = 15
    TANH = 16


class Memory(IntEnum):
    """Memories by the number that LOAD and DUMP use."""

    CODE = 0
    V = 1
    W = 2
    T = 3
    M = 4
    S = 5
    G = 6
    GB = 7
    K = 8
    RANGE = 9
    A = 10
    B = 11
    BIAS = 12
    STATUS = 13


class Command(IntEnum):
    """Commands of the stream."""

    LOAD = 1
    RUN = 2
    DUMP = 3


class ErrorCode(IntEnum):
    """Why a RUN ended early."""

    NONE = 0
    OPCODE = 1
    FIELD = 2
    ADDRESS = 3
    CONFLICT = 4
    NOT_FINITE = 5
    COMMAND = 6
    TRUNCATED = 7


#: Fields behind `op` (4 bits) and `fence` (1 bit), from low bits to high. "s": signed. `mt`, `nt`,
#: `kn`, `count` and VECTOR's `cols` hold the number less one; QUANT's `cols` the number itself.
FIELDS: Mapping[Op, tuple[tuple[str, int, str], ...]] = {
    Op.END: (),
    Op.PRODUCT: (
        ("mt", 12, "u"), ("nt", 12, "u"), ("kn", 16, "u"),
        ("a_base", 16, "u"), ("a_m", 16, "u"), ("a_k", 16, "u"), ("a_col", 1, "u"),
        ("b_base", 16, "u"), ("b_n", 16, "u"), ("b_k", 16, "u"), ("b_col", 1, "u"),
        ("c_base", 20, "u"), ("c_m", 20, "u"), ("c_n", 20, "u"), ("c_i", 8, "u"),
        ("mask_base", 20, "u"), ("bias_base", 12, "u"), ("use_bias", 1, "u"), ("shift", 6, "u"),
        ("to_a", 1, "u"), ("to_b", 1, "u"), ("to_v", 1, "u"), ("to_g", 1, "u"),
        ("relu", 1, "u"), ("use_mask", 1, "u"), ("bgrad", 1, "u"),
        ("range", 8, "u"), ("m_tail", 6, "u"), ("n_tail", 6, "u"),
    ),
    Op.VECTOR: (
        ("vop", 5, "u"), ("cols", 12, "u"), ("nt", 12, "u"),
        ("d_base", 20, "u"), ("d_c", 12, "u"), ("x_base", 20, "u"), ("x_c", 12, "u"),
        ("y_base", 20, "u"), ("y_c", 12, "u"), ("imm", 32, "u"), ("exponent", 9, "s"),
        ("x_imm", 1, "u"), ("y_imm", 1, "u"), ("x_abs", 1, "u"), ("x_neg", 1, "u"),
        ("y_abs", 1, "u"), ("y_neg", 1, "u"), ("pred", 2, "u"),
    ),
    Op.QUANT: (
        ("cols", 12, "u"), ("mt", 12, "u"), ("nt", 12, "u"), ("x_base", 20, "u"), ("x_c", 12, "u"),
        ("c_base", 20, "u"), ("c_m", 20, "u"), ("c_n", 20, "u"), ("exponent", 9, "s"),
        ("to_a", 1, "u"), ("to_b", 1, "u"), ("range", 8, "u"), ("n_tail", 6, "u"),
    ),
    Op.UPDATE: (
        ("count", 20, "u"), ("p_base", 20, "u"), ("adam", 1, "u"), ("average", 1, "u"),
        ("bias", 1, "u"), ("b_base", 12, "u"), ("bt_base", 12, "u"),
        ("copy_w", 1, "u"), ("copy_t", 1, "u"), ("aw_base", 20, "u"), ("at_base", 20, "u"),
        ("e_g", 9, "s"), ("e_w", 9, "s"), ("e_t", 9, "s"), ("set", 2, "u"),
        ("range_w", 8, "u"), ("range_t", 8, "u"),
    ),
    Op.NORM: (
        ("count", 20, "u"), ("p_base", 20, "u"), ("gb", 1, "u"), ("first", 1, "u"),
        ("last", 1, "u"), ("shift", 6, "u"), ("d_base", 20, "u"),
    ),
    Op.BROADCAST: (
        ("p_base", 20, "u"), ("lane", 5, "u"), ("target", 1, "u"),
        ("d_base", 20, "u"), ("nt", 12, "u"),
    ),
    Op.SCALAR: (("x_base", 20, "u"), ("index", 6, "u")),
}  # fmt: skip

#: What every instruction starts with.
HEAD = (("op", 4, "u"), ("fence", 1, "u"))


@dataclass
class Instruction:
    """One instruction. Fields that are not given are zero."""

    op: Op
    """Kind."""
    fields: dict[str, int] = field(default_factory=dict)
    """Values by the names of `FIELDS`."""
    fence: int = 0
    """Whether the next instruction waits for the results."""
    note: str = ""
    """What it is for, shown in listings."""
    macs: int = 0
    """Products that are no padding, for statistics."""

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)

    def encode(self) -> int:
        """The instruction as a number below 2^320.

        Raises:
            ProgramError: A field is unknown or its value does not fit.
        """
        layout = HEAD + FIELDS[self.op]
        unknown = set(self.fields) - {name for name, _, _ in layout}
        if unknown:
            raise ProgramError(self.note or self.op.name, "known fields", f"`{min(unknown)}`")
        values = {**self.fields, "op": int(self.op), "fence": self.fence}
        word, at = 0, 0
        for name, bits, sign in layout:
            value = int(values.get(name, 0))
            low, high = (-(1 << bits - 1), 1 << bits - 1) if sign == "s" else (0, 1 << bits)
            if not low <= value < high:
                where = f"{self.note or self.op.name}.{name}"
                raise ProgramError(where, f"{low} to {high - 1}", str(value))
            word |= (value & (1 << bits) - 1) << at
            at += bits
        return word

    @classmethod
    def decode(cls, word: int) -> Instruction:
        """Inverse of `encode`.

        Raises:
            ProgramError: The kind is unknown or a reserved bit is set.
        """
        if word & 15 not in Op.__members__.values():
            raise ProgramError("op", f"0 to {max(Op)}", str(word & 15))
        op, at, values = Op(word & 15), 0, {}
        for name, bits, sign in HEAD + FIELDS[op]:
            value = word >> at & (1 << bits) - 1
            if sign == "s" and value >> bits - 1:
                value -= 1 << bits
            values[name] = value
            at += bits
        if word >> at:
            raise ProgramError(op.name, "reserved bits of zero", hex(word >> at))
        del values["op"]
        return cls(op, values, values.pop("fence"))


def beats(code: Iterable[Instruction]) -> NDArray[np.uint64]:
    """Instructions as the 64-bit beats that LOAD sends, [5 * instructions]."""
    words = [ins.encode() for ins in code]
    return np.array(
        [word >> 64 * i & (1 << 64) - 1 for word in words for i in range(BEATS)], np.uint64
    )


def beats_a_word(memory: Memory, array_size: int) -> int:
    """64-bit beats of a word of `memory` on the stream, for an array of so many lanes a row."""
    fixed = {
        Memory.CODE: BEATS,
        Memory.K: 1,
        Memory.RANGE: 1,
        Memory.BIAS: array_size,
        Memory.STATUS: STATUS_BEATS,
    }
    return fixed.get(memory, array_size // 2)


def header(
    command: Command, memory: int = 0, address: int = 0, count: int = 0, *, last: bool = False
) -> int:
    """The 64-bit header of a command."""
    return int(command) | int(memory) << 8 | int(last) << 15 | address << 16 | count << 40
