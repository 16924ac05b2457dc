# SPDX-License-Identifier: MIT
"""Profiles: files that come back as they were, and what is refused."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from copal.codesign import document
from copal.codesign.profile import Cost, Curve, Overlap, Point, Profile
from copal.errors import PlanError
from copal.runtime import files

HERE = {"cpu": "A", "cores": 4, "isa": "avx2", "versions": {"copal": "0.1.0", "torch": "2"}}


def make(**changes: Any) -> Profile:
    """A profile of 4 cores."""
    points = tuple(
        Point(x, (90.0 * x, 100.0 * x, 130.0 * x), {"env": (9.0, 8.0, 7.0)}) for x in range(1, 5)
    )
    given = Profile(
        settings={"algo": "dqn", "env": "CartPole-v1", "hidden": [64, 64]},
        machine=HERE,
        cores=4,
        actors=Curve("", points),
        learners=(
            Curve("cpu", points),
            Curve("torch", points[:1], largest=1),
            Curve("gpu", (), absent="no GPU"),
            Curve("fpga", points[:1], "simulated: cycles at 100 MHz", 1, "", {"lanes": 64}),
        ),
        overlaps=(Overlap("cpu", 1, 1, (80.0, 81.0), (70.0, 72.0), {"update": (5.0, 0.0)}),),
        costs=(Cost("sample", "", (1.0, 2.0, 3.0)),),
        wake_us=40.0,
        repeats=3,
    )
    return dataclasses.replace(given, **changes)


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    """With every number, also into a folder that is new."""
    make().save(tmp_path / "deep" / "p.json")
    assert Profile.load(tmp_path / "deep" / "p.json") == make()


def test_median_and_spread_are_over_the_repetitions() -> None:
    """Of 90, 100 and 130."""
    point = make().actors.points[0]
    assert point.median == 100
    assert point.spread == pytest.approx(0.4)


def test_gaps_are_named() -> None:
    """Nothing is interpolated."""
    curve = make().actors
    gap = dataclasses.replace(curve, points=(curve.points[0], curve.points[3]))
    with pytest.raises(PlanError, match=r"f_a.*x = 2, 3[\s\S]*again"):
        gap.rates(4)


def test_nothing_is_extrapolated() -> None:
    """A curve that ends says where."""
    with pytest.raises(PlanError, match="ends at x = 4"):
        make().actors.rates(5)
    with pytest.raises(PlanError, match="f_l of cpu"):
        make().learners[0].rates(9)


def test_a_device_of_one_thread_has_no_gap() -> None:
    """One thread feeds it, whatever the cores."""
    assert make().learners[1].rates(55) == [100.0]


def test_another_machine_or_version_is_refused_with_the_differences() -> None:
    """Other versions than copal's own do not matter."""
    other = {**HERE, "isa": "avx512", "versions": {"copal": "0.2.0", "torch": "1"}}
    with pytest.raises(PlanError, match="--force") as caught:
        document.refuse_another("profile", other, HERE)
    assert "isa: `avx512` there, `avx2` here" in str(caught.value)
    assert "copal: `0.2.0` there" in str(caught.value)
    assert "torch" not in str(caught.value)
    document.refuse_another("profile", {**HERE, "memory_gib": 3}, HERE)
    document.refuse_another("profile", {}, HERE)


def test_short_form_gives_curves() -> None:
    """For machines on paper; a single rate stands for a device that one thread feeds."""
    data = {"env_steps_per_s": [1, 2, 3], "updates_per_s": {"cpu": [4, 5, 6], "gpu": [50]}}
    found = Profile.from_dict(data)
    assert found.cores == 3
    assert found.machine == {}
    assert found.actors.rates(3) == [1, 2, 3]
    assert found.learners[1].rates(3) == [50]
    assert found.learners[0].source == "given"


def test_gaps_in_the_short_form_are_null() -> None:
    """And refused once they are needed."""
    data = {"env_steps_per_s": [1, None, 3], "updates_per_s": {"cpu": [4, 5, 6]}}
    found = Profile.from_dict(data)
    assert found.actors.rates(1) == [1]
    with pytest.raises(PlanError, match="x = 2"):
        found.actors.rates(3)


BAD = [
    {"env_steps_per_s": [1, 2]},
    {"env_steps_per_s": [1, -2], "updates_per_s": {"cpu": [1]}},
    {"env_steps_per_s": [], "updates_per_s": {"cpu": [1]}},
    {"env_steps_per_s": [1], "updates_per_s": [1]},
    {"env_steps_per_s": "12", "updates_per_s": {"cpu": [1]}},
    {"env_steps_per_s": [1], "updates_per_s": {"cpu": [1]}, "colour": "red"},
    {"env_steps_per_s": [1], "updates_per_s": {"": [1]}},
    {"env_steps_per_s": ["1"], "updates_per_s": {"cpu": [1]}},
    {"env_steps_per_s": [1], "updates_per_s": {"cpu": [1]}, "cores": 1.5},
    {"env_steps_per_s": [1], "updates_per_s": {"cpu": [1]}, "settings": {"num_envs": "2"}},
    {"copal_profile": 99},
    {},
    {"copal_profile": 1, "settings": {}},
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_damaged_profiles_are_typed_errors(data: dict[str, Any]) -> None:
    """Whatever is missing or of another kind."""
    with pytest.raises(PlanError):
        Profile.from_dict(data)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "[" * 100_000])
def test_files_that_are_no_objects_are_refused(tmp_path: Path, text: str) -> None:
    """With the verb that writes a good one."""
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(PlanError, match="copal profile"):
        Profile.load(path)
    with pytest.raises(PlanError, match="copal profile"):
        Profile.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["actors"]["points"][0].update(rates=[]),
        lambda d: d["actors"]["points"][0].update(rates=[float("nan")]),
        lambda d: d["actors"]["points"][0].update(x=2),
        lambda d: d["learners"][0].pop("backend"),
        lambda d: d["costs"][0].update(colour=1),
        lambda d: d.update(cores=None),
        lambda d: d.update(cores=float("inf")),
        lambda d: d.update(cores=2.5),
        lambda d: d.update(wake_us=float("nan")),
        lambda d: d.update(wake_us=-1.0),
        lambda d: d.update(repeats=0),
        lambda d: d.update(machine=None),
        lambda d: d["machine"].update(versions=None),
        lambda d: d["settings"].update(num_envs="many"),
        lambda d: d["settings"].update(batch_size=-1),
        lambda d: d["actors"]["points"][0].update(rates="12"),
        lambda d: d["actors"]["points"][0].update(rates=[1e300]),
        lambda d: d["actors"]["points"][0].update(x=1.5),
        lambda d: d["actors"]["points"][0]["stages"].update(env=[float("nan")]),
        lambda d: d["learners"][0].update(backend="torch"),
        lambda d: d["learners"][0].update(backend=""),
        lambda d: d["learners"][0].update(largest=0),
        lambda d: d["overlaps"][0].update(actors=0),
        lambda d: d["overlaps"][0].update(interval=-1.0),
        lambda d: d["overlaps"][0]["stages"].update(update=[-5.0]),
    ],
)
def test_one_wrong_value_is_found(change: Any) -> None:
    """In every part of the file."""
    data = json.loads(json.dumps(make().to_dict()))
    change(data)
    with pytest.raises(PlanError, match="whole profile"):
        Profile.from_dict(data)


def test_what_is_wrong_is_named() -> None:
    """The key, the value, and what it has to be."""
    data = json.loads(json.dumps(make().to_dict()))
    data["overlaps"][0]["updates_per_s"][1] = -3.0
    with pytest.raises(PlanError, match=r"`updates_per_s` = -3\.0.*a number from"):
        Profile.from_dict(data)
    del data["overlaps"][0]["backend"]
    with pytest.raises(PlanError, match="no `backend`"):
        Profile.from_dict(data)


def test_devices_are_neither_read_to_their_end_nor_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/dev/zero` has no end; a file in the place of `/dev/null` would hurt the machine."""
    monkeypatch.setattr(document, "LARGEST_FILE", 1000)
    with pytest.raises(PlanError, match="more than 1,000"):
        Profile.load(Path("/dev/zero"))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(PlanError, match="a name that is free"):
            make().save(tmp_path / name)


def test_a_full_disk_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing beside it."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    make().save(tmp_path / "p.json")
    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(PlanError, match="make room"):
        make(cores=2).save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").cores == 4
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_unwritable_file_is_a_typed_error(tmp_path: Path) -> None:
    """A folder that is a file, for instance."""
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="out"):
        make().save(tmp_path / "file" / "p.json")
