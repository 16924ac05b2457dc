# SPDX-License-Identifier: MIT
"""Algorithms by name, by dotted path and registered; their defaults."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from copal import algorithms
from copal.algorithms import CommonConfig, registry
from copal.errors import ConfigError, UnknownNameError


def stand_in() -> Any:
    """Has the parts of an algorithm."""
    return SimpleNamespace(name="mine", config=CommonConfig, defaults={}, build=lambda *_: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, which is not on the import path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    return tmp_path


def test_names() -> None:
    """All that this version has."""
    assert algorithms.names() == ("dqn", "double-dqn", "ddpg", "td3", "sac")
    assert [algorithms.get(name.upper()).name for name in algorithms.names()] == list(
        algorithms.names()
    )


@pytest.mark.parametrize("name", ["dqn", "double-dqn", "ddpg", "td3", "sac"])
def test_defaults_agree_with_the_settings(name: str) -> None:
    """A run without settings is what the algorithm's own settings say."""
    algorithm = algorithms.get(name)
    settings = algorithm.config()
    found = dict(algorithm.defaults)
    shared = {f.name for f in fields(algorithm.config)} & set(found)
    assert {"hidden", "learning_rate", "huber", "target_tau", "max_grad_norm"} <= shared
    for field in shared:
        assert found[field] == (getattr(settings, field) or 0), field


def test_defaults_need_no_torch() -> None:
    """Help texts are printed without importing PyTorch."""
    code = (
        "import sys; from copal import algorithms as a\n"
        "print([dict(a.get(n).defaults) for n in a.names()]); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_dotted_path_in_the_current_folder(folder: Path) -> None:
    """A file beside the user, which a console script would not find by itself."""
    (folder / "mine_here.py").write_text(
        "from types import SimpleNamespace\n"
        "from copal.algorithms import CommonConfig\n"
        "class Kind:\n    name, config, defaults = 'mine', CommonConfig, {}\n"
        "    def build(self, *_): return self.name\n"
        "algorithm = Kind()\nnested = SimpleNamespace(kind=Kind)\n"
    )
    before = list(sys.path)
    assert algorithms.get("mine_here:algorithm").name == "mine"
    assert algorithms.get("mine_here:nested.kind").build(None, None) == "mine"
    assert sys.path == before


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("", "no_such_module_of_mine:algorithm", ["ModuleNotFoundError"]),
        ("import no_such_dependency", "broken_one:algorithm", ["no_such_dependency"]),
        ("1 / 0", "broken_two:algorithm", ["ZeroDivisionError"]),
        ("x = 1", "broken_three:algorithm", ["AttributeError", "algorithm"]),
        ("algorithm = 1", "broken_four:algorithm", ["without `name`", "new_algorithm"]),
        (
            "class algorithm: name, config, defaults, build = 'x', dict, {}, None",
            "broken_six:algorithm",
            ["dataclass"],
        ),
        (
            "from copal.algorithms import CommonConfig as C\n"
            "class algorithm: name, config, defaults, build = 'x', C(), {}, print",
            "broken_seven:algorithm",
            ["`config` is a dataclass"],
        ),
        (
            "from copal.algorithms import CommonConfig as C\n"
            "class algorithm: name, config, defaults, build = 'x', C, None, print",
            "broken_eight:algorithm",
            ["`defaults` is a mapping", "None"],
        ),
        (
            "from copal.algorithms import CommonConfig as C\n"
            "class algorithm: name, config, defaults, build = None, C, {}, print",
            "broken_nine:algorithm",
            ["`name`"],
        ),
        (
            "from copal.algorithms import CommonConfig as C\n"
            "class algorithm: name, config, defaults, build = 'x', C, {}, 3",
            "broken_ten:algorithm",
            ["`build`"],
        ),
        (
            "class algorithm:\n    def __init__(self, needed): pass",
            "broken_eleven:algorithm",
            ["TypeError", "needed"],
        ),
        ("", "broken_five:", ["AttributeError"]),
        ("", ":algorithm", ["ValueError"]),
    ],
)
def test_dotted_path_that_fails(folder: Path, text: str, path: str, words: list[str]) -> None:
    """Whatever goes wrong while importing is a typed error that names the path."""
    if path.startswith("broken"):
        (folder / f"{path.split(':')[0]}.py").write_text(text)
    with pytest.raises(ConfigError) as caught:
        algorithms.get(path)
    assert caught.value.field == "algo"
    for word in [f"`{path}", *words]:
        assert word in str(caught.value)


def test_registered_algorithm_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name in any case, and among the names; it may be registered again."""
    monkeypatch.setattr(registry, "_ALGORITHMS", dict(registry._ALGORITHMS))
    mine = stand_in()
    algorithms.register("Mine", lambda: mine)
    assert algorithms.get("mine") is algorithms.get("MINE") is mine
    assert "mine" in algorithms.names()
    other = stand_in()
    algorithms.register("mine", lambda: other)
    assert algorithms.get("mine") is other


@pytest.mark.parametrize("name", ["sac", "DQN", "ddqn", "a:b", ""])
def test_name_that_cannot_be_registered(name: str) -> None:
    """Ours stay what they are."""
    with pytest.raises(ConfigError, match="`name`"):
        algorithms.register(name, stand_in)


def test_factory_of_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out when the algorithm is asked for."""
    monkeypatch.setattr(registry, "_ALGORITHMS", dict(registry._ALGORITHMS))
    algorithms.register("half", lambda: SimpleNamespace(name="half", config=dict))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="without `defaults`"):
        algorithms.get("half")


def test_unknown_name_names_the_way_to_an_own_one() -> None:
    """Near matches first, then the dotted path."""
    with pytest.raises(UnknownNameError, match=r"did you mean `sac`\?.*my_module:algorithm"):
        algorithms.get("sacc")
