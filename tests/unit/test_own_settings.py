# SPDX-License-Identifier: MIT
"""Settings that only the algorithm knows: read by type, refused by name, recorded whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

import copal
from copal import algorithms
from copal.algorithms import registry
from copal.errors import ConfigError, UnknownNameError
from copal.runtime import own_settings, run_folder, settings
from copal.runtime.settings import settled


@dataclass(frozen=True)
class Settings:
    """One of each kind; `gamma` is TrainConfig's."""

    gamma: float = 0.5
    omega: float = 10.0
    heads: int = 2
    noisy: bool = False
    mode: Literal["soft", "hard"] = "soft"
    limit: float | None = None
    widths: tuple[int, ...] = (8, 4)
    tag: str = ""
    table: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.heads == 13:
            raise RuntimeError("unlucky")


class Own:
    """Never built."""

    name, config = "own", Settings
    defaults: ClassVar[Any] = {}

    def build(self, *_: Any) -> Any:
        raise AssertionError


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ALGORITHMS", dict(registry._ALGORITHMS))
    algorithms.register("own", Own)


def config(*texts: str, **options: Any) -> copal.TrainConfig:
    return copal.TrainConfig(algo="own", algo_settings=texts, **options)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("omega=5", 5.0),
        ("heads=3", 3),
        ("noisy=true", True),
        ("noisy=False", False),
        ("mode=hard", "hard"),
        ("limit=2.5", 2.5),
        ("limit=none", None),
        ("widths=3, 5", (3, 5)),
        ("widths=", ()),
        ("tag=a=b", "a=b"),
    ],
)
def test_values_are_read_by_their_types(text: str, value: Any) -> None:
    """And reach the algorithm's dataclass; a shared one comes from the run's own setting."""
    made = settings.algorithm_settings(config(text, gamma=0.9), Own())  # type: ignore[arg-type]
    name = text.partition("=")[0]
    assert (getattr(made, name), type(getattr(made, name))) == (value, type(value))
    assert made.gamma == 0.9
    again = settled(config(text))
    assert settled(again) == again


@pytest.mark.parametrize(
    ("texts", "kind", "words"),
    [
        (["omge=5"], UnknownNameError, ["did you mean `omega`", "`omge`"]),
        (["gamma=0.3"], ConfigError, ["--gamma 0.3"]),
        (["omega=much"], ConfigError, ["`omega` as float", "`much`"]),
        (["heads=2.5"], ConfigError, ["`heads` as int"]),
        (["noisy=maybe"], ConfigError, ["bool"]),
        (["mode=odd"], ConfigError, ["soft", "hard"]),
        (["widths=a"], ConfigError, ["tuple[int, ...]"]),
        (["table={}"], ConfigError, ["cannot be given as text"]),
        (["heads=13"], ConfigError, ["RuntimeError: unlucky"]),
    ],
)
def test_wrong_ones_are_named(texts: list[str], kind: type[Exception], words: list[str]) -> None:
    """With what would have been right."""
    with pytest.raises(kind) as caught:
        settings.algorithm_settings(config(*texts), Own())  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("given", ["omega=5", ("omega",), ("=5",), (5,), ("a=1", "a=2"), None])
def test_other_forms_are_refused(given: Any) -> None:
    """Before the algorithm is known."""
    with pytest.raises(ConfigError, match="algo_settings"):
        copal.TrainConfig(algo_settings=given)


def test_every_setting_is_recorded() -> None:
    """Those left alone, too; what text cannot express is left out."""
    found = settled(config("omega=5", "limit=1e-3")).algo_settings
    assert found == (
        "omega=5.0", "heads=2", "noisy=False", "mode=soft", "limit=0.001", "widths=8,4", "tag=",
    )  # fmt: skip


def test_our_own_algorithms_have_some() -> None:
    """Adam's epsilon; what the name decides is not among them."""
    assert own_settings.names(algorithms.get("dqn")) == ("adam_eps",)
    given = copal.TrainConfig(algo="sac", algo_settings=("adam_eps=1e-5",))
    made = settings.algorithm_settings(given, algorithms.get("sac"))
    assert made.adam_eps == 1e-5


def test_resumed_run_keeps_them(tmp_path: Path) -> None:
    """The same value in another spelling is taken, another value is refused."""
    saved = settled(config("omega=5", out=tmp_path))
    run_folder.prepare(saved)
    for texts in ([], ["omega=5.00"], ["heads=2"]):
        resumed = run_folder.settle(config(*texts, resume=tmp_path))
        assert resumed.algo_settings == saved.algo_settings
    for text in ("omega=6", "heads=3"):
        with pytest.raises(ConfigError, match=r"omega=5\.0.*as in the run that is resumed"):
            run_folder.settle(config(text, resume=tmp_path))
