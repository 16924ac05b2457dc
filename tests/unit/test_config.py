# SPDX-License-Identifier: MIT
"""Settings: defaults that hold, every bad value refused by name, JSON round trip."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from copal import algorithms
from copal import config as config_module
from copal.config import COUNTS, FALLBACKS, OPTIONAL, RESUMABLE, TrainConfig, resolve
from copal.errors import ConfigError
from copal.runtime import settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 2**62),
        ("policy_delay", 10**20),
        ("final_eval_episodes", 10**20),
        ("hidden", (10**10,)),
        ("fanout", 16.0),
        ("actors", 0),
        ("num_envs", -1),
        ("learners", 0),
        ("update_interval", 0.0),
        ("update_interval", float("nan")),
        ("update_interval", float("inf")),
        ("update_interval", 10**400),
        ("stop_at_return", 10**400),
        ("reward_scale", 1e39),
        ("exploration_noise", 1e39),
        ("batch_size", 0),
        ("seed", -1),
        ("seed", 2**64),
        ("update_interval", "often"),
        ("gamma", None),
        ("hidden", ()),
        ("hidden", (64, 0)),
        ("learning_rate", -1e-3),
        ("gamma", 1.01),
        ("gamma", float("nan")),
        ("max_grad_norm", -0.5),
        ("learner_mode", "both"),
        ("learner_mode", None),
        ("frame_stack", 0),
        ("actor_learning_rate", 0.0),
        ("reward_scale", 0.0),
        ("reward_scale", None),
        ("device", "model"),
        ("lanes", 64),
        ("clock_mhz", 100.0),
        ("normalize_observations", None),
        ("autotune", "yes"),
        ("policy_delay", 0),
        ("target_noise", -0.1),
        ("target_noise_clip", float("inf")),
        ("initial_temperature", 0.0),
        ("target_entropy", float("nan")),
        ("exploration_noise", "some"),
        ("target_tau", 0.0),
        ("target_tau", 1.5),
        ("target_update_interval", 0),
        ("buffer_size", 0),
        ("learning_starts", -1),
        ("alpha", 1.5),
        ("beta_start", -0.1),
        ("beta_end", 1.1),
        ("fanout", 3),
        ("n_step", 0),
        ("epsilon_start", 1.1),
        ("epsilon_end", -0.1),
        ("epsilon_fraction", 2.0),
        ("eval_interval", -1),
        ("eval_episodes", 0),
        ("final_eval_episodes", 0),
        ("checkpoint_interval", -5),
        ("keep_checkpoints", 0),
        ("stop_at_return", float("inf")),
        ("vectorization", "threads"),
        ("actors", 1.5),
        ("batch_size", True),
        ("env", dict),
        ("env", lambda: None),
        ("algo", None),
        ("backend", 1),
        ("vectorization", ["envpool"]),
        ("out", 3),
        ("resume", True),
        ("prioritized", "no"),
        ("hidden", 64),
        ("hidden", "64"),
        ("hidden", (64.0,)),
    ],
)
def test_value_out_of_range_is_named(name: str, value: Any) -> None:
    """The error's field is the setting that is wrong."""
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**{name: value})
    assert caught.value.field == name
    assert caught.value.expected
    assert caught.value.got


def test_every_count_has_a_bound() -> None:
    """What is an integer is a count or one of a few values; one beyond its bound is named."""
    whole = {f.name for f in dataclasses.fields(TrainConfig) if f.type in ("int", "int | None")}
    assert whole - {"fanout", "lanes"} | {"steps"} == set(COUNTS)
    for name, bounds in COUNTS.items():
        with pytest.raises(ConfigError, match=f"at most {bounds['at_most']:,}") as caught:
            TrainConfig(**{name: bounds["at_most"] + 1})
        assert caught.value.field == name


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"actors": 10**9}, "actors", rf"there are {os.cpu_count()} cores here"),
        ({"learners": 10**9, "learner_mode": "async"}, "learners", "cores here"),
        ({"actors": 1000, "num_envs": 1000}, "num_envs", "1,000 actors with 1,000 each"),
        ({"buffer_size": 10**15}, "buffer_size", "4,294,967,295"),
        ({"batch_size": 10**12}, "batch_size", "1,048,576"),
        ({"hidden": (10**9,)}, "hidden", "1 to 1,048,576"),
        ({"hidden": (8,) * 65}, "hidden", "1 to 64 widths"),
        ({"hidden": (20_000, 20_000)}, "hidden", "268,435,456 weights(.|\n)*copies"),
    ],
)
def test_what_no_machine_holds_is_refused(changes: Any, field: str, text: str) -> None:
    """Before anything is made, with the number that would do."""
    with pytest.raises(ConfigError, match=text) as caught:
        TrainConfig(**changes)
    assert caught.value.field == field


def test_environment_that_is_no_id_is_told_how_to_become_one() -> None:
    """A class or a factory has to be registered first."""
    with pytest.raises(ConfigError, match=r"an id as text(.|\n)*gymnasium\.register"):
        TrainConfig(env=object)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        {"learners": 65, "batch_size": 64},
        {
            "share_next_obs": True,
            "n_step": 7,
            "buffer_size": 64,
            "num_envs": 8,
            "learning_starts": 0,
        },
        {"batch_size": 65, "buffer_size": 64},
        {"learning_starts": 2_000, "buffer_size": 1_000, "steps": 5_000},
        {"deterministic": True, "vectorization": "envpool"},
        {"frame_stack": 4, "vectorization": "envpool"},
        {"learner_mode": "async", "deterministic": True},
        {"learner_mode": "async", "backend": "torch"},
        {"share_next_obs": True, "n_step": 4, "num_envs": 9, "buffer_size": 72, "steps": 9},
    ],
)
def test_values_that_do_not_go_together(values: dict[str, Any]) -> None:
    """Each is fine alone, but not with the other."""
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**values)
    assert caught.value.field in values


def test_json_round_trip(tmp_path: Path) -> None:
    """Everything comes back, tuples and paths with their types."""
    config = TrainConfig(hidden=(8, 9), out=tmp_path, stop_at_return=3.5, steps=7)
    again = TrainConfig.from_dict(json.loads(config.to_json()))
    assert again == config


def test_unknown_setting_is_named() -> None:
    """A file of another version does not load silently."""
    with pytest.raises(ConfigError, match="`momentum`"):
        TrainConfig.from_dict({"momentum": 0.9})


def test_every_setting_has_a_sentence() -> None:
    """Each field is followed by a string that ends like a sentence."""
    tree = ast.parse(inspect.getsource(config_module))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef))
    texts = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            texts[ast.unparse(field.target)] = ast.literal_eval(after.value)
    assert set(texts) == {f.name for f in dataclasses.fields(TrainConfig)}
    assert all(text.endswith(".") for text in texts.values())


def test_settings_that_may_change_exist() -> None:
    """No misspelt name in the list of what a resumed run may change."""
    assert {f.name for f in dataclasses.fields(TrainConfig)} >= RESUMABLE


def test_flags_of_other_frameworks_work() -> None:
    """`--env-id`, `--total-timesteps` and `--lr` mean ours."""
    parsed = tyro.cli(
        TrainConfig, args=["--env-id", "CartPole-v1", "--total-timesteps", "77", "--lr", "0.5"]
    )
    assert (parsed.env, parsed.steps, parsed.learning_rate) == ("CartPole-v1", 77, 0.5)


def test_paths_may_be_text_and_widths_a_list() -> None:
    """What people type in Python means the same as what the command line gives."""
    config = TrainConfig(out="runs/a", hidden=[32, 32])  # type: ignore[arg-type]
    assert config == TrainConfig(out=Path("runs/a"), hidden=(32, 32))


def test_what_is_left_open_is_the_algorithms() -> None:
    """Its own value, the general one where it has none, and what was set wins."""
    config = TrainConfig(learning_rate=0.25)
    resolved = resolve(config, {"learning_rate": 1.0, "batch_size": 7, "policy_delay": 3})
    assert (resolved.learning_rate, resolved.batch_size, resolved.policy_delay) == (0.25, 7, 3)
    assert resolved.buffer_size == FALLBACKS["buffer_size"]
    assert resolved.target_noise is None
    assert resolve(resolved, {"batch_size": 8}) == resolved


def test_values_that_do_not_go_together_once_they_are_known() -> None:
    """Three learners are fine, until the algorithm's batch has two rows."""
    with pytest.raises(ConfigError, match="at most batch_size = 2"):
        resolve(TrainConfig(learners=3), {"batch_size": 2})


@pytest.mark.parametrize(
    ("name", "value"),
    [("device", "board"), ("device", 1), ("lanes", 8), ("lanes", 64.0), ("clock_mhz", 0.0)],
)
def test_settings_of_an_engine_are_checked(name: str, value: Any) -> None:
    """Also where the backend has them."""
    with pytest.raises(ConfigError) as caught:
        TrainConfig(backend="fpga", **{name: value})
    assert caught.value.field == name


def test_defaults_are_settings() -> None:
    """An algorithm cannot set what does not exist."""
    with pytest.raises(ConfigError, match="`momentum`"):
        resolve(TrainConfig(), {"momentum": 0.9})


@pytest.mark.parametrize("name", algorithms.names())
def test_defaults_of_our_algorithms_leave_nothing_open(name: str) -> None:
    """Each of their own settings has a value, and only settings that may be open are named."""
    chosen = settings.settled(TrainConfig(algo=name))
    assert set(algorithms.get(name).defaults) <= OPTIONAL
    own = settings.algorithm_settings(chosen, algorithms.get(name))
    assert own.learning_rate == chosen.learning_rate
    assert own.huber == chosen.huber
    assert None not in (chosen.batch_size, chosen.buffer_size, chosen.prioritized, chosen.hidden)
    assert settings.settled(chosen) == chosen


@pytest.mark.parametrize(
    ("algo", "name", "value", "user"),
    [
        ("dqn", "policy_delay", 2, "td3"),
        ("sac", "target_noise", 0.1, "td3"),
        ("td3", "autotune", False, "sac"),
        ("double-dqn", "actor_learning_rate", 1e-3, "ddpg"),
    ],
)
def test_a_setting_that_is_not_used_is_refused(algo: str, name: str, value: Any, user: str) -> None:
    """The error names the algorithms that use it."""
    chosen = settings.settled(TrainConfig(algo=algo, **{name: value}))
    with pytest.raises(ConfigError, match=user) as caught:
        settings.algorithm_settings(chosen, algorithms.get(algo))
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("epsilon", "exploration_noise", 0.2),
        ("policy", "exploration_noise", 0.2),
        ("gaussian", "epsilon_end", 0.1),
        ("policy", "epsilon_fraction", 0.5),
    ],
)
def test_a_setting_of_another_exploration_is_refused(kind: str, name: str, value: Any) -> None:
    """Unless it has its default value, which says nothing."""
    with pytest.raises(ConfigError) as caught:
        settings.check_exploration(TrainConfig(**{name: value}), kind)
    assert caught.value.field == name
    settings.check_exploration(TrainConfig(), kind)


@pytest.mark.parametrize("name", ["gamma", "steps", "env", "out", "stop_at_return", "no_such"])
def test_default_that_an_algorithm_cannot_have_is_refused(name: str) -> None:
    """It would be ignored: only what is None in TrainConfig is the algorithm's to choose."""
    with pytest.raises(ConfigError, match=rf"`defaults`.*learning_rate.*`{name}`"):
        resolve(TrainConfig(), {"batch_size": 8, name: 0.9})


def test_asynchronous_learners_need_no_row_each() -> None:
    """Each of them draws whole batches."""
    assert TrainConfig(learner_mode="async", learners=3, batch_size=2).learners == 3


def test_numbers_of_numpy_become_plain_ones() -> None:
    """What NumPy computed is taken like Python's own numbers, and config.json can hold it."""
    config = TrainConfig(
        steps=np.int64(300),  # type: ignore[arg-type]
        learning_rate=np.float32(0.5),  # type: ignore[arg-type]
        deterministic=np.bool_(True),  # type: ignore[arg-type]
        hidden=np.array([8, 16]),  # type: ignore[arg-type]
    )

    again = TrainConfig.from_dict(json.loads(config.to_json()))

    assert again == TrainConfig(steps=300, learning_rate=0.5, deterministic=True, hidden=(8, 16))
    assert type(config.steps) is int
    assert type(config.deterministic) is bool
