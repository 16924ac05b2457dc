# SPDX-License-Identifier: MIT
"""The algorithm of docs/new_algorithm.md, as a user would have it: in a file beside them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import copal
from copal import algorithms
from copal.algorithms import registry
from copal.program.reference import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "new_algorithm.md"
MODULE = "my_algorithm"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's file in it."""
    (tmp_path / f"{MODULE}.py").write_text(code_blocks()[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setattr(registry, "_ALGORITHMS", dict(registry._ALGORITHMS))
    return tmp_path


def code_blocks() -> list[str]:
    """The Python on the page."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_page_trains_from_the_command_line(folder: Path) -> None:
    """A few hundred steps by the path of the object, and the policy that is left acts."""
    command = [sys.executable, "-m", "copal.cli", "train", "--algo", f"{MODULE}:algorithm"]
    command += ["--env", "CartPole-v1", "--steps", "600", "--learning-starts", "200"]
    command += ["--hidden", "16", "--final-eval-episodes", "2", "--out", "run", "--quiet"]
    command += ["--algo-settings", "omega=5"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    stored = json.loads((folder / "run" / "config.json").read_text())
    assert "omega=5.0" in stored["algo_settings"]
    policy = copal.Policy.load(folder / "run")
    assert policy.facts.algo == "mellowmax"
    assert policy.act(np.zeros(4, np.float32)) in (0, 1)


def test_page_trains_from_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second block of the page, with less to do: the algorithm's defaults are used."""
    monkeypatch.syspath_prepend(str(folder))
    text = code_blocks()[1].replace(
        "steps=50_000", "steps=400, learning_starts=200, hidden=(16,), quiet=True, out='run'"
    )
    exec(text, {})
    assert '"batch_size": 128' in (folder / "run" / "config.json").read_text()


def test_page_computes_mellowmax(folder: Path) -> None:
    """The captured target is that of the formula."""
    algorithm = algorithms.get(f"{MODULE}:algorithm")
    config = algorithm.config(hidden=(8,), omega=3.0)
    space = gym.spaces.Box(-1.0, 1.0, (3,))
    built = algorithm.build(space, gym.spaces.Discrete(4), config, 1)
    rng = np.random.default_rng(2)
    columns = {
        "obs": rng.normal(size=(5, 3)),
        "next_obs": rng.normal(size=(5, 3)),
        "action": rng.integers(4, size=5),
        "reward": rng.normal(size=5),
        "terminated": np.array([0, 0, 1, 0, 0]),
        "discount": np.full(5, 0.9),
        "weight": np.ones(5),
    }
    found = run(built.update.phases[0].program, built.parameters, columns).outputs["td_error"]
    values = [
        run(built.update.policy, built.parameters, {"obs": columns[n]}).outputs["q"]
        for n in ("obs", "next_obs")
    ]
    soft = np.log(np.exp(3.0 * values[1]).mean(1)) / 3.0
    y = columns["reward"] + columns["discount"] * (1 - columns["terminated"]) * soft
    expected = values[0][np.arange(5), columns["action"]] - y
    np.testing.assert_allclose(found, expected, atol=1e-9)
