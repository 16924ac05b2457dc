# SPDX-License-Identifier: MIT
"""Measuring: what a profile holds, how it is resumed, and what is refused. No figure is judged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import image_env
from copal.codesign import config, measure, rig
from copal.codesign.config import ProfileConfig
from copal.codesign.measure import splits, tasks
from copal.codesign.profile import Profile
from copal.config import TrainConfig
from copal.errors import ConfigError, PlanError, UnknownNameError
from copal.native import native

BACKENDS = ("cpu", "torch", "gpu", "fpga")


def brief(path: Path, **changes: Any) -> ProfileConfig:
    """A profile of a small network that takes a second or two."""
    values: dict[str, Any] = {
        "env": "CartPole-v1",
        "hidden": (16,),
        "batch_size": 16,
        "buffer_size": 2_000,
        "backends": BACKENDS,
        "repeats": 1,
        "seconds": 0.5,
        "quiet": True,
        "out": path,
    }
    return ProfileConfig(**{**values, **changes})


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr(config, "allowed_cpus", lambda: [0, 1])
    monkeypatch.setattr(rig, "WARM_S", 0.02)


@pytest.fixture(scope="module")
def parts() -> Iterator[rig.Rig]:
    """Two actors and a replay."""
    settings = TrainConfig(
        env="CartPole-v1", hidden=(16,), batch_size=16, buffer_size=1_000, actors=2
    )
    with rig.Rig(settings, "cpu") as made:
        made.fill(seconds=0.2)
        yield made


def test_profile_of_four_backends(tmp_path: Path) -> None:
    """Every point, every reason, every stage; then completed, and refused where it does not fit."""
    path = tmp_path / "profile.json"
    found = measure.measure(brief(path))
    assert Profile.load(path) == found
    assert [p.x for p in found.actors.points] == [1, 2]
    cpu, torch, gpu, fpga = found.learners
    assert [p.x for p in cpu.points] == [1, 2]
    assert [p.x for p in torch.points] == [1]
    assert gpu.absent or gpu.points
    assert fpga.simulated
    assert "cycles of the RTL" in fpga.source
    assert "100 MHz" in fpga.source
    assert all(len(p.rates) == 1 for c in (found.actors, cpu, torch) for p in c.points)
    both = {(o.backend, o.actors, o.learners) for o in found.overlaps}
    assert {("cpu", 1, 1), ("torch", 1, 1)} <= both
    assert all(len(o.held_steps_per_s) == 1 for o in found.overlaps)
    stages = {(c.backend, c.stage) for c in found.costs}
    assert {("", "env"), ("", "inference"), ("", "insert")} <= stages
    for name in ("sample", "update", "priority", "row_program", "reduce"):
        assert {("cpu", name), ("torch", name)} <= stages
    assert found.wake_us > 0
    # Another repetition is added to what is there, and nothing else is measured anew.
    more = measure.measure(brief(path, repeats=2))
    assert [p.rates[:1] for p in more.actors.points] == [p.rates for p in found.actors.points]
    assert all(len(p.rates) == 2 for p in more.actors.points)
    assert measure.measure(brief(path, repeats=2)) == more
    with pytest.raises(ConfigError, match="hidden"):
        measure.measure(brief(path, hidden=(32,)))
    data = json.loads(path.read_text())
    data["machine"]["cpu"] = "another one"
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match="another one"):
        measure.measure(brief(path))


def test_asynchronous_learners_are_of_the_cpu_backend(tmp_path: Path) -> None:
    """Others are absent, with the reason."""
    config = brief(tmp_path / "p.json", backends=("cpu", "torch"), learner_mode="async")
    found = measure.measure(config)
    assert [p.x for p in found.learners[0].points] == [1, 2]
    assert "asynchronous" in found.learners[1].absent


def test_an_algorithm_for_torch_alone_is_measured_there(tmp_path: Path) -> None:
    """The cpu backend is absent, and says which operation it lacks."""
    image_env.register()
    config = brief(tmp_path / "p.json", env="Halves-v0", backends=("cpu", "torch"))
    cpu, torch = measure.measure(config).learners
    assert "--backend torch" in cpu.absent
    assert torch.points


def test_an_interrupted_profile_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each measurement is kept at once."""
    path = tmp_path / "profile.json"
    run, calls = rig.Rig.measure, []

    def interrupted(self: rig.Rig, *args: Any, **more: Any) -> rig.Sample:
        calls.append(args[0])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(self, *args, **more)

    monkeypatch.setattr(rig.Rig, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure.measure(brief(path, backends=("cpu",)))
    half = Profile.load(path)
    assert len(half.actors.points) == 2
    assert not half.costs
    done = measure.measure(brief(path, backends=("cpu",)))
    assert done.actors == half.actors
    assert len(calls) == 3 + 4  # both at once is measured without a gate and with one
    assert done.costs


def test_the_replay_is_full_of_real_rows(parts: rig.Rig) -> None:
    """Copies make up for what the actors could not bring in time."""
    assert len(parts.replay) == 1_000
    batch = parts.replay.sample(256, beta=0.0)
    assert np.abs(batch["obs"]).max() < 10
    assert set(np.unique(batch["reward"])) == {1.0}


def test_sides_run_alone_and_together(parts: rig.Rig) -> None:
    """Who is not asked for does nothing, and the gate holds a ratio where there is one."""
    learner = parts.learner("cpu", 1)
    acting = parts.measure(2, None, 0, 0.1)
    assert acting.env_steps_per_s > 0
    assert acting.updates_per_s == 0
    assert {"env", "inference", "insert", "gate"} == set(acting.stages)
    learning = parts.measure(0, learner, 1, 0.1)
    assert learning.env_steps_per_s == 0
    assert learning.updates_per_s > 0
    assert {"sample", "update", "priority"} <= set(learning.stages)
    both = parts.measure(1, learner, 1, 0.1)
    assert both.env_steps_per_s > 0
    assert both.updates_per_s > 0
    gate = native.RatioGate(4.0, 0, 8)
    held = parts.measure(1, learner, 1, 0.3, gate=gate)
    assert held.env_steps_per_s / held.updates_per_s == pytest.approx(4.0, rel=0.4)


def test_a_failing_environment_is_an_error(parts: rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a run, and the next measurement is not hurt."""

    def fail(actions: Any) -> None:
        raise RuntimeError("broken environment")

    with monkeypatch.context() as broken:
        broken.setattr(parts._parts.actors[0].environments, "step", fail)
        with pytest.raises(RuntimeError, match="broken environment"):
            parts.measure(1, None, 0, 0.1)
    parts._parts.actors[0].error = None
    assert parts.measure(1, None, 0, 0.05).env_steps_per_s > 0


def test_splits_reach_from_one_actor_to_one_learner() -> None:
    """Five at most."""
    assert splits(2) == [1]
    assert splits(3) == [1, 2]
    assert splits(56) == [1, 14, 28, 42, 55]


def test_tasks_of_many_cores_are_every_point() -> None:
    """Nothing in between is left to guess."""
    from copal.codesign.profile import Curve

    profile = Profile({}, {}, 8, Curve("", ()), (Curve("cpu", (), largest=64),))
    found = list(tasks(profile))
    assert [t.actors for t in found if not t.learners] == list(range(1, 9))
    assert [t.learners for t in found if not t.actors] == list(range(1, 9))
    assert all(t.actors + t.learners == 8 for t in found if t.actors and t.learners)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"backends": ()}, ConfigError, "backends"),
        ({"backends": ("cpu", "cpu")}, ConfigError, "each once"),
        ({"repeats": 0}, ConfigError, "repeats"),
        ({"repeats": 10**9}, ConfigError, "at most 1,000"),
        ({"seconds": 0.0}, ConfigError, "seconds"),
        ({"cores": 1}, PlanError, "cores"),
        ({"cores": 0}, PlanError, "--actors 1 --learners 1"),
        ({"cores": 99}, PlanError, "copal allocate --cores"),
        ({"actors": 3}, ConfigError, "helps to decide"),
        ({"batch_size": 0}, ConfigError, "batch_size"),
        (
            {"device": "sim", "backends": ("cpu",)},
            ConfigError,
            "add `--backends fpga` or `--backends gpu`",
        ),
    ],
)
def test_bad_settings_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], match: str
) -> None:
    """Before anything runs."""
    with pytest.raises(error, match=match):
        brief(tmp_path / "p.json", **changes)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    """Backends as well as environments."""
    with pytest.raises(UnknownNameError, match="torch"):
        measure.measure(brief(tmp_path / "p.json", backends=("pytorch",)))


def test_a_single_core_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do instead."""
    monkeypatch.setattr(config, "allowed_cpus", lambda: [0])
    with pytest.raises(PlanError, match="--actors 1 --learners 1"):
        measure.measure(brief(tmp_path / "p.json"))


def test_given_curves_are_not_completed(tmp_path: Path) -> None:
    """They are of no machine."""
    path = tmp_path / "p.json"
    path.write_text('{"env_steps_per_s": [1, 2], "updates_per_s": {"cpu": [1, 2]}}')
    with pytest.raises(PlanError, match="given curves"):
        measure.measure(brief(path))


def test_training_settings_are_those_of_a_run() -> None:
    """Nothing of the profile's own goes into them."""
    made = ProfileConfig(env="CartPole-v1", n_step=3, quiet=True).training()
    assert type(made) is TrainConfig
    assert made == dataclasses.replace(TrainConfig(), env="CartPole-v1", n_step=3, quiet=True)
