# SPDX-License-Identifier: MIT
"""Imports run one way through the packages, and what must stay light stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "host" / "copal"

#: A package may import itself and every package of an earlier row.
LAYERS = (
    ("errors",),
    ("bounds",),
    ("builds", "config", "devices", "native"),
    ("envs", "replay", "program"),
    ("adapters", "algorithms", "fpga", "gpu"),
    ("backends",),
    ("runtime",),
    ("bench",),
    ("codesign",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    """Every module of the package but its public face, which may import all of them."""
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def imported(path: Path) -> Iterator[str]:
    """Parts of copal that the module at `path` imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            # Drivers of other frameworks run without copal, as a package of their own.
            assert node.level == 0 or path.parent.name == "drivers", f"{path}: relative import"
            module = node.module or ""
            if module == "copal":
                yield from (alias.name for alias in node.names)
            elif module.startswith("copal."):
                yield module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("copal."))


def violations(name: str, imports: Iterator[str]) -> list[str]:
    """The imports of part `name` that run against the layers."""
    return [
        other
        for other in imports
        if other != name and other in LEVEL and LEVEL[other] >= LEVEL[name]
    ]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    """No module imports a later layer, or a neighbour of its own one."""
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if name.startswith("__"):
        return
    assert name in LEVEL, f"`{name}` has no place in LAYERS"
    assert violations(name, imported(path)) == []


def test_a_backward_import_is_noticed() -> None:
    """The rule itself can fail."""
    assert violations("replay", iter(["runtime", "errors", "replay", "envs"])) == [
        "runtime",
        "envs",
    ]


def test_import_copal_is_light() -> None:
    """`import copal` brings in neither torch nor gymnasium."""
    code = "import copal, sys; sys.exit(any(m in sys.modules for m in ('torch', 'gymnasium')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_native_headers_know_nothing_of_python() -> None:
    """Only the bindings include Python, nanobind or NumPy."""
    headers = sorted((ROOT / "host" / "native").glob("*.hpp"))
    assert headers
    for header in headers:
        text = header.read_text()
        assert "Python.h" not in text, header
        assert "nanobind" not in text, header
        assert "numpy" not in text, header


def test_extension_does_not_link_torch() -> None:
    """The extension's needed libraries are the C and C++ run time only."""
    from copal.native import native

    data = Path(str(native.__file__)).read_bytes()
    assert b"libtorch" not in data
    assert b"libc10" not in data
