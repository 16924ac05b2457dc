# SPDX-License-Identifier: MIT
"""Whole runs: learning, exact resume, threads, faults, signals."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import copal
import counting_env
from copal.errors import (
    CheckpointError,
    ConfigError,
    EnvironmentFailedError,
    LearnerFailedError,
    UnknownNameError,
)
from copal.runtime import files, judge, machine
from copal.runtime.checkpoint import CheckpointStore, load
from copal.runtime.evaluation import Score, play
from runs import BARE, newest, resumed_equals, runs_of, same_files

TESTS = Path(__file__).resolve().parents[1]

SMALL: dict[str, Any] = {
    **BARE,
    "env": "CartPole-v1",
    "steps": 1_200,
    "learning_starts": 200,
    "buffer_size": 1_000,
    "batch_size": 16,
    "hidden": (16, 16),
    "eval_episodes": 2,
    "final_eval_episodes": 2,
}


@pytest.fixture(autouse=True)
def _environments() -> None:
    counting_env.register()
    counting_env.Counting.arm()


small = runs_of(SMALL)


def test_learns_cartpole(tmp_path: Path) -> None:
    """A seeded run of one thread reaches a mean return of 195, the bar for a solved CartPole."""
    result = copal.train(
        copal.TrainConfig(
            env="CartPole-v1",
            steps=20_000,
            deterministic=True,
            seed=3,
            learning_starts=500,
            batch_size=64,
            hidden=(64, 64),
            learning_rate=1e-3,
            update_interval=2,
            epsilon_fraction=0.3,
            stop_at_return=195.0,
            eval_interval=2_000,
            final_eval_episodes=20,
            out=tmp_path / "run",
            tensorboard=False,
            quiet=True,
        )
    )
    assert result.mean_return >= 195
    assert result.stop_reason in ("return", "steps")
    # The saved policy is the one that was scored.
    again = copal.evaluate(result.out, episodes=20, seed=5)
    assert again.mean >= 150
    policy = copal.load_policy(result.out)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    assert policy.act(obs) == result.policy(obs) in (0, 1)
    assert policy.act(np.stack([obs, -obs])).shape == (2,)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"actors": 2, "num_envs": 2, "learners": 2, "update_interval": 2.0},
        {"n_step": 3, "share_next_obs": True, "update_interval": 0.5},
        {"n_step": 3, "share_next_obs": True, "actors": 2, "num_envs": 2},
        {"prioritized": False, "algo": "double-dqn", "target_tau": 1.0, "env": "CountingCut-v0"},
    ],
    ids=["plain", "parallel", "n-step", "parallel n-step", "uniform"],
)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, changes: dict[str, Any]) -> None:
    """From any of its checkpoints a deterministic run reaches the same bits at the end."""
    config = small(
        tmp_path,
        deterministic=True,
        checkpoint_interval=500,
        keep_checkpoints=9,
        eval_interval=400,
        **changes,
    )
    whole = copal.train(config)
    middle = sorted((whole.out / "checkpoints").iterdir())[:-1]
    assert [p.name[-4:] for p in middle] == ["0500", "1000"]
    for i, checkpoint in enumerate(middle):
        resumed_equals(whole, checkpoint, tmp_path / f"copy{i}")


def test_evaluation_cut_by_a_signal_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed, the run evaluates the same policy first and ends with the same bits."""
    changes: dict[str, Any] = {"deterministic": True, "eval_interval": 400}
    whole = copal.train(small(tmp_path, **changes, out=tmp_path / "whole"))
    sent: list[int] = []

    def interrupted(*args: Any, **options: Any) -> Any:
        sent.append(signal.SIGINT)
        if len(sent) == 1:
            os.kill(os.getpid(), sent[0])
        return play(*args, **options)

    monkeypatch.setattr(judge, "play", interrupted)
    cut = copal.train(small(tmp_path, **changes))
    assert (cut.stop_reason, cut.env_steps) == ("SIGINT", 400)
    assert "policy (of step 400, not evaluated)" in cut.summary()
    kept = copal.Policy.load(cut.out)
    np.testing.assert_array_equal(kept.weights, cut.best.weights)
    assert len(copal.evaluate(cut.out, episodes=2).returns) == 2
    resumed = copal.train(copal.TrainConfig(resume=cut.out, quiet=True))
    assert resumed.returns == whole.returns
    assert "not evaluated" not in resumed.summary()
    same_files(newest(whole.out).path, newest(cut.out).path)


def test_messages_name_the_policy_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new best, one that only seemed so, an unconfirmed and a confirmed return."""
    means = iter([5.0, 5.0, 9.0, 3.0, 12.0, 12.0, 8.0, 11.0, 10.5, 10.0, 4.0, 11.0])

    def scripted(policy: Any, episodes: int, *_: Any, **__: Any) -> Score:
        del policy
        return Score.of([next(means)] * episodes, [1] * episodes)

    monkeypatch.setattr(judge, "play", scripted)
    changes = {"eval_interval": 200, "stop_at_return": 10.0, "deterministic": True}
    result = copal.train(small(tmp_path, quiet=False, final_eval_episodes=3, **changes))
    lines = [x.split(": ")[1] for x in capsys.readouterr().err.splitlines() if ": " in x]
    assert lines == [
        "return 5.0 over 8 episodes (a new best, checked)",
        "return 4.5 over 8 episodes (seemed a new best, is not)",
        "return 12.0 over 8 episodes (a new best, checked)",
        "8.0 over 3 further episodes does not confirm 10",
        "return 11.0 over 2 episodes",
        "10.5 over 3 further episodes confirms 10",
    ]
    assert (result.stop_reason, result.best_at) == ("return", 800)
    first = result.summary().splitlines()[0]
    assert first == "solved: mean return 10.0 +- 0.0 over 3 episodes, by the policy of step 800"
    found = newest(result.out)
    assert (found.counters["best_at"], found.counters["env_steps"]) == (800, 800)


def test_same_seed_same_bits_other_seed_others(tmp_path: Path) -> None:
    """Two deterministic runs agree in every file; another seed gives other weights."""
    runs = [
        copal.train(small(tmp_path, deterministic=True, out=tmp_path / name, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    found = [newest(r.out) for r in runs]
    same_files(found[0].path, found[1].path)
    weights = [f.arrays("weights.safetensors")["q"] for f in found]
    assert not np.array_equal(weights[0], weights[2])


def test_evaluations_do_not_change_the_training(tmp_path: Path) -> None:
    """With and without evaluations in between, the weights at the end are the same bits."""
    weights = [
        newest(
            copal.train(
                small(tmp_path, deterministic=True, out=tmp_path / f"{every}", eval_interval=every)
            ).out
        ).arrays("weights.safetensors")
        for every in (0, 100)
    ]
    np.testing.assert_array_equal(weights[0]["q"], weights[1]["q"])


@pytest.mark.parametrize("update_interval", [0.5, 1.0, 4.0])
def test_ratio_of_steps_to_updates(tmp_path: Path, update_interval: float) -> None:
    """All threads running, the ratio is exact at the end and within 2 % on the way."""
    steps = 4_000
    result = copal.train(
        small(
            tmp_path,
            steps=steps,
            update_interval=update_interval,
            actors=2,
            learners=2,
            checkpoint_interval=1_500,
        )
    )
    assert result.env_steps == steps
    assert result.updates == (steps - 200) // update_interval
    middle = load(min((result.out / "checkpoints").iterdir()))
    after, updates = middle.counters["env_steps"] - 200, middle.counters["updates"]
    assert after / updates == pytest.approx(update_interval, rel=0.02)


@pytest.mark.parametrize("backend", ["cpu", "torch", "reference"])
def test_every_backend_trains_and_resumes(tmp_path: Path, backend: str) -> None:
    """Threads, a checkpoint, then more steps from it, with growing counters."""
    changes = {"backend": backend, "steps": 600, "update_interval": 4.0, "actors": 2}
    first = copal.train(small(tmp_path, **changes))
    assert (first.env_steps, first.updates, first.stop_reason) == (600, 100, "steps")
    again = copal.train(copal.TrainConfig(resume=first.out, steps=1_000))
    assert (again.env_steps, again.updates) == (1_000, 200)
    assert len(again.returns) == 2


@pytest.mark.parametrize("workers", [(1, 1), (3, 1), (2, 3)])
def test_parallel_actors_and_learners(tmp_path: Path, workers: tuple[int, int]) -> None:
    """Any number of either fills the replay with whole transitions and ends in time."""
    actors, learners = workers
    result = copal.train(
        small(
            tmp_path, env="Counting-v0", actors=actors, learners=learners, num_envs=2, steps=1_200
        )
    )
    assert result.env_steps == 1_200
    replay = copal.PrioritizedReplay.load(newest(result.out).path / "replay.bin")
    batch = replay.sample(512, beta=0.4)
    assert (batch["next_obs"][:, 0] == batch["obs"][:, 0] + 1).all()
    assert (batch["next_obs"][:, 1] == batch["obs"][:, 1]).all()
    assert (batch["terminated"] == (batch["next_obs"][:, 0] == 7)).all()


@pytest.mark.parametrize("share_next_obs", [False, True])
@pytest.mark.parametrize("n_step", [1, 4])
def test_first_update_waits_for_a_row_to_draw(
    tmp_path: Path, n_step: int, share_next_obs: bool
) -> None:
    """With `learning_starts=0` too: no episode has ended when the first row is complete."""
    config = small(
        tmp_path,
        env="Acrobot-v1",
        deterministic=True,
        steps=60,
        num_envs=2,
        learning_starts=0,
        n_step=n_step,
        share_next_obs=share_next_obs,
        final_eval_episodes=1,
        update_interval=0.5,
    )
    assert copal.train(config).updates > 60


@pytest.mark.parametrize(("starts", "updates"), [(500, 0), (299, 0), (296, 1)])
def test_run_too_short_to_learn_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], starts: int, updates: int
) -> None:
    """Exactly where no update runs."""
    changes = {"learning_starts": starts, "update_interval": 4.0, "deterministic": True}
    result = copal.train(small(tmp_path, steps=300, quiet=False, **changes))
    assert result.updates == updates
    assert ("no update will run" in capsys.readouterr().err) == (updates == 0)


def test_byte_observations_are_learnt_from(tmp_path: Path) -> None:
    """A vector of bytes, such as a console's memory, is taken as numbers."""
    gymnasium.register("Bytes-v0", lambda: counting_env.Bytes(counting_env.Counting()))
    try:
        result = copal.train(small(tmp_path, env="Bytes-v0", steps=400))
        assert result.updates == 200
        replay = copal.PrioritizedReplay.load(newest(result.out).path / "replay.bin")
        assert set(replay.column("next_obs")[:, 0]) == set(range(1, 8))
        assert result.policy(np.array([3, 200], np.uint8)) in (0, 1)
    finally:
        del gymnasium.registry["Bytes-v0"]


@pytest.mark.parametrize("deterministic", [True, False])
def test_crashing_environment_is_replaced(tmp_path: Path, deterministic: bool) -> None:
    """Two crashes apart cost two instances and no step; no transition spans a crash."""
    counting_env.Counting.arm(crash_at={101, 400})
    config = small(tmp_path, env="Counting-v0", deterministic=deterministic, steps=800, n_step=2)
    result = copal.train(config)
    assert (result.env_restarts, result.env_steps, result.stop_reason) == (2, 800, "steps")
    replay = copal.PrioritizedReplay.load(newest(result.out).path / "replay.bin")
    batch = replay.sample(512, beta=0.4)
    assert (batch["next_obs"][:, 1] == batch["obs"][:, 1]).all()
    records = [json.loads(x) for x in (result.out / "metrics.jsonl").read_text().splitlines()]
    assert [r["env_restarts"] for r in records if r["kind"] == "train"][-1] == 2


@pytest.mark.parametrize("deterministic", [True, False])
def test_replaced_environments_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], deterministic: bool
) -> None:
    """The first, second and fourth with reason and stream, not each; the summary counts them."""
    counting_env.Counting.arm(nan_at=range(100, 800, 100))
    config = small(tmp_path, env="Counting-v0", steps=800, deterministic=deterministic, quiet=False)
    result = copal.train(config)
    warnings = [x for x in capsys.readouterr().err.splitlines() if x.startswith("warning")]
    assert [x.split("(")[-1] for x in warnings] == ["1 so far)", "2 so far)", "4 so far)"]
    assert all("`Counting-v0`, stream 0, was replaced: ValueError" in x for x in warnings)
    assert "NaN" in warnings[0]
    assert "\n7 environments failed and were replaced\n" in result.summary()


@pytest.mark.parametrize("deterministic", [True, False])
def test_three_crashes_in_a_row_stop_the_run(tmp_path: Path, deterministic: bool) -> None:
    """The error names the cause, and the checkpoint before it loads and goes on."""
    counting_env.Counting.arm(crash_at=range(4_000, 4_100))
    config = small(
        tmp_path,
        env="Counting-v0",
        deterministic=deterministic,
        steps=5_000,
        update_interval=4.0,
        checkpoint_interval=250,
    )
    with pytest.raises(EnvironmentFailedError, match="the simulator broke down"):
        copal.train(config)
    assert newest(tmp_path / "run").counters["env_steps"] in range(250, 4_001)
    counting_env.Counting.arm()
    result = copal.train(copal.TrainConfig(resume=tmp_path / "run"))
    assert result.env_steps == 5_000


@pytest.mark.parametrize("deterministic", [True, False])
def test_failed_learner_stops_the_run(tmp_path: Path, deterministic: bool) -> None:
    """Weights that overflow end the run with a typed error, the checkpoint before it intact."""
    first = copal.train(small(tmp_path, deterministic=deterministic))
    found = newest(first.out)
    weights = found.arrays("weights.safetensors")
    weights["q"][:] = 1e30
    store = CheckpointStore(first.out / "checkpoints")
    with store.writing(1_201) as folder:
        for path in found.path.iterdir():
            if path.name != "manifest":
                shutil.copy(path, folder)
        files.write_arrays(folder / "weights.safetensors", weights)
    store.seal(folder, 1_201, found.counters)
    with pytest.raises(LearnerFailedError):
        copal.train(copal.TrainConfig(resume=first.out, steps=2_000))
    assert newest(first.out).path.name.endswith("1201")


@pytest.mark.parametrize("n_step", [1, 3, 7])
def test_first_update_finds_a_row_to_draw(tmp_path: Path, n_step: int) -> None:
    """Rows that wait for their n-step return and shared observation put the first update off."""
    changes = {"num_envs": 3, "actors": 2, "n_step": n_step, "share_next_obs": True}
    result = copal.train(
        small(tmp_path, steps=300, learning_starts=0, deterministic=True, **changes)
    )
    assert result.updates > 0


def test_smallest_ring_for_shared_observations_is_never_empty(tmp_path: Path) -> None:
    """Short episodes, whose ends take a row each, in the smallest ring that is allowed."""
    changes = {"num_envs": 4, "actors": 2, "n_step": 3, "share_next_obs": True}
    tiny = {**changes, "env": "Counting-v0", "learning_starts": 48, "deterministic": True}
    with pytest.raises(ConfigError, match="buffer_size"):
        small(tmp_path, buffer_size=48, **tiny)
    result = copal.train(small(tmp_path, steps=600, buffer_size=49, **tiny))
    assert result.env_steps == 600


def test_failing_last_evaluation_does_not_cost_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is written all the same."""

    def fails(*_: Any, **__: Any) -> None:
        raise EnvironmentFailedError("env", "an episode", "none")

    monkeypatch.setattr("copal.runtime.judge.play", fails)
    with pytest.raises(EnvironmentFailedError):
        copal.train(small(tmp_path, steps=400))
    assert newest(tmp_path / "run").counters["env_steps"] == 400


@pytest.mark.parametrize("deterministic", [True, False])
def test_full_disk_ends_the_run_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    """The one being written goes, the one before it can be resumed."""
    config = small(tmp_path, checkpoint_interval=300, deterministic=deterministic)
    write, calls = files.write_arrays, []

    def full(path: Path, arrays: Any) -> None:
        calls.append(path)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, arrays)

    monkeypatch.setattr(files, "write_arrays", full)
    with pytest.raises(CheckpointError, match="No space left"):
        copal.train(config)
    monkeypatch.setattr(files, "write_arrays", write)
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1
    resumed = copal.train(copal.TrainConfig(resume=tmp_path / "run", quiet=True))
    assert resumed.env_steps >= 1_200


def test_damaged_checkpoint_falls_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A truncated replay in the newest checkpoint: the one before it, and stderr says so."""
    first = copal.train(small(tmp_path, deterministic=True, checkpoint_interval=600))
    path = newest(first.out).path / "replay.bin"
    path.write_bytes(path.read_bytes()[:-100])
    again = copal.train(copal.TrainConfig(resume=first.out, quiet=False, steps=1_400))
    assert again.env_steps == 1_400
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [{"env": "Acrobot-v1"}, {"algo": "double-dqn"}, {"hidden": (8,)}, {"seed": 9}, {"n_step": 2}],
)
def test_resuming_with_other_settings_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The error names the setting, and the run's folder stays as it was."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_text(small(tmp_path).to_json())
    with pytest.raises(ConfigError) as caught:
        copal.train(copal.TrainConfig(resume=out, **changes))
    assert caught.value.field == next(iter(changes))
    assert [p.name for p in out.iterdir()] == ["config.json"]


@pytest.mark.parametrize("content", ["[]", "[" * 100_000, "5", "{"])
def test_settings_that_are_none_are_refused(tmp_path: Path, content: str) -> None:
    """A config.json that holds something else is a damaged run."""
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match="`resume`"):
        copal.train(copal.TrainConfig(resume=tmp_path))


def test_settings_that_contradict_the_checkpoint_are_refused(tmp_path: Path) -> None:
    """Changed by hand in config.json: what the replay was made with would hold all the same."""
    out = copal.train(small(tmp_path, steps=300)).out
    stored = json.loads((out / "config.json").read_text())
    changed = {"gamma": 0.5, "n_step": 4, "alpha": 0.1, "buffer_size": 9_999, "fanout": 4}
    for name, value in changed.items():
        (out / "config.json").write_text(json.dumps({**stored, name: value}))
        with pytest.raises(CheckpointError, match=f"`{name}`.*`{stored[name]}`.*`{value}`"):
            copal.train(copal.TrainConfig(resume=out, steps=600))
    (out / "config.json").write_text(json.dumps(stored))
    assert copal.train(copal.TrainConfig(resume=out, steps=600)).env_steps >= 600


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    """Neither a folder that is missing nor one without a checkpoint starts a new run."""
    with pytest.raises(CheckpointError, match="resume"):
        copal.train(copal.TrainConfig(resume=tmp_path / "none"))
    (tmp_path / "config.json").write_text(small(tmp_path).to_json())
    with pytest.raises(CheckpointError, match="checkpoint"):
        copal.train(copal.TrainConfig(resume=tmp_path))


@pytest.mark.parametrize("asked", [{"steps": 400}, {"steps": 399}, {}, {"stop_at_return": 1e9}])
def test_finished_run_is_left_as_it_is(tmp_path: Path, asked: dict[str, Any]) -> None:
    """With no steps to take the error names the way on, and no file of the run changes."""
    out = copal.train(small(tmp_path, steps=400)).out
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="--steps") as caught:
        copal.train(copal.TrainConfig(resume=out, **asked))
    assert caught.value.field == ("steps" if "steps" in asked else "resume")
    assert "400" in str(caught.value)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_run_that_was_not_scored_is_scored_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are taken, but a signal came before the last evaluation."""

    def interrupted(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return play(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(judge, "play", interrupted)
        cut = copal.train(small(tmp_path, steps=400))
    assert (cut.env_steps, cut.returns) == (400, ())
    resumed = copal.train(copal.TrainConfig(resume=cut.out, quiet=True))
    assert (resumed.env_steps, len(resumed.returns)) == (400, 2)


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Nothing of an earlier run is overwritten; the hint is how to go on with it."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="--resume") as caught:
        copal.train(small(tmp_path))
    assert caught.value.field == "out"
    assert [p.name for p in out.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"env": "CartPoel-v1"}, UnknownNameError, "CartPole-v1"),
        ({"algo": "dqnn"}, UnknownNameError, "dqn"),
        ({"backend": "cpuu"}, UnknownNameError, "cpu"),
        ({"env": "Pendulum-v1"}, ConfigError, "SAC"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Unknown names with near matches, continuous actions with algorithms that fit; no folder."""
    with pytest.raises(error, match=text):
        copal.train(small(tmp_path, **changes))
    assert not (tmp_path / "run").exists()


def test_replay_beyond_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the run will fill; a buffer that stays nearly empty takes no memory."""
    monkeypatch.setattr(machine, "memory_gib", lambda: 0.5)
    large = {"buffer_size": 100_000_000, "learning_starts": 100}
    with pytest.raises(ConfigError, match=r"0\.5 GiB of memory(.|\n)*--buffer-size \d+$") as caught:
        copal.train(small(tmp_path, steps=100_000_000, **large))
    assert caught.value.field == "buffer_size"
    assert not (tmp_path / "run").exists()
    assert copal.train(small(tmp_path, steps=150, **large)).updates == 50


def test_too_few_threads_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actors that had started end, and so does the run."""
    begin = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "actor-2":
            raise RuntimeError("can't start new thread")
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(ConfigError, match=r"at most 2, the threads(.|\n)*ulimit -u") as caught:
        copal.train(small(tmp_path, actors=4))
    assert caught.value.field == "actors"
    assert not [t for t in threading.enumerate() if t.name.startswith("actor-")]


def test_train_wants_its_settings() -> None:
    """A bare id is refused with the call that works."""
    with pytest.raises(ConfigError, match=r"copal\.TrainConfig"):
        copal.train("CartPole-v1")  # type: ignore[arg-type]


def test_run_folder_holds_everything(tmp_path: Path) -> None:
    """Settings, machine, metrics, events, checkpoints and the policy."""
    result = copal.train(small(tmp_path, tensorboard=True, eval_interval=400))
    names = {p.name for p in result.out.iterdir()}
    assert names == {
        "config.json",
        "machine.json",
        "metrics.jsonl",
        "events",
        "checkpoints",
        "policy",
    }
    records = [json.loads(x) for x in (result.out / "metrics.jsonl").read_text().splitlines()]
    assert {r["kind"] for r in records} == {"train", "eval", "final"}
    assert result.save(tmp_path / "elsewhere") == tmp_path / "elsewhere"
    assert result.save() == result.out / "policy"
    obs = np.zeros(4, np.float32)
    assert copal.load_policy(tmp_path / "elsewhere").act(obs) == result.policy(obs)


NO_TORCH = """
import sys
sys.modules["torch"] = None
import numpy as np
import copal
policy = copal.load_policy(sys.argv[1])
print(policy.act(np.zeros(4, np.float32)))
"""


def test_policy_loads_without_torch(tmp_path: Path) -> None:
    """A deployed policy needs the extension and NumPy, not the training framework."""
    result = copal.train(small(tmp_path, steps=300))
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, str(result.out)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == result.policy(np.zeros(4, np.float32))


LONG_RUN = """
import sys
from pathlib import Path
import copal
config = copal.TrainConfig(
    env="CartPole-v1", steps=10**9, learning_starts=200, buffer_size=2_000, batch_size=16,
    hidden=(16, 16), out=Path(sys.argv[1]), tensorboard=False, quiet=True,
    eval_interval=0, checkpoint_interval=int(sys.argv[2]), deterministic=sys.argv[3] == "True",
)
print(copal.train(config).stop_reason)
"""


def long_run(out: Path, checkpoint_interval: int, deterministic: bool) -> subprocess.Popen[str]:
    """A run in a process of its own that would never end; returns once it trains."""
    run = subprocess.Popen(
        [sys.executable, "-c", LONG_RUN, str(out), str(checkpoint_interval), str(deterministic)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 60
    metrics = out / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)
    return run


@pytest.mark.parametrize(
    ("number", "deterministic"), [(signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_signal_writes_a_checkpoint_and_ends(
    tmp_path: Path, number: signal.Signals, deterministic: bool
) -> None:
    """The run ends by itself with a whole checkpoint, whose ratio holds."""
    run = long_run(tmp_path / "run", 0, deterministic)
    run.send_signal(number)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out.strip()) == (0, number.name), err
    counters = newest(tmp_path / "run").counters
    assert counters["env_steps"] - 200 == counters["updates"] > 0


def test_kill_while_checkpoints_are_written(tmp_path: Path) -> None:
    """SIGKILL at any time leaves a checkpoint that loads, with a ratio that holds."""
    for i in range(2):
        out = tmp_path / f"run{i}"
        run = long_run(out, 50, deterministic=False)
        time.sleep(0.07 * i)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate(timeout=60)
        counters = newest(out).counters
        assert counters["env_steps"] - 200 == pytest.approx(counters["updates"], abs=10)


def test_import_is_light() -> None:
    """`import copal` loads neither torch nor Gymnasium nor NumPy."""
    code = "import sys, copal; print({'torch', 'gymnasium', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
