# SPDX-License-Identifier: MIT
"""`copal build`: counts, limits of a board, Vivado scripts, manifest, what is missing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from copal import cli
from copal.errors import BackendUnavailableError, ConfigError, FpgaError
from copal.fpga import boards, boards_build, build, ecp5, overlay, rtl, synthesis, tools
from copal.fpga.boards_build import BuildConfig
from copal.fpga.config import EngineConfig

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [ROOT / "bitstreams" / name for name in ("design.tcl", "bitstream.tcl")]
BOARD_SCRIPTS = sorted((ROOT / "bitstreams" / "boards").glob("*/board.tcl"))

#: Every unknown command is noted, one a line, and returns its name; `get_...` return what they got.
STUB = r"""
proc unknown {name args} {
    puts "$name\t[join [string map {\n { }} $args] \t]"
    if {[string match get_* $name]} {return [join $args]}
    return $name
}
set argv [lrange $argv 1 end]
source $script
"""


def tcl(script: Path, *arguments: str, folder: Path) -> list[list[str]]:
    """Runs a script in tclsh; commands that only Vivado has are listed, not done."""
    shell = shutil.which("tclsh")
    if shell is None:
        pytest.skip("no tclsh")
    stub = folder / "stub.tcl"
    stub.write_text(f"set script {{{script}}}\n{STUB}")
    done = subprocess.run(
        [shell, str(stub), str(script), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def ports() -> set[str]:
    """Ports of the engine's top module."""
    text = (ROOT / "hls" / "rtl" / "copal_engine.v").read_text()
    return set(re.findall(r"^\s*(?:input|output)\s+wire\s+(?:\[\d+:0\]\s+)?(\w+)", text, re.M))


@pytest.mark.parametrize("script", [*SCRIPTS, *BOARD_SCRIPTS], ids=lambda p: p.parent.name + p.name)
def test_tcl_is_complete_and_says_that_it_has_not_run(script: Path, tmp_path: Path) -> None:
    """Braces and quotes match; the header is honest."""
    check = tmp_path / "check.tcl"
    check.write_text(f"puts [info complete [read [open {{{script}}}]]]")
    shell = shutil.which("tclsh")
    if shell is not None:
        done = subprocess.run([shell, str(check)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "1"
    assert re.search(r"not (been )?run", script.read_text(), re.I)


@pytest.mark.parametrize("name", boards.BOARDS)
def test_design_connects_pins_that_the_engine_has(name: str, tmp_path: Path) -> None:
    """Interfaces and pins of the cell `engine` are ports of the RTL; part and clock the board's."""
    rtl = tmp_path / "rtl"
    rtl.mkdir()
    for file in ("copal_engine.v", "copal_params.vh"):
        (rtl / file).write_text("")
    board_file = ROOT / "bitstreams" / "boards" / name / "board.tcl"
    calls = tcl(SCRIPTS[0], str(board_file), str(rtl), "out", folder=tmp_path)
    pins = {a for call in calls for a in call[1:] if a.startswith("engine/")}
    buses = {p.split("/")[1] for p in pins if call_of(calls, p) == "connect_bd_intf_net"}
    nets = {p.split("/")[1] for p in pins if call_of(calls, p) == "connect_bd_net"}
    assert buses == {"s_axil", "s_axis", "m_axis"}
    assert nets == {"aclk", "aresetn"}
    assert nets <= ports()
    for bus in buses:
        assert any(port.startswith(f"{bus}_") for port in ports())
    board = boards.get(name)
    assert ["create_project", "-force", "copal", "out", "-part", board.part] in calls
    assert f"set clock_mhz {board.clock_mhz}" in board_file.read_text()
    settings = next(c for c in calls if c[0] == "set_property" and "c_sg_length_width" in c[2])
    assert re.search(r"CONFIG\.c_sg_length_width 26\b", settings[2])


def call_of(calls: list[list[str]], argument: str) -> str:
    """Name of the connecting command that has this argument."""
    names = (c[0] for c in calls if argument in c[1:] and c[0].startswith("connect"))
    return next(names, "")


def test_engine_ports_are_named_as_vivado_infers_interfaces() -> None:
    """Each stream and the register port have all signals of their interface."""
    for stream in ("s_axis", "m_axis"):
        assert {f"{stream}_{s}" for s in ("tdata", "tkeep", "tlast", "tvalid", "tready")} <= ports()
    channels = {
        "aw": "addr prot",
        "w": "data strb",
        "b": "resp",
        "ar": "addr prot",
        "r": "data resp",
    }
    for channel, signals in channels.items():
        for signal in (*signals.split(), "valid", "ready"):
            assert f"s_axil_{channel}{signal}" in ports()


def test_lanes_are_counted_as_often_as_they_are_used(tmp_path: Path) -> None:
    """Three multipliers in a lane that is synthesised once, in a shell that is no module after."""
    (tmp_path / "array_row.v").write_text(
        "module array_row(input clk, input signed [17:0] a, b, output reg signed [35:0] y);\n"
        "always @(posedge clk) y <= a * b; endmodule\n"
    )
    ports = "input clk, input signed [53:0] a, b, output signed [107:0] y"
    (tmp_path / "top.v").write_text(
        f"module shell({ports});\n"
        + "".join(
            f"array_row u{i}(clk, a[{18 * i}+:18], b[{18 * i}+:18], y[{36 * i}+:36]);"
            for i in range(3)
        )
        + f"\nendmodule\nmodule top({ports}); shell u(clk, a, b, y); endmodule\n"
    )
    files = [tmp_path / "array_row.v", tmp_path / "top.v"]
    assert synthesis.synthesise(files, "top", "xc7", tmp_path / "xc7").dsp == 3
    stat = tmp_path / "xc7" / "stat.txt"
    text = stat.read_text()
    assert set(json.loads(text[text.index("{") :])["modules"]) == {"\\top", "\\array_row"}
    kept = stat.stat().st_mtime_ns
    synthesis.synthesise(files, "top", "xc7", tmp_path / "xc7")
    assert stat.stat().st_mtime_ns == kept


def test_sums_of_a_row_are_in_its_multiplier_blocks(tmp_path: Path) -> None:
    """Of UltraScale+ as of a 7-series device, though yosys finds the pattern only in the latter."""
    row = "input clk, en, input signed [17:0] a, b, output reg signed [47:0] y"
    (tmp_path / "top.v").write_text(
        f"module array_row({row});\nreg signed [35:0] p;\n"
        "always @(posedge clk) begin p <= a * b; if (en) y <= y + p; end endmodule\n"
        "module top(input clk, en, input signed [17:0] a, b, c, output [47:0] y, z);\n"
        "array_row u(clk, en, a, b, y); array_row v(clk, en, a, c, z); endmodule\n"
    )
    counts = {
        family: synthesis.synthesise([tmp_path / "top.v"], "top", family, tmp_path / family)
        for family in ("xc7", "xcup")
    }
    assert counts["xcup"] == counts["xc7"]
    assert (counts["xcup"].dsp, counts["xcup"].ff) == (2, 0)


def test_equal_registers_of_two_units_stay_two_on_an_ecp5(tmp_path: Path) -> None:
    """Each has its own near by, in a netlist without modules; flattened first they were one."""
    source, netlist = tmp_path / "top.v", tmp_path / "top.json"
    source.write_text(
        "module unit(input clk, input [7:0] a, b, output reg [7:0] y);\n"
        "reg [7:0] held; always @(posedge clk) begin held <= a; y <= held ^ b; end endmodule\n"
        "module top(input clk, input [7:0] a, b, c, output [7:0] y, z);\n"
        "unit u(clk, a, b, y); unit v(clk, a, c, z); endmodule\n"
    )
    assert synthesis.synthesise([source], "top", "ecp5", tmp_path / "out", netlist).ff == 32
    modules = json.loads(netlist.read_text())["modules"]
    cells = [cell["type"] for cell in modules["top"]["cells"].values()]
    assert cells.count("TRELLIS_FF") == 32


def test_cells_become_resources() -> None:
    """Two small block RAMs are a large one; LUT RAM and shift registers are LUTs."""
    cells = {"LUT6": 5, "RAM32M": 2, "SRL16E": 1, "FDRE": 7, "RAMB18E1": 3, "RAMB36E1": 2}
    counts = synthesis.count({**cells, "DSP48E1": 4, "URAM288": 1, "BUFG": 1}, "xc7")
    assert counts == synthesis.Counts(lut=14, ff=7, bram=3.5, uram=1, dsp=4)
    counts = synthesis.count({"LUT4": 3, "CCU2C": 2, "DP16KD": 1, "MULT18X18D": 2}, "ecp5")
    assert counts == synthesis.Counts(lut=7, bram=1, dsp=2)


def test_a_design_that_does_not_parse_names_the_log(tmp_path: Path) -> None:
    """The error is typed and leads to its log."""
    (tmp_path / "bad.v").write_text("module top(; endmodule\n")
    with pytest.raises(FpgaError, match=r"yosys\.log"):
        synthesis.synthesise([tmp_path / "bad.v"], "top", "xc7", tmp_path / "out")


def test_rtl_stage_writes_all_that_the_engine_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is whole: every included and instantiated file is in it."""
    assert cli.main(["build", "--board", "pynq-z2", "--out", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lanes"] == 64
    names = {p.name for p in (tmp_path / "rtl").iterdir()}
    assert set(told["rtl"]) <= names
    shells = {p.name for p in (ROOT / "hls" / "rtl").glob("*.v")}
    assert shells | {"copal_params.vh"} <= names
    described = json.loads((tmp_path / "engine.json").read_text())
    assert described["digest"] == boards.get("pynq-z2").preset.digest()


def test_rtl_stage_of_the_small_engine_places_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verilog alone takes seconds, place and route minutes: only who asks waits."""
    monkeypatch.setattr(ecp5, "build", lambda *_: pytest.fail("placed"))
    monkeypatch.setattr(rtl, "generate", lambda _, folder: [folder / "copal_engine.v"])
    assert cli.main(["build", "--board", "ecp5", "--out", str(tmp_path)]) == 0
    assert "Verilog: 1 files" in capsys.readouterr().out
    described = json.loads((tmp_path / "engine.json").read_text())
    assert described["digest"] == ecp5.ENGINE.digest()


@pytest.mark.parametrize("flags", [("--lanes", "64"), ("--stage", "project")])
def test_what_the_small_engine_has_not_is_refused(
    flags: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its size is fixed, and Vivado knows no ECP5; no folder is made."""
    out = tmp_path / "out"
    assert cli.main(["build", "--board", "ecp5", *flags, "--out", str(out)]) == 2
    assert f"`{flags[0][2:]}`" in capsys.readouterr().err
    assert not out.exists()


def test_build_number_follows_parameters_and_sources(tmp_path: Path) -> None:
    """The register BUILD tells engines of other sources or parameters apart."""
    number = rtl.generator().build_number
    (tmp_path / "a.v").write_text("module a; endmodule")
    first = number({"P": 4}, [tmp_path / "a.v"])
    assert first == number({"P": 4}, [tmp_path / "a.v"])
    assert 0 <= first < 1 << 31
    assert first != number({"P": 8}, [tmp_path / "a.v"])
    (tmp_path / "a.v").write_text("module a; wire x; endmodule")
    assert first != number({"P": 4}, [tmp_path / "a.v"])


def test_too_large_names_the_resource_and_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, after the table."""
    monkeypatch.setattr(boards_build, "write_rtl", lambda *_: [])
    counts = synthesis.Counts(lut=1000, ff=1000, bram=141.5, dsp=230)
    monkeypatch.setattr(synthesis, "synthesise", lambda *_: counts)
    flags = ["--stage", "estimate", "--no-fmax", "--out", str(tmp_path)]
    assert cli.main(["build", "--board", "pynq-z2", *flags]) == 1
    output = capsys.readouterr()
    assert "DSP: 230 of 220, 10 too many" in output.err
    assert "block RAM (36 kbit): 141.5 of 140, 1.5 too many" in output.err
    assert "not placed" in output.out
    assert cli.main(["build", "--board", "kv260", *flags]) == 0
    assert "too many" not in capsys.readouterr().err


def test_estimate_labels_the_clock_as_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock of ECP5 is never given as the board's."""
    monkeypatch.setattr(boards_build, "write_rtl", lambda *_: [])
    monkeypatch.setattr(synthesis, "synthesise", lambda *_: synthesis.Counts(lut=1))
    routed = ecp5.Routed(98.7, (), tmp_path / "x.bit", "", synthesis.Counts())
    monkeypatch.setattr(ecp5, "build", lambda *_: routed)
    assert cli.main(["build", "--stage", "estimate", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert re.search(r"clock proxy: 98\.7 MHz.*ECP5", output)
    assert "from memory" in output


def test_bitstream_without_vivado_is_refused_with_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 3; what could be made is there."""
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    flags = ["--board", "kv260", "--stage", "bitstream", "--out", str(tmp_path / "out")]
    assert cli.main(["build", *flags]) == 3
    assert "Vivado" in capsys.readouterr().err
    made = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"rtl", "design.tcl", "bitstream.tcl", "board.tcl", "engine.json"} <= made


FAKE_VIVADO = """#!/bin/sh
# Stands in for Vivado: leaves what bitstream.tcl would leave.
echo "$@"
case "$*" in *bitstream.tcl*) ;; *) exit 0;; esac
for last; do :; done
mkdir -p "$last" && cd "$last" || exit 1
echo bits > copal.bit; echo metadata > copal.hwh
printf 'vivado 2024.1\\nslack_ns 0.123\\n' > result.txt
"""


def test_bitstream_is_recorded_as_the_driver_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A built pair passes the driver's check; a changed one does not."""
    program = tmp_path / "bin" / "vivado"
    program.parent.mkdir()
    program.write_text(FAKE_VIVADO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    out = tmp_path / "out"
    board, engine = boards.get("pynq-z2"), EngineConfig(array_size=4, adam_lanes=2)
    boards_build.write_rtl(engine, out)
    boards_build.write_project(board, out)
    for _ in range(2):
        entry = boards_build.implement(board, engine, out)
    assert entry["slack_ns"] == 0.123
    assert entry["clock_mhz"] == 100
    assert entry["sources"] == boards_build.sources_hash(out / "rtl")
    assert len(json.loads((out / "manifest.json").read_text())["bitstreams"]) == 1
    bit = out / "copal-pynq-z2-16.bit"
    assert entry["files"][bit.name] == hashlib.sha256(b"bits\n").hexdigest()
    facts = overlay.Overlay(bit, "", "", "", "", {}, 26)
    assert overlay.check_manifest(facts) == json.loads(json.dumps(entry))
    bit.write_text("other")
    with pytest.raises(FpgaError, match="SHA-256"):
        overlay.check_manifest(facts)


def test_vivado_that_fails_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of its log is part of the error; nothing is recorded."""
    program = tmp_path / "vivado"
    program.write_text("#!/bin/sh\necho timing is not met\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(FpgaError, match="timing is not met"):
        boards_build.implement(boards.get("kv260"), EngineConfig(), tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def test_manifest_in_the_repository_lists_only_what_was_built() -> None:
    """Files of listed bitstreams carry a hash; nothing is listed that has none."""
    manifest = json.loads((ROOT / "bitstreams" / "manifest.json").read_text())
    for entry in manifest["bitstreams"]:
        assert entry["vivado"]
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in entry["files"].values())


def test_presets_have_the_lanes_that_are_told() -> None:
    """64, 256 and 1,024 lanes; another number of lanes keeps a valid engine, and its memories."""
    assert {b.name: b.preset.lanes for b in boards.BOARDS.values()} == {
        "pynq-z2": 64, "kv260": 256, "zcu104": 1024,
    }  # fmt: skip
    for board in boards.BOARDS.values():
        for lanes in (16, 64, 256, 1024):
            engine = boards.engine(board, lanes)
            assert engine.lanes == lanes
            bits = engine.array_size * engine.depths.a
            assert bits == board.preset.array_size * board.preset.depths.a
        with pytest.raises(ConfigError, match="lanes"):
            boards.engine(board, 100)


def test_missing_yosys_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 3 with the command of pip."""
    monkeypatch.setattr(tools, "_importable", lambda name: name != "pyosys")
    with pytest.raises(BackendUnavailableError, match="pyosys") as error:
        synthesis.synthesise([], "top", "xc7", tmp_path)
    assert tools.PIP in str(error.value)
    assert error.value.exit_code == 3


def test_default_build_is_a_board() -> None:
    """The command line's defaults name a known board."""
    assert BuildConfig().board in boards.BOARDS


@pytest.mark.parametrize("board", ["zcu104", "ecp5"])
def test_folder_that_cannot_be_made_is_named(board: str, tmp_path: Path) -> None:
    """The error names the setting, and is one of usage."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"`out`: expected a folder that can be made, got [A-Z]"):
        boards_build.run(BuildConfig(board=board, out=tmp_path / "file" / "out"))
    assert cli.main(["build", "--board", board, "--out", str(tmp_path / "file" / "out")]) == 2


def test_refused_lanes_leave_no_folder(tmp_path: Path) -> None:
    """Nothing is made before the settings are known to be right."""
    assert cli.main(["build", "--lanes", "12", "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_cache_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the cache that is named, not the run's folder or its checkpoints."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("COPAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="`COPAL_CACHE`: expected a folder that can be made"):
        build.build(EngineConfig())
