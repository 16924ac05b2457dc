# SPDX-License-Identifier: MIT
"""One-instruction PTX kernels: operands from arrays, the result into an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import ptx

LETTERS = {"f": "f32", "d": "f64", "r": "b32", "l": "b64", "h": "b16", "p": "pred"}


def module(body: str, parameters: str = ".param .u64 k_param_0", shared: int = 0) -> ptx.Loaded:
    """A module with the kernel `k`.

    Args:
        body: Statements; registers %f, %d, %r, %l, %h, %p with any number below 100.
        parameters: As in PTX.
        shared: Static shared memory `tile`, bytes.
    """
    registers = "\n".join(f".reg .{kind} %{letter}<100>;" for letter, kind in LETTERS.items())
    tile = f".shared .align 16 .b8 tile[{shared}];" if shared else ""
    return ptx.Loaded(
        f".version 9.0\n.target sm_90\n.address_size 64\n"
        f".visible .entry k({parameters})\n{{\n{registers}\n{tile}\n{body}\n}}\n"
    )


def letter(kind: str) -> str:
    """Register class of a PTX type."""
    special = {"f32": "f", "f64": "d", "pred": "p"}
    return special.get(kind) or {"8": "h", "16": "h", "32": "r", "64": "l"}[kind[1:]]


def evaluate(
    opcode: str, to: str, *operands: tuple[str, npt.NDArray[Any]] | str
) -> npt.NDArray[Any]:
    """What one instruction gives.

    Args:
        opcode: The instruction.
        to: PTX type of the result.
        operands: PTX type and values [n], or the text of a constant.

    Returns:
        Results: [n], of the unsigned or float type of `to`.
    """
    arrays = [o for o in operands if not isinstance(o, str)]
    count = len(arrays[0][1])
    lines = ["mov.u32 %r90, %ctaid.x;"]
    names, place = [], 1
    for index, operand in enumerate(operands):
        if isinstance(operand, str):
            names.append(operand)
            continue
        kind, values = operand
        register = f"%{letter(kind)}{index}"
        lines += [
            f"ld.param.u64 %l80, [k_param_{place}];",
            f"mul.wide.u32 %l81, %r90, {values.itemsize};",
            "add.s64 %l80, %l80, %l81;",
            f"ld.global.b{8 * values.itemsize} {register}, [%l80];",
        ]
        names.append(register)
        place += 1
    result = f"%{letter(to)}99"
    lines.append(f"{opcode} {result}, {', '.join(names)};")
    if to == "pred":
        lines.append(f"selp.u32 %r99, 1, 0, {result};")
        result, to = "%r99", "u32"
    dtype = np.dtype(to.replace("f", "float").replace("u", "uint").replace("s", "int")
                     .replace("b", "uint"))  # fmt: skip
    lines += [
        "ld.param.u64 %l80, [k_param_0];",
        f"mul.wide.u32 %l81, %r90, {dtype.itemsize};",
        "add.s64 %l80, %l80, %l81;",
        f"st.global.b{8 * dtype.itemsize} [%l80], {result};",
        "ret;",
    ]
    parameters = ", ".join(f".param .u64 k_param_{n}" for n in range(place))
    out = np.zeros(count, dtype)
    loaded = module("\n".join(lines), parameters)
    loaded.launch("k", (count,), (1,), (out, *(values for _, values in arrays)))
    return out
