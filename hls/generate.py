# SPDX-License-Identifier: MIT
"""Generates the Verilog of one engine: DSLX, compiled by XLS, and the parameters of the shells.

    python generate.py PARAMETERS.json OUT

A DSLX source imports the numbers of this engine from `params`, a file that is written first. A lane
or a row is generated once; the shells in `rtl` instantiate it as often as the engine has it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
DSLX = HERE / "dslx"
RTL = HERE / "rtl"


class GenerateError(RuntimeError):
    """A source cannot be compiled, or the compiler is not installed."""


class MissingToolError(GenerateError):
    """The XLS compiler or SciPy is not installed."""


@dataclass(frozen=True)
class Module:
    """One DSLX file `<name>.x` whose function or proc `<name>` becomes a Verilog module."""

    name: str
    """Name of the file, of the function or proc in it, and of the Verilog module."""
    stages: str = ""
    """Parameter that holds the number of pipeline stages; `STAGES_<NAME>` if empty."""
    proc: bool = False
    """A proc with channels of valid and ready, rather than a function."""
    flop_outputs: bool = True
    """Whether the outputs get registers. A proc whose outputs are state needs none."""
    flop_inputs: bool = False
    """Whether the inputs get registers: one cycle more."""
    fabric: bool = False
    """Whether the stages are chosen by the delays of an FPGA, `fabric.py`, not by XLS."""
    held: tuple[str, ...] = ()
    """Inputs of such a module that stay the same while anything is in the pipeline."""

    def depth(self, parameters: Mapping[str, int]) -> int:
        """Pipeline stages. A function's results are `depth` cycles behind its operands."""
        return parameters[self.stages or f"STAGES_{self.name.upper()}"]


#: Options of XLS for whatever it translates.
PLAIN = {
    "with_delay_model": True,
    "delay_model": "asap7",
    "use_system_verilog": False,
    "add_invariant_assertions": False,
}
#: Arguments of `adam` that change only while no UPDATE is under way.
SCALARS = ("beta1", "c1", "beta2", "c2", "alpha", "eps", "tau", "c_tau", "scale")
#: What an engine consists of.
MODULES = (
    Module("decode"),
    Module("seq", proc=True),
    Module("rotate"),
    Module("row", proc=True, flop_inputs=True, flop_outputs=False),
    Module("drain", proc=True),
    Module("pick"),
    Module("post"),
    Module("skew"),
    Module("ranges"),
    Module("gather"),
    Module("squares", fabric=True),
    Module("shrink", fabric=True),
    Module("vec", fabric=True),
    Module("adam", fabric=True, held=SCALARS),
)


def generate(
    parameters: Mapping[str, int], out: Path, modules: tuple[Module, ...] = MODULES
) -> list[Path]:
    """Writes the Verilog of one engine.

    Args:
        parameters: Numbers by name, as `EngineConfig.parameters` of the Python package gives them.
        out: Folder to write to; made if it is absent.
        modules: What to generate; the hand-written shells are listed in any case.

    Returns:
        All Verilog files of the engine: the header `copal_params.vh`, generated ones, shells.

    Raises:
        MissingToolError: The XLS compiler or SciPy is not installed.
        GenerateError: A DSLX source does not compile; names the module and what XLS said.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / "params.x").write_text(dslx_parameters(parameters))
    xls = _xls() if modules else None
    written, widths = [], {}
    for module in modules:
        path = out / f"{module.name}.v"
        text = compile_module(module, parameters, out, xls)
        path.write_text(text)
        written.append(path)
        widths[f"BITS_OF_{module.name.upper()}"] = output_bits(text, module.name)
    header, shells = out / "copal_params.vh", sorted(RTL.glob("*.v"))
    build = build_number(parameters, [*written, *shells])
    header.write_text(verilog_parameters({**parameters, **widths, "BUILD": build}))
    return [header, *written, *shells]


def build_number(parameters: Mapping[str, int], files: Iterable[Path]) -> int:
    """A hash of an engine's parameters and Verilog, below 2^31: its register BUILD."""
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big") >> 1


def output_bits(text: str, module: str) -> int:
    """Bits of the widest output port of a generated module: its result."""
    text = text[text.index(f"module {module}(") :]
    return max(int(bits) + 1 for bits in re.findall(r"output wire \[(\d+):0\]", text))


def verilog_parameters(parameters: Mapping[str, int]) -> str:
    """The numbers as macros `COPAL_<NAME>`."""
    lines = [f"`define COPAL_{name} {value}" for name, value in sorted(parameters.items())]
    return "\n".join(["`ifndef COPAL_P", *lines, "`endif", ""])


def dslx_parameters(parameters: Mapping[str, int]) -> str:
    """The numbers as public DSLX constants of type u32."""
    return "".join(f"pub const {k} = u32:{v};\n" for k, v in sorted(parameters.items()))


def compile_module(
    module: Module, parameters: Mapping[str, int], folder: Path, xls: ModuleType | None = None
) -> str:
    """Compiles one module.

    Args:
        module: What to compile.
        parameters: Numbers by name.
        folder: Where `params.x` lies.
        xls: The compiler's package; imported if None.

    Returns:
        Verilog text.

    Raises:
        MissingToolError: The XLS compiler or SciPy is not installed.
        GenerateError: The source does not compile.
    """
    xls = xls or _xls()
    options: dict[str, Any] = {
        "generator": "pipeline",
        "module_name": module.name,
        "pipeline_stages": module.depth(parameters),
        "flop_inputs": module.flop_inputs,
        "flop_outputs": module.flop_outputs,
        **PLAIN,
    }
    if module.proc:
        options |= {
            "worst_case_throughput": 1,
            "reset": "rst",
            "streaming_channel_data_suffix": "",
            "streaming_channel_valid_suffix": "_valid",
            "streaming_channel_ready_suffix": "_ready",
        }
    try:
        package = intermediate(module, folder, xls)
        if module.fabric:
            return _staged(module, package, module.depth(parameters), xls)
        text: str = package.schedule_and_codegen(**options).get_verilog_text()
    except MissingToolError:
        raise
    except Exception as error:  # whatever class XLS has for a failed compilation
        raise GenerateError(f"{module.name}.x: {error}") from error
    return text


def intermediate(module: Module, folder: Path, xls: ModuleType | None = None) -> Any:
    """The optimised XLS package of one module, its top set; tests feed it to the XLS JIT.

    Args:
        module: What to convert.
        folder: Where `params.x` lies.
        xls: The compiler's package; imported if None.
    """
    xls = xls or _xls()
    path = DSLX / f"{module.name}.x"
    ir = xls.convert_dslx_to_ir(
        path.read_text(),
        path.name,
        module.name,
        additional_search_paths=[str(folder), str(DSLX)],
    )
    name = module.name
    top = f"__{name}__{name}_0_next" if module.proc else xls.mangle_dslx_name(name, name)
    package = xls.Package.parse_ir(xls.optimize_ir(ir, top))
    package.set_top(top)
    return package


def _staged(module: Module, package: Any, stages: int, xls: ModuleType) -> str:
    """Verilog of a function whose stages are chosen by the delays of an FPGA."""
    fabric = _fabric()
    function = fabric.parse(package.to_string())
    plan = fabric.schedule(function, stages, module.held)

    def translate(text: str, name: str) -> str:
        part = xls.Package.parse_ir(text)
        part.set_top(name)
        options = {"generator": "combinational", "module_name": name, **PLAIN}
        translated: str = part.schedule_and_codegen(**options).get_verilog_text()
        return translated

    text: str = fabric.verilog(module.name, function, plan, module.held, translate)
    return text


def _fabric() -> ModuleType:
    """The module `fabric.py` beside this one."""
    name = "copal_hls_fabric"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "fabric.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except ImportError as error:
            del sys.modules[name]
            raise MissingToolError(f"scipy cannot be imported: {error}") from error
    return sys.modules[name]


def _xls() -> ModuleType:
    try:
        import xls
    except ImportError as error:
        raise MissingToolError(f"the XLS compiler cannot be imported: {error}") from error
    found: ModuleType = xls
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Generate the Verilog of one engine.")
    parser.add_argument("parameters", type=Path, help="JSON: numbers by name")
    parser.add_argument("out", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    for path in generate(json.loads(arguments.parameters.read_text()), arguments.out):
        print(path)


if __name__ == "__main__":
    main()
