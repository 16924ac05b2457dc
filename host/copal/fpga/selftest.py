# SPDX-License-Identifier: MIT
"""Known vectors for an engine that is opened: what it computes has to be what the model computes.

A small program quantises two tiles, multiplies them, turns the sums into floats and applies a few
vector operations, so that each unit but the optimiser has its part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from copal.errors import FpgaError
from copal.fpga.config import Depths, EngineConfig
from copal.fpga.device import Beats, FpgaDevice
from copal.fpga.isa import BEATS, ErrorCode, Instruction, Memory, Op, Vop, beats
from copal.fpga.packet import Script

SEED = 1
EXPONENT = 10
TIMEOUT_S = 60.0


def check(device: FpgaDevice) -> None:
    """Runs the known vectors on `device` and on the model.

    Raises:
        FpgaError: The results differ, or the engine reports an error; names what.
        FpgaTimeoutError: The device stopped answering.
    """
    from copal.fpga.model_device import ModelDevice

    config = device.config
    wanted = _results(ModelDevice(replace(config, depths=depths(config.array_size))))
    found = _results(device)
    for name, expected in wanted.items():
        wrong = np.flatnonzero(found[name] != expected)
        if wrong.size:
            at = int(wrong[0])
            raise FpgaError(
                f"self-test, {name}", f"beat {at} of {expected[at]:#018x}, as in the model",
                f"{found[name][at]:#018x}; {wrong.size} of {expected.size} beats differ",
                "the engine computes wrongly: timing not met, or built from other sources",
            )  # fmt: skip


def depths(p: int) -> Depths:
    """The memories that the test needs on an array of p x p lanes."""
    return Depths(8, 2 * p, p, p, 1, 1, 1, 2)


def _results(device: FpgaDevice) -> dict[str, Beats]:
    config = device.config
    p = config.array_size
    code = beats(program(config))
    script = Script(config)
    load_code = script.load(Memory.CODE, 0, len(code) // BEATS)
    load_rows = script.load(Memory.V, 0, 2 * p)
    script.run(0)
    answers = {
        "operands A": script.dump(Memory.A, 0, p),
        "operands B": script.dump(Memory.B, 0, p),
        "products and vector operations": script.dump(Memory.V, 0, 2 * p),
        "ranges": script.dump(Memory.RANGE, 0, 2),
    }
    exchange = script.ready(device)
    load_code.put(code)
    load_rows.put(np.random.default_rng(SEED).standard_normal(2 * p * p).astype(np.float32))
    status = exchange.send("self-test", TIMEOUT_S)
    if status.code != ErrorCode.NONE:
        raise FpgaError("self-test", "no error", f"error {status.code.name} at pc {status.pc}")
    return {name: answer.take() for name, answer in answers.items()}


def program(config: EngineConfig) -> list[Instruction]:
    """The microcode; V holds two tensors of P columns, the second becomes the result."""
    p = config.array_size
    shift = config.a_bits - 12

    def quant(x_base: int, entry: int, **to: int) -> Instruction:
        fields = {"cols": p, "x_base": x_base, "x_c": 1, "exponent": EXPONENT, "range": entry, **to}
        return Instruction(Op.QUANT, fields, fence=1)

    def vector(vop: Vop, **fields: int) -> Instruction:
        given = {"vop": int(vop), "cols": p - 1, "d_base": p, "d_c": 1, "x_c": 1, "y_c": 1}
        return Instruction(Op.VECTOR, {**given, **fields}, fence=1)

    return [
        quant(0, 0, to_a=1),
        quant(p, 1, to_b=1),
        Instruction(
            Op.PRODUCT,
            {"kn": p - 1, "a_k": 1, "b_k": 1, "c_base": p, "c_i": 1, "shift": shift, "to_v": 1,
             "range": 255},
            fence=1,
        ),
        vector(Vop.ITOF, x_base=p, exponent=2 * EXPONENT - shift),
        vector(Vop.MUL, x_base=p, y_base=0),
        vector(Vop.ADD, x_base=p, y_base=0, y_neg=1),
        vector(Vop.MAX, x_base=p, y_base=0, x_abs=1),
        Instruction(Op.END),
    ]  # fmt: skip
