# SPDX-License-Identifier: MIT
"""Profile, allocate and train by the plan, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from copal import cli
from copal.codesign import config, rig
from copal.codesign import train as planned
from copal.errors import BackendUnavailableError, ConfigError
from copal.gpu import open as gpu

SIZES = ["--env", "CartPole-v1", "--hidden", "16", "--batch-size", "16"]
BRIEF = [
    *("--learning-starts", "200", "--eval-interval", "0", "--final-eval-episodes", "2"),
    *("--no-tensorboard", "--quiet"),
]


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr(config, "allowed_cpus", lambda: [0, 1])


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A brief profile of the cpu backend."""
    out = tmp_path_factory.mktemp("codesign") / "profile.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "allowed_cpus", lambda: [0, 1])
        flags = ["--backends", "cpu", "fpga", "--repeats", "1", "--seconds", "0.6", "--quiet"]
        assert cli.main(["profile", *SIZES, *flags, "--out", str(out)]) == 0
    return out


@pytest.fixture
def plan(profile: Path, tmp_path: Path) -> Path:
    """The plan for it."""
    out = tmp_path / "plan.json"
    assert cli.main(["allocate", str(profile), "--out", str(out)]) == 0
    return out


def test_from_profile_to_a_run_beside_its_prediction(
    profile: Path, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run takes everything from the plan, and ends with predicted against achieved."""
    capsys.readouterr()
    out = tmp_path / "run"
    flags = ["--plan", str(plan), "--steps", "9000", *BRIEF, "--out", str(out)]
    assert cli.main(["train", *flags, "--buffer-size", "100000"]) == 0
    printed = capsys.readouterr().out
    assert "mean return" in printed
    assert "predicted against achieved" in printed
    settings = json.loads((out / "config.json").read_text())
    assert settings["env"] == "CartPole-v1"
    assert settings["hidden"] == [16]
    assert settings["actors"] == settings["learners"] == 1
    assert json.loads((out / "plan.json").read_text()) == json.loads(plan.read_text())
    achieved = json.loads((out / "achieved.json").read_text())
    assert achieved["predicted"]["env_steps_per_s"] > 0
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert any("env_s" in record for record in metrics)


def test_allocate_prints_the_choice_and_the_reason(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON, with a picture."""
    pytest.importorskip("matplotlib")
    capsys.readouterr()
    flags = ["--out", str(tmp_path / "p.json"), "--plot", str(tmp_path / "c.png")]
    assert cli.main(["allocate", str(profile), *flags]) == 0
    printed = capsys.readouterr().out
    assert "chosen: 1 actor and 1 learner on cpu" in printed
    assert "predicted:" in printed
    assert "fpga" in printed
    assert "simulated" in printed
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["allocate", str(profile), "--json", *flags[:2]]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"]["backend"] == "cpu"


def test_a_contradiction_to_the_plan_is_refused(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its name and status 2; what agrees is taken."""
    for flags in (
        ["--env", "Acrobot-v1"],
        ["--actors", "2"],
        ["--update-interval", "4"],
        ["--backend", "torch"],
        ["--hidden", "8"],
        ["--deterministic"],
        ["--actors", "auto"],
    ):
        assert cli.main(["train", "--plan", str(plan), *flags]) == 2
        assert flags[0].lstrip("-").replace("-", "_") in capsys.readouterr().err


def test_a_backend_that_has_gone_ends_with_status_3(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one of which only the simulation is here."""
    data = json.loads(plan.read_text())
    data["chosen"] |= {"backend": "fpga", "options": {"device": "pynq"}}
    plan.write_text(json.dumps(data))
    assert cli.main(["train", "--plan", str(plan), "--out", str(tmp_path / "r")]) == 3
    assert "pynq" in capsys.readouterr().err
    data["chosen"]["source"] = "simulated: cycles"
    plan.write_text(json.dumps(data))
    assert cli.main(["train", "--plan", str(plan), "--out", str(tmp_path / "r")]) == 3
    assert "--simulated" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_another_machine_or_version_needs_force(
    profile: Path, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the profile and of the plan; what differs is said."""
    data = json.loads(profile.read_text())
    data["machine"]["versions"]["copal"] = "9.9"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(data))
    out = ["--out", str(tmp_path / "p.json")]
    assert cli.main(["allocate", str(other), *out]) == 2
    assert "9.9" in capsys.readouterr().err
    assert cli.main(["allocate", str(other), "--force", *out]) == 0
    assert cli.main(["train", "--plan", str(tmp_path / "p.json")]) == 2
    assert "--force" in capsys.readouterr().err


def test_given_curves_are_allocated_but_not_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They do not say for what."""
    curves = tmp_path / "curves.json"
    rates = [100.0 * x for x in range(1, 57)]
    curves.write_text(json.dumps({"env_steps_per_s": rates, "updates_per_s": {"cpu": rates}}))
    plan = tmp_path / "plan.json"
    assert cli.main(["allocate", str(curves), "--cores", "56", "--out", str(plan)]) == 0
    assert "28 actors and 28 learners on cpu" in capsys.readouterr().out
    assert cli.main(["train", "--plan", str(plan)]) == 2
    assert "copal profile" in capsys.readouterr().err


def test_auto_measures_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sides, briefly; the run folder holds the plan that it made."""
    monkeypatch.setattr(planned, "AUTO_S", 0.3)
    monkeypatch.setattr(planned, "AUTO_REPEATS", 1)
    out = tmp_path / "run"
    flags = ["--actors", "auto", "--learners=auto", "--steps", "1500", *SIZES, *BRIEF]
    assert cli.main(["train", *flags, "--out", str(out)]) == 0
    assert "predicted against achieved" in capsys.readouterr().out
    assert json.loads((out / "plan.json").read_text())["chosen"]["allocation"]["actors"] == 1


def test_an_interrupted_profile_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was measured before is kept, and the same command completes it."""
    out = tmp_path / "profile.json"
    flags = ["profile", *SIZES, "--repeats", "1", "--seconds", "0.4", "--quiet", "--out", str(out)]
    measure, measured = rig.Rig.measure, []

    def interrupted(self: rig.Rig, *arguments: Any, **named: Any) -> Any:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(measure(self, *arguments, **named))
        return measured[-1]

    with monkeypatch.context() as patch:
        patch.setattr(rig.Rig, "measure", interrupted)
        assert cli.main(flags) == 130
    assert "the same command goes on" in capsys.readouterr().err
    before = json.loads(out.read_text())["actors"]["points"]
    assert len(before) == 2
    assert cli.main(flags) == 0
    assert json.loads(out.read_text())["actors"]["points"] == before


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        (["--deterministic"], 2, "`auto` finds how many"),
        (["--backend", "fpga"], 2, "a number with backend `fpga`"),
        (["--backend", "gpu"], 3, "`--device emulate`"),
        (["--actors", "500"], 2, "one is for the other side"),
    ],
)
def test_auto_refuses_what_measuring_would_not_help(
    flags: list[str],
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before it measures for some seconds; a backend that is not here ends as it always does."""
    monkeypatch.setattr(planned, "measure", lambda _: pytest.fail("measured"))
    monkeypatch.setitem(gpu.TABLE.kinds, "cuda", (lambda: "no GPU", None))
    auto = ["--learners", "auto", *([] if "--actors" in flags else ["--actors", "auto"])]
    assert cli.main(["train", *auto, *flags, "--steps", "100"]) == status
    assert says in capsys.readouterr().err


def test_the_bench_prints_predicted_beside_achieved(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each case; one that cannot run says why."""
    flags = ["--cases", "dqn:CartPole-v1", "dqn:Nowhere-v0", "--rounds", "1", "--json"]
    brief = ["--hidden", "16", "--batch-size", "16", "--profile-seconds", "0.5", "--seconds", "4"]
    assert cli.main(["bench", "codesign", *flags, *brief]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["dqn:CartPole-v1"]["predicted"] > 0
    assert rows["dqn:CartPole-v1"]["achieved"] > 0
    assert "Nowhere-v0" in rows["dqn:Nowhere-v0"]["absent"]


def test_python_users_get_the_same_errors(plan: Path) -> None:
    """Typed, from the functions behind the verbs."""
    from copal.codesign.plan import Plan
    from copal.config import TrainConfig

    loaded = Plan.load(plan)
    with pytest.raises(ConfigError, match="algo"):
        planned.follow(TrainConfig(algo="sac"), loaded, {"algo"})
    changed: dict[str, Any] = loaded.to_dict()
    changed["chosen"]["source"] = "simulated"
    with pytest.raises(BackendUnavailableError):
        planned.train(TrainConfig(), Plan.from_dict(changed))
