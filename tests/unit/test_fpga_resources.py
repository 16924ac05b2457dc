# SPDX-License-Identifier: MIT
"""What an engine takes of a device: memories in whole blocks, multipliers, every cell counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from copal.fpga import boards, synthesis
from copal.fpga.boards import Board
from copal.fpga.config import EngineConfig

ROOT = Path(__file__).resolve().parents[2]
#: Bits and words of half a block RAM.
SHAPES = [(1, 16384), (2, 8192), (4, 4096), (9, 2048), (18, 1024), (36, 512)]
VEC_DSP, ADAM_DSP = 6, 18
"""Multiplier blocks of a float32 lane: its products of 24 bits take two each."""
ENGINES = [
    pytest.param(board, boards.engine(board, lanes), id=f"{board.name}-{lanes}")
    for board in boards.BOARDS.values()
    for lanes in (16, 64, 256, 1024)
    if lanes <= board.preset.lanes
]


def blocks(width: int, depth: int) -> float:
    """Block RAMs of 36 kbit for a memory, all its parts of one shape."""
    return min(-(-width // w) * -(-depth // d) for w, d in SHAPES) / 2


def ultra(width: int, depth: int) -> int:
    """UltraRAMs for a memory."""
    return -(-width // 72) * -(-depth // 4096)


def needs(board: Board, e: EngineConfig) -> dict[str, float]:
    """Block RAM, UltraRAM and DSP of an engine. BIAS, GB, RANGE, scalars and delays are LUT RAM."""
    p, d, lanes = e.array_size, e.depths, e.adam_lanes
    optimiser = [(2 * lanes, 64, d.parameters * p // lanes), (1, 32 * p, d.parameters)]
    others = [
        (p, e.a_bits, d.a), (p, e.b_bits, d.b), (2 * p, 32, d.vector), (5, 64, d.code),
        (1, p, d.mask),
    ]  # fmt: skip
    if board.resources.uram == 0:
        others, optimiser = others + optimiser, []
    return {
        "bram": sum(n * blocks(w, words) for n, w, words in others),
        "uram": sum(n * ultra(w, words) for n, w, words in optimiser),
        "dsp": e.lanes + VEC_DSP * e.vector_lanes + ADAM_DSP * lanes + p,
    }


@pytest.mark.parametrize(("board", "engine"), ENGINES)
def test_memories_and_multipliers_fit_the_board(board: Board, engine: EngineConfig) -> None:
    """The preset, and the same with fewer lanes."""
    for name, used in needs(board, engine).items():
        assert used <= getattr(board.resources, name), name


@pytest.mark.parametrize("family", ["xc7", "xcup"])
def test_memories_become_the_blocks_that_arithmetic_says(family: str, tmp_path: Path) -> None:
    """Banks and V in block RAM, parameters in UltraRAM where there is some, BIAS in LUT RAM."""
    shapes = {"u_a": (18, 7168), "u_b": (22, 6144), "u_v": (32, 512), "u_bias": (48, 64)}
    rams = [f"{_ram(name, *shape)}\n" for name, shape in shapes.items()]
    (tmp_path / "top.v").write_text(
        f"{_head('optimiser')}genvar j; generate for (j = 0; j < 1; j = j + 1) begin : g_pair\n"
        f"{_ram('u_w', 64, 8192)} end endgenerate assign q = g_pair[0].u_w_q; endmodule\n"
        f"{_head('engine')}{''.join(rams)} wire [63:0] w;\n"
        "optimiser u_optimiser(clk, we, at, from, d, w);\n"
        f"assign q = w ^ {' ^ '.join(f'{name}_q' for name in shapes)}; endmodule\n"
        f"{_head('top')} engine engine(clk, we, at, from, d, q); endmodule\n"
    )
    files = [ROOT / "hls" / "rtl" / "ram.v", tmp_path / "top.v"]
    counts = synthesis.synthesise(files, "top", family, tmp_path / family)
    small = blocks(18, 7168) + blocks(22, 6144) + blocks(32, 512)
    assert small == 3.5 + 4.5 + 0.5
    if family == "xc7":
        assert (counts.bram, counts.uram) == (small + blocks(64, 8192), 0)
    else:
        assert (counts.bram, counts.uram) == (small, ultra(64, 8192))


def _head(name: str) -> str:
    ports = (
        "input clk, input we, input [12:0] at, input [12:0] from, input [63:0] d, output [63:0] q"
    )
    return f"module {name}({ports});\n"


def _ram(name: str, width: int, depth: int) -> str:
    bits = (depth - 1).bit_length()
    return (
        f"wire [{width - 1}:0] {name}_q; ram #(.WIDTH({width}), .DEPTH({depth})) {name}(\n"
        f".clk(clk), .we(we), .waddr(at[{bits - 1}:0]), .wdata(d[{width - 1}:0]),"
        f".raddr(from[{bits - 1}:0]), .rdata({name}_q));"
    )


def test_every_memory_cell_of_yosys_is_counted() -> None:
    """The cells that yosys makes of LUT RAM, block RAM and UltraRAM, of all newer families."""
    pyosys = pytest.importorskip("pyosys")
    maps = Path(pyosys.__file__).parent / "share" / "xilinx"
    text = "".join((maps / f"{name}_map.v").read_text() for name in (
        "lutrams_xc5v", "brams_xc6v", "brams_xcu", "urams",
    ))  # fmt: skip
    cells = set(re.findall(r"^\s*((?:RAM|URAM)\w*\d\w*)\b", text, re.M))
    assert {"RAM64M8", "RAMB36E2", "URAM288"} <= cells
    for cell in cells:
        assert synthesis.count({cell: 2}, "xcup") != synthesis.Counts(), cell
