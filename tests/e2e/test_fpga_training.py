# SPDX-License-Identifier: MIT
"""Training through the engine: exact resumes, faults, and the command line without the tools."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import copal
from copal import cli
from copal.backends.fpga import PUBLISH_INTERVAL, EngineLearner, FpgaBackend
from copal.errors import CheckpointError, ConfigError, FpgaError, FpgaTimeoutError
from copal.fpga import tools
from copal.fpga.device import Beats
from copal.fpga.model_device import ModelDevice
from runs import BARE, newest, resumes_exactly, runs_of, same_files

SMALL: dict[str, Any] = {
    **BARE,
    "backend": "fpga",
    "device": "model",
    "lanes": 16,
    "env": "CartPole-v1",
    "steps": 500,
    "learning_starts": 100,
    "buffer_size": 1_000,
    "batch_size": 13,
    "hidden": (12, 10),
    "eval_episodes": 2,
    "final_eval_episodes": 2,
}
PENDULUM: dict[str, Any] = {"env": "Pendulum-v1", "steps": 140}
small = runs_of(SMALL)


def records(out: Path, kind: str) -> list[dict[str, Any]]:
    """Records of metrics.jsonl of one kind."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


@pytest.mark.parametrize(
    "changes",
    [{}, {**PENDULUM, "algo": "td3"}, {**PENDULUM, "algo": "sac"}],
    ids=["dqn", "td3", "sac"],
)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Weights, moments and exponents of the engine go through the checkpoint."""
    config = small(tmp_path, **changes)
    whole = resumes_exactly(config, tmp_path / "copy", every=120)
    assert whole.updates == config.steps - 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"env": "Pendulum-v1", "algo": "td3"}, {"env": "Pendulum-v1", "algo": "sac"}],
    ids=["dqn", "td3", "sac"],
)
def test_rtl_trains_as_the_model_does(
    tmp_path: Path, changes: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """The same steps with either device end in the same bits: weights, moments, priorities."""
    reason = FpgaBackend("sim").unavailable()
    if reason is not None:
        pytest.skip(reason)
    runs = {
        device: copal.train(
            small(tmp_path, steps=130, deterministic=True, device=device,
                  out=tmp_path / device, **changes)
        )
        for device in ("sim", "model")
    }  # fmt: skip
    assert runs["sim"].updates == 30
    assert runs["sim"].returns == runs["model"].returns
    same_files(newest(tmp_path / "sim").path, newest(tmp_path / "model").path)
    assert runs["sim"].report == runs["model"].report, "cycles and bytes"
    said = capfd.readouterr().err
    assert ("building the simulator" in said) == ("built in" in said)


def test_run_with_threads_keeps_the_exact_weights(tmp_path: Path) -> None:
    """Actors get the weights now and then, the policy and the checkpoint hold the last ones."""
    result = copal.train(small(tmp_path, steps=403))
    assert result.updates == 303
    assert result.updates % PUBLISH_INTERVAL
    weights = newest(result.out).arrays("weights.safetensors")
    np.testing.assert_array_equal(result.best.weights, weights["q"])
    (*_, record) = records(result.out, "train")
    assert record["engine_cycles"] > 1000
    assert record["engine_bytes_received"] > 0
    assert record["loss"] >= 0
    assert "engine of 16 lanes" in result.summary()
    assert "at 100 MHz (simulated)" in result.summary()


def test_run_goes_on_with_another_backend(tmp_path: Path) -> None:
    """From the engine to the processor and back; settings of the engine go and come."""
    first = copal.train(small(tmp_path, steps=200))
    second = copal.train(
        copal.TrainConfig(resume=first.out, backend="cpu", steps=300, quiet=True),
        given={"backend", "steps"},
    )
    assert second.updates == 200
    settings = json.loads((first.out / "config.json").read_text())
    assert (settings["backend"], settings["device"], settings["lanes"]) == ("cpu", None, None)
    third = copal.train(
        copal.TrainConfig(resume=first.out, backend="fpga", device="model", steps=400, quiet=True),
        given={"backend", "device", "steps"},
    )
    assert third.updates == 300
    assert "engine of 64 lanes" in third.report


def test_settings_of_the_engine_are_those_of_the_run_that_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--device` and `--lanes` need no `--backend` then, and are refused if the run has another."""
    first = copal.train(small(tmp_path, steps=200))
    resume = ["train", "--quiet", "--resume", str(first.out)]
    assert cli.main([*resume, "--steps", "300", "--lanes", "64", "--device", "model"]) == 0
    assert "engine of 64 lanes" in capsys.readouterr().out
    for wrong in (["--device", "nonsense"], ["--lanes", "63"], ["--backend", "cpu"]):
        flags = [*resume, "--steps", "400", "--clock-mhz", "50", *wrong]
        assert cli.main(flags) == 2
        assert wrong[1] in capsys.readouterr().err
    assert json.loads((first.out / "config.json").read_text())["steps"] == 300


@pytest.mark.parametrize("damage", ["n_step", "folder"])
def test_a_run_that_does_not_begin_frees_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """A board is for the next run, whatever was wrong with this one."""
    first = copal.train(small(tmp_path, steps=200))
    opened: list[ModelDevice] = []

    class Noted(ModelDevice):
        """A model that is remembered."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            opened.append(self)

    monkeypatch.setattr("copal.fpga.model_device.ModelDevice", Noted)
    file = first.out / "config.json"
    if damage == "n_step":
        file.write_text(json.dumps({**json.loads(file.read_text()), "n_step": 3}))
    else:
        (first.out / ".config.json.new").mkdir()
    with pytest.raises((CheckpointError, ConfigError)):
        copal.train(copal.TrainConfig(resume=first.out, steps=300, quiet=True))
    with pytest.raises(FpgaError, match="one that was closed"):
        opened[0].read32(0)  # the others are of self-tests


class Slow(ModelDevice):
    """A model whose last update takes longer than others may."""

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """As the model, after a while."""
        if self._port.runs > 20:
            time.sleep(0.3)
        return super().exchange(tx, rx, timeout_s)


def test_the_end_of_a_run_waits_for_an_update_as_long_as_the_device_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated engine needs minutes for an update of a large network."""
    monkeypatch.setattr("copal.fpga.model_device.ModelDevice", Slow)
    monkeypatch.setattr("copal.runtime.trainer.STALL_S", 0.05)
    assert copal.train(small(tmp_path, steps=112)).updates == 12


class Silent(ModelDevice):
    """A model that stops answering in the middle of a run."""

    updates = 150

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """As the model, until it has run enough."""
        self.answering = self.model is not None and self._port.runs < 2 * self.updates
        return super().exchange(tx, rx, timeout_s)


@pytest.mark.parametrize("deterministic", [True, False])
def test_device_that_stops_answering_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    """The error names the transfer and the last checkpoint, from which the run goes on."""
    monkeypatch.setattr("copal.fpga.model_device.ModelDevice", Silent)
    config = small(tmp_path, checkpoint_interval=200, deterministic=deterministic)
    with pytest.raises(FpgaTimeoutError, match="transfer `") as caught:
        copal.train(config)
    assert "checkpoints/step_000000000" in caught.value.hint
    monkeypatch.undo()
    resumed = copal.train(copal.TrainConfig(resume=tmp_path / "run", quiet=True))
    assert (resumed.env_steps, resumed.updates) == (500, 400)


def test_warnings_of_the_engine_are_shown_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr and in metrics.jsonl."""
    given = [["3 % of the values of `a` were saturated"]]
    monkeypatch.setattr(EngineLearner, "messages", lambda _: given.pop() if given else [])
    result = copal.train(small(tmp_path, steps=150, quiet=False))
    assert "warning: 3 % of the values" in capsys.readouterr().err
    assert [r["text"] for r in records(result.out, "event")] == [
        "3 % of the values of `a` were saturated"
    ]


@pytest.mark.parametrize("lacking", ["xls", "verilator"])
def test_missing_tools_end_the_command_with_3(
    lacking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reason, and the pip command; the other devices are not touched."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        tools.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == lacking else find(name, *rest),
    )
    flags = ["train", "--env", "CartPole-v1", "--backend", "fpga", "--out", str(tmp_path / "run")]
    assert cli.main(flags) == 3
    err = capsys.readouterr().err
    assert "device sim" in err
    assert "pip install 'copal-rl[sim]'" in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert cli.main(["devices"]) == 0
    out = capsys.readouterr().out
    assert "unavailable: device sim" in out
    assert "  model    available" in out


def test_missing_compiler_ends_the_command_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes with the system's packages."""
    monkeypatch.setattr(tools.shutil, "which", lambda _: None)
    flags = ["train", "--env", "CartPole-v1", "--backend", "fpga", "--out", str(tmp_path / "run")]
    assert cli.main(flags) == 3
    assert "apt-get install g++ make perl" in capsys.readouterr().err


def test_settings_of_the_engine_need_it(tmp_path: Path) -> None:
    """A device without the backend is a mistake, not something to ignore."""
    with pytest.raises(ConfigError, match="--backend fpga"):
        small(tmp_path, backend="cpu")
    with pytest.raises(ConfigError, match="parallel learners"):
        copal.train(small(tmp_path, learners=2))
