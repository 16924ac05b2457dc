# SPDX-License-Identifier: MIT
"""The `copal` command, typed as a user types it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from copal import cli
from copal.config import TrainConfig

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--env", "CartPole-v1", "--steps", "700", "--learning-starts", "200", "--hidden", "16"]
BRIEF = ["--final-eval-episodes", "3", "--eval-interval", "0", "--no-tensorboard"]


def copal(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "copal.cli", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=cwd,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, by the names that CleanRL's users type."""
    out = tmp_path_factory.mktemp("cli") / "run"
    short = ["--learning-starts", "200", "--hidden", "16", *BRIEF]
    done = copal("train", "--env-id", "CartPole-v1", "--total-timesteps", 700, *short, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "mean return" in done.stdout
    return out


def test_no_verb_is_a_usage_error() -> None:
    """The verbs are listed, on stderr, with status 2."""
    done = copal()
    assert (done.returncode, done.stdout) == (2, "")
    assert "train" in done.stderr


def test_help_and_version_succeed() -> None:
    """`--help` lists verbs, a verb's `--help` lists flags with their defaults."""
    assert "devices" in copal("--help").stdout
    assert "replay" in copal("bench", "--help").stdout
    flags = copal("train", "--help").stdout
    assert "--update-interval" in flags
    assert "sac: " in flags, "the algorithms' own defaults"
    assert "--env-id" in flags
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", copal("--version").stdout)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["trian"], 2, "`train`"),
        (["bench", "reply"], 2, "`replay`"),
        (["train", "--steps", "many"], 2, "steps"),
        (["train", "--steps", "-3"], 2, "error: `steps`: expected an integer of at least 1"),
        (["train", "--bogus", "1"], 2, "--bogus"),
        (["train", "--env", "CartPole-v9"], 2, "`CartPole-v1`"),
        (["train", "--algo", "dqm"], 2, "`dqn`"),
        (["train", "--env", "Pendulum-v1"], 2, "SAC"),
        (["train", "--backend", "gpu"], 3, "--device emulate"),
        (["train", "--backend", "gpu", "--device", "sim"], 2, "cuda, emulate"),
        (["train", "--backend", "fpga", "--device", "simm"], 2, "sim, model, pynq"),
        (["train", "--device", "model"], 2, "add `--backend fpga`"),
        (["train", "--backend", "fpga", "--lanes", "65"], 2, "16, 64, 256, 1024"),
        (["train", "--backend", "fpga", "--device", "pynq"], 3, "copal devices"),
        (
            ["train", "--backend", "fpga", "--device", "model", "--learners", "2"],
            2,
            "--backend cpu",
        ),
        (["train", "--backend", "cpuu"], 2, "`cpu`"),
        (["train", "--batch-size", "0"], 2, "batch_size"),
        (["train", "--backend", "cuda"], 2, "did you mean `gpu`?"),
        (["train", "--backend", "gpu"], 3, "can be used here, got `gpu`: device cuda: "),
        (["train", "--env", "ALE/Pong-v5"], 2, "ale-py"),
        (["train", "--lr", "-1"], 2, "learning_rate"),
        (["train", "--algo", "sac", "--env", "CartPole-v1"], 2, "dqn"),
        (["train", "--algo", "sac", "--env", "Pendulum-v1", "--epsilon-end", "0.2"], 2, "dqn"),
        (["train", "--policy-delay", "3"], 2, "td3"),
        (["train", "--learners", "65"], 2, "batch_size = 64"),
        (["train", "--learner-mode", "async", "--deterministic"], 2, "learner_mode"),
        (["eval", "no-such-folder"], 2, "no-such-folder"),
        (["train", "--resume", "no-such-folder"], 2, "no-such-folder"),
    ],
)
def test_errors_say_what_to_do(args: list[str], code: int, says: str, tmp_path: Path) -> None:
    """Exit codes are those of the README, the message names the way out, no traceback is shown."""
    done = copal(*args, cwd=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert says in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """By a message, not a traceback; the file in the way stays."""
    (tmp_path / "file").write_text("mine")
    done = copal("train", *SMALL, "--out", tmp_path / "file" / "run")
    assert done.returncode == 2
    assert "`out`" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_an_error_nobody_foresaw_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless it is asked for."""

    def fails(_: object) -> int:
        raise ZeroDivisionError("by surprise")

    monkeypatch.setitem(cli.VERBS, "devices", (fails, ""))
    monkeypatch.delenv("COPAL_TRACEBACK", raising=False)
    assert cli.main(["devices"]) == 1
    assert "error: ZeroDivisionError: by surprise\nhint: COPAL_TRACEBACK" in capsys.readouterr().err

    def full(_: object) -> int:
        raise MemoryError

    monkeypatch.setitem(cli.VERBS, "devices", (full, ""))
    assert cli.main(["devices"]) == 1
    assert "error: not enough memory\nhint: choose a smaller --buffer" in capsys.readouterr().err
    monkeypatch.setitem(cli.VERBS, "devices", (fails, ""))
    monkeypatch.setenv("COPAL_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["devices"])


@pytest.mark.parametrize("args", [["train", "--help"], ["devices"]])
def test_output_that_nobody_reads_ends_quietly(args: list[str]) -> None:
    """`copal train --help | head`: no message, the status that a shell gives to SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "copal.cli", *args],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=240,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_shows_in_the_exit_status(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """As shells and schedulers expect it; the checkpoint is there, and how to go on with it."""
    out = tmp_path / "run"
    args = ["--env", "CartPole-v1", "--learning-starts", "200", "--out", str(out), *BRIEF]
    args += ["--hidden", "16", "--checkpoint-interval", "0"]
    run = subprocess.Popen(
        [sys.executable, "-m", "copal.cli", "train", "--steps", "1000000000", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit, metrics = time.monotonic() + 60, out / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)
    run.send_signal(number)
    text, errors = run.communicate(timeout=60)
    assert run.returncode == status, errors
    assert f"copal train --resume {out}" in text
    assert len(list((out / "checkpoints").iterdir())) == 1


def test_eval_scores_the_run(trained: Path) -> None:
    """`copal eval DIR` plays the kept policy, as text or as JSON."""
    assert "mean return" in copal("eval", trained, "--episodes", 2).stdout
    score = json.loads(copal("eval", trained, "--episodes", 2, "--json").stdout)
    assert len(score["returns"]) == 2
    assert score["mean"] == pytest.approx(sum(score["returns"]) / 2)


def test_eval_refuses_a_policy_of_another_kind(trained: Path) -> None:
    """Where an algorithm or environment is asked for; both are named."""
    done = copal("eval", trained, "--algo", "sac")
    assert done.returncode == 1
    assert "`sac`" in done.stderr
    assert "`dqn`" in done.stderr
    assert copal("eval", trained, "--env", "Pendulum-v1").returncode == 1


def test_continuous_actions_from_end_to_end(tmp_path: Path) -> None:
    """A short SAC run, with switches in both spellings, is scored and says what it used."""
    args = ["--algo", "sac", "--env", "Pendulum-v1", "--steps", "300", "--learning-starts", "100"]
    args += ["--hidden", "16", "16", "--batch-size", "32", "--no-prioritized", "--autotune", *BRIEF]
    done = copal("train", *args, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (stored["prioritized"], stored["autotune"], stored["huber"]) == (False, True, False)
    assert copal("eval", tmp_path / "run", "--episodes", 1, "--algo", "sac").returncode == 0


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--no-prioritized", "--huber"], ["--prioritized", "False", "--huber", "True"]),
        (["--huber", "False", "--steps", "3"], ["--huber", "False", "--steps", "3"]),
        (["--autotune", "--no-quiet"], ["--autotune", "True", "--no-quiet"]),
    ],
)
def test_switches_that_may_be_none_have_a_value(args: list[str], expected: list[str]) -> None:
    """On the command line they look like all others."""
    assert cli._spelt_out(args) == expected


def test_resume_goes_on(trained: Path) -> None:
    """`--resume DIR` takes the run's own settings; `--steps` may grow."""
    done = copal("train", "--resume", trained, "--steps", 900, *BRIEF)
    assert done.returncode == 0, done.stderr
    assert "900 env steps" in done.stdout


def test_resume_tells_a_value_that_was_typed_from_one_that_was_not(trained: Path) -> None:
    """`--gamma 0.99` is refused where the run has another one, though 0.99 is the default."""
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "gamma": 0.5}))
    done = copal("train", "--resume", trained, "--gamma", TrainConfig().gamma)
    (trained / "config.json").write_text(json.dumps(config))
    assert done.returncode == 2
    assert "`0.5`, as in the run that is resumed" in done.stderr


def test_an_existing_run_is_not_overwritten(trained: Path) -> None:
    """A folder with a run in it is refused unless it is resumed."""
    done = copal("train", *SMALL, *BRIEF, "--out", trained)
    assert done.returncode == 2
    assert "--resume" in done.stderr


def test_devices_lists_every_backend() -> None:
    """Each is available or says why not."""
    found = json.loads(copal("devices", "--json").stdout)
    assert found["cpu"] == "available"
    fpga = {"fpga", "fpga:sim", "fpga:model", "fpga:pynq"}
    gpu = {"gpu", "gpu:cuda", "gpu:emulate"}
    assert set(found) == {"cpu", "torch", "reference", *fpga, *gpu}
    assert "available" in copal("devices").stdout


def test_bench_replay_prints_json(tmp_path: Path) -> None:
    """`--json` gives machine, versions and rows; an absent peer is a row that says so."""
    done = copal(
        "bench", "replay", "--json", "--rows", 1000, "--batch-sizes", 32, "--rounds", 1,
        "--block-ms", 2, "--no-scaling", "--peers", "cpprb", "--peer-root", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"machine", "versions", "rows"} <= set(report)
    assert any(r["name"] == "copal-cpu" and r["us"] > 0 for r in report["rows"])
    assert any(r["name"] == "cpprb" and "absent" in r for r in report["rows"])


def test_bench_learner_names_its_rows() -> None:
    """The rows that users look for are there."""
    args = ["--json", "--hidden", "16", "16", "--batch-size", "8", "--rounds", "1"]
    report = json.loads(copal("bench", "learner", *args).stdout)
    rows = {r["name"]: r for r in report["rows"]}
    wanted = {"copal-cpu", "torch-eager-fused", "torch-compile", "numpy", "gemm-bound"}
    assert wanted <= set(rows)
    assert rows["copal-cpu"]["us"] > 0


def commands() -> list[str]:
    """Every `copal` command line of the README."""
    text = (ROOT / "README.md").read_text()
    return re.findall(r"^    (copal .*)$", text, re.MULTILINE)


@pytest.mark.parametrize("line", commands())
def test_readme_commands_parse(line: str) -> None:
    """Each flag of a README command exists: its verb's help names it."""
    words = shlex.split(line, comments=True)
    known = copal(words[1], "--help").stdout
    assert [w for w in words if w.startswith("--") and w not in known] == []
