# SPDX-License-Identifier: MIT
"""Rules of the house that a machine can hold."""

from __future__ import annotations

import re
import statistics
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = (".py", ".hpp", ".cpp", ".cu", ".x", ".v")


def tracked() -> list[Path]:
    """Files that git knows, or every source file where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def code_files() -> list[Path]:
    """Tracked source files."""
    return [p for p in tracked() if p.suffix in CODE]


def test_files_are_small() -> None:
    """Median file under 200 lines, none above 800."""
    lines = {p: len(p.read_text().splitlines()) for p in code_files()}
    assert [str(p) for p, n in lines.items() if n > 800] == []
    assert statistics.median(lines.values()) < 200


def test_every_source_file_names_its_licence() -> None:
    """The first line of each source file is an SPDX line."""
    lacking = [p for p in code_files() if "SPDX-License-Identifier: MIT" not in p.read_text()[:80]]
    assert [str(p.relative_to(ROOT)) for p in lacking] == []


def test_nothing_is_left_to_do() -> None:
    """No marker of unfinished work, and no path of one machine, in any tracked text."""
    unfinished = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    home = re.compile(r"(/ro" r"ot/|/ho" r"me/|/wo" r"rk/)")
    for path in tracked():
        if path.suffix in (*CODE, ".md", ".toml", ".txt", ".yml", ""):
            text = path.read_text()
            assert not unfinished.search(text), path
            assert not home.search(text), path


def test_readme_is_short_and_starts_with_commands() -> None:
    """At most 120 lines, with the first two commands within 30."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    head = "\n".join(lines[:30])
    assert "make train" in head
    assert "make test" in head


def test_readme_names_only_make_targets_that_exist() -> None:
    """Every `make x` of the documents is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        named = set(re.findall(r"(?:^\s*|`)make ([a-z-]+)", path.read_text(), re.MULTILINE))
        assert named <= targets, path
