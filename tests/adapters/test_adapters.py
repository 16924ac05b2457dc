# SPDX-License-Identifier: MIT
"""Each adapter in its framework, a test a case of the modules `in_<framework>.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PEERS = ("rllib", "sb3", "tianshou", "torchrl")


def cases(peer: str) -> list[str]:
    """Names of a framework's cases."""
    tree = ast.parse((HERE / f"in_{peer}.py").read_text(encoding="utf-8"))
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    return [name for name in names if name.startswith("case_")]


ALL = [pytest.param(peer, case, id=f"{peer}-{case[5:]}") for peer in PEERS for case in cases(peer)]


@pytest.mark.parametrize(("peer", "case"), ALL)
def test_case(outcomes: Callable[[str], dict[str, str]], peer: str, case: str) -> None:
    """The case passes in the framework's own environment."""
    assert outcomes(peer)[case] == ""


def test_import_of_the_package_needs_no_framework() -> None:
    """`copal.adapters` alone imports none of the frameworks, and not torch."""
    code = (
        "import copal.adapters, sys;"
        f"sys.exit(any(m in sys.modules for m in {(*PEERS, 'ray', 'torch')!r}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("peer", PEERS)
def test_a_missing_framework_is_named_with_its_command(peer: str) -> None:
    """Where the framework is not installed, the adapter's import says what to install."""
    code = (
        "import importlib.util, sys; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n in "
        f"('ray', 'stable_baselines3', 'tianshou', 'torchrl') else find(n, *a)\n"
        f"import copal.adapters.{peer}"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "PeerError" in done.stderr
    assert "pip install" in done.stderr


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework older than the adapter, or of a later major version, is refused by number."""
    from copal.adapters import _peer

    for version, fits in (("1.9.9", False), ("2.0.1", True), ("2.11.0", True), ("3.0.0", False)):
        monkeypatch.setattr(_peer.metadata, "version", lambda _, version=version: version)
        if fits:
            _peer.require("numpy", "tianshou", "2.0")
        else:
            with pytest.raises(_peer.PeerError, match=version):
                _peer.require("numpy", "tianshou", "2.0")
            with pytest.raises(ImportError):
                _peer.require("numpy", "tianshou", "2.0")
