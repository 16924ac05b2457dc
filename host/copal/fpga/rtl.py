# SPDX-License-Identifier: MIT
"""Generates an engine's Verilog by `hls/generate.py`, which knows nothing of this package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from copal.errors import BackendUnavailableError, FpgaError
from copal.fpga import tools
from copal.fpga.config import EngineConfig


def generate(config: EngineConfig, out: Path, only: Sequence[str] = ()) -> list[Path]:
    """Writes the Verilog of one engine.

    Args:
        config: The engine.
        out: Folder to write to; made if it is absent.
        only: Names of files: DSLX modules that are not among them are left out. None: all.

    Returns:
        Verilog files: the header, generated ones, and shells.

    Raises:
        BackendUnavailableError: The XLS compiler is missing.
        FpgaError: A source does not compile; says which and why.
    """
    hls = generator()
    chosen = tuple(m for m in hls.MODULES if not only or f"{m.name}.v" in only)
    try:
        written: list[Path] = hls.generate(config.parameters(), out, chosen)
    except hls.MissingToolError as error:
        raise BackendUnavailableError("xls", "the XLS compiler", str(error), tools.PIP) from error
    except hls.GenerateError as error:
        raise FpgaError("hls", "sources that compile", str(error)) from error
    return written


def generator() -> ModuleType:
    """The module `hls/generate.py`."""
    name = "copal_hls_generate"
    if name not in sys.modules:
        path = tools.root() / "hls" / "generate.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
