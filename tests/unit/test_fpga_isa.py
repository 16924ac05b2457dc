# SPDX-License-Identifier: MIT
"""Instructions of the FPGA engine survive encoding, and bad ones are refused."""

from __future__ import annotations

import numpy as np
import pytest

from copal.errors import ConfigError, ProgramError
from copal.fpga.config import Depths, EngineConfig
from copal.fpga.isa import BEATS, BITS, FIELDS, Instruction, Op, beats


def random_instruction(rng: np.random.Generator, op: Op) -> Instruction:
    """An instruction of kind `op` with every field drawn from its whole range."""
    fields = {}
    for name, bits, sign in FIELDS[op]:
        low = -(1 << bits - 1) if sign == "s" else 0
        fields[name] = int(rng.integers(low, low + (1 << bits)))
    return Instruction(op, fields, int(rng.integers(2)))


@pytest.mark.parametrize("op", list(Op))
def test_decode_is_the_inverse_of_encode(op: Op, rng: np.random.Generator):
    """Every field of every kind comes back, and the words are their beats."""
    for _ in range(50):
        instruction = random_instruction(rng, op)
        word = instruction.encode()
        assert word < 1 << BITS
        decoded = Instruction.decode(word)
        assert (decoded.op, decoded.fence) == (op, instruction.fence)
        assert decoded.fields == instruction.fields
        parts = beats([instruction])
        assert sum(int(part) << 64 * i for i, part in enumerate(parts)) == word
        assert len(parts) == BEATS


def test_a_field_that_does_not_fit_is_refused():
    """The error names the instruction, the field and its range."""
    with pytest.raises(ProgramError, match=r"forward 1\.shift.*0 to 63, got 64"):
        Instruction(Op.PRODUCT, {"shift": 64}, note="forward 1").encode()
    with pytest.raises(ProgramError, match="`shft`"):
        Instruction(Op.PRODUCT, {"shft": 1}).encode()


def test_malformed_words_are_refused():
    """An unknown kind and reserved bits."""
    with pytest.raises(ProgramError, match="op"):
        Instruction.decode(15)
    with pytest.raises(ProgramError, match="reserved"):
        Instruction.decode(1 << 300)


@pytest.mark.parametrize(
    "settings",
    [
        {"array_size": 6},
        {"vector_lanes": 16},
        {"adam_lanes": 8},
        {"a_bits": 17},
        {"b_bits": 17},
        {"b_bits": 26},
        {"sum_bits": 43},
        {"depths": Depths(range=256)},
        {"depths": Depths(vector=0)},
    ],
    ids=str,
)
def test_impossible_engines_are_refused(settings: dict):
    """Each parameter out of its range raises an error that names it."""
    name, value = next(iter(settings.items()))
    with pytest.raises(ConfigError, match=name):
        EngineConfig(**settings)
    assert value is not None


def test_every_parameter_changes_the_digest():
    """Builds of different engines never share a folder."""
    default = EngineConfig()
    others = [
        EngineConfig(array_size=16),
        EngineConfig(a_bits=16),
        EngineConfig(b_bits=18),
        EngineConfig(functions=False),
        EngineConfig(depths=Depths(code=128)),
    ]
    assert len({c.digest() for c in (default, *others)}) == 6
