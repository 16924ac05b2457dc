# SPDX-License-Identifier: MIT
"""The drivers' common parts, the lean torch loop, and the installed peers where there are some."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copal.bench.peers import BY_NAME, LAUNCHER, PEERS, absence, environments, interpreter
from copal.bench.peers.drivers import protocol, replay, training
from copal.bench.process import child_environment

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = sorted((LAUNCHER.parent / "drivers").glob("*.py"))
PEER_ROOT = ROOT / ".venv-peers"


class Counting(replay.ReplayPeer):
    """A buffer that only counts calls."""

    versions = {"counting": "1"}  # noqa: RUF012 - the base class declares it

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.seen: list[int] = []

    def insert(self, n: int) -> Callable[[int], object]:
        """Counts, whatever n is."""
        del n
        return self.seen.append

    sample = update = cycle = insert


def launched(driver: str, *arguments: str, python: str = sys.executable) -> list[dict[str, Any]]:
    """Runs a driver through the launcher, away from the checkout; returns its rows."""
    done = subprocess.run(
        [python, str(LAUNCHER), driver, *arguments],
        env=child_environment(os.environ),
        cwd=LAUNCHER.anchor,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr
    return rows


def test_a_block_repeats_no_argument_and_ends_as_asked() -> None:
    """The count goes up from call to call, over the warm-up and every block."""
    peer = Counting(8)
    timed = replay.Timed.calibrated(peer.operation("cycle", 4), block_s=1e-4, together=5)
    timed.block_us()
    assert peer.seen == list(range(len(peer.seen)))
    assert timed.calls % 5 == 0


def test_answers_follow_requests() -> None:
    """One row that says ready, then one for each pair on the command line."""
    rows: list[dict[str, Any]] = []
    replay.run(
        Counting, ["--rows", "8", "--block-ms", "0.1", "--ops", "insert:64,cycle:32"], rows.append
    )
    assert rows[0] == {"ready": True, "versions": {"counting": "1"}}
    assert [(row["op"], row["n"]) for row in rows[1:]] == [("insert", 64), ("cycle", 32)]
    assert all(row["us"] > 0 for row in rows[1:])


def test_an_unknown_operation_is_named() -> None:
    """The message lists those there are."""
    with pytest.raises(ValueError, match="unknown operation `fly`, expected one of insert"):
        Counting(8).operation("fly", 1)


def test_fill_sizes_add_up() -> None:
    """Whatever the capacity, no row is left out or written twice."""
    for rows in (1, 99_999, 100_000, 100_001, 1_000_000):
        assert sum(replay.fill_sizes(rows)) == rows


def test_whatever_a_library_prints_is_no_row(capfd: pytest.CaptureFixture[str]) -> None:
    """Standard output carries rows alone, also what C code writes to it."""
    with protocol.private_stdout() as reply:
        os.write(1, b"noise")
        reply({"us": 1.0})
    out, err = capfd.readouterr()
    assert json.loads(out) == {"us": 1.0}
    assert "noise" in err


def test_a_peer_that_is_not_installed_is_a_row() -> None:
    """The launcher works without copal and tells the import error."""
    (row,) = launched("replay_no_such_peer", "--rows", "8")
    assert row["absent"].startswith("ModuleNotFoundError")


def test_the_clock_measures_between_requests_and_then_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rates count steps of one stretch only, not those of the warm-up."""
    seconds = iter([100.0, 101.0, 102.0, 110.0, 112.5])
    monkeypatch.setattr(training.time, "perf_counter", lambda: next(seconds))
    rows: list[dict[str, Any]] = []
    clock = training.Clock(10, "rate:2,rate:2", {}, rows.append)
    assert not clock.step(9, 0)
    assert not clock.step(10, 5)
    assert not clock.step(20, 10)
    assert not clock.step(30, 25)
    assert clock.step(80, 50)
    assert [row.get("env_steps_per_s") for row in rows] == [None, 10.0, 20.0]
    assert [row.get("updates_per_s") for row in rows] == [None, 10.0, 10.0]


@pytest.mark.parametrize("n_step", [1, 3])
def test_the_torch_loop_sums_rewards_as_the_definition_says(n_step: int) -> None:
    """Its n-step rows equal those of a plain sum over the episode, cut at its end."""
    pytest.importorskip("gymnasium")
    from copal.bench.peers.drivers import train_cleanrl

    options = training.parser("").parse_args(
        ["--env", "CartPole-v1", "--n-step", str(n_step), "--learning-starts", "1000"]
    )
    run = train_cleanrl.Run(training.settings(options))
    rows: list[tuple[Any, ...]] = []
    run.ring.add = lambda *row: rows.append(row)  # type: ignore[method-assign]
    rewards = [0.5, -1.0, 2.0, 4.0, 8.0]
    obs = [np.full(4, i, np.float32) for i in range(6)]
    for i, reward in enumerate(rewards):
        last = i == len(rewards) - 1
        run.window.append((obs[i], i, reward))
        if len(run.window) == n_step or last:
            run._store(obs[i + 1], terminated=last, everything=last)
    for i, (row_obs, action, total, next_obs, discount) in enumerate(rows):
        end = min(i + n_step, len(rewards))
        assert row_obs is obs[i]
        assert action == i
        assert total == pytest.approx(sum(0.99**k * rewards[i + k] for k in range(end - i)))
        assert next_obs is obs[end]
        assert discount == (0.0 if end == len(rewards) else pytest.approx(0.99**n_step))
    assert len(rows) == len(rewards)


def test_the_torch_loop_trains_and_scores() -> None:
    """A short run on CartPole, in a process of its own as the benchmark does it."""
    ready, row = launched(
        "train_cleanrl",
        *("--env", "CartPole-v1", "--solve", "--ops", "solve:3", "--steps", "1500"),
        *("--eval-interval", "700", "--eval-episodes", "2", "--final-eval-episodes", "3"),
        *("--hidden", "16", "16", "--learning-starts", "100", "--double"),
    )
    assert "torch" in ready["versions"]
    assert (row["op"], row["n"], row["env_steps"], row["updates"]) == ("solve", 3, 1500, 1400)
    assert row["best_step"] in (700, 1400)
    assert 1 <= row["mean_return"] <= 500
    assert row["wall_s"] > row["eval_s"] > 0


def test_the_sac_loop_answers_for_its_rate() -> None:
    """A few updates on Pendulum, in a process of its own; its actions reach the true bounds."""
    ready, row = launched(
        "train_cleanrl_sac",
        *("--algo", "sac", "--env", "Pendulum-v1", "--hidden", "16", "16", "--batch-size", "8"),
        *("--learning-starts", "50", "--warm-steps", "60", "--ops", "rate:1"),
    )
    assert "torch" in ready["versions"]
    assert row["updates_per_s"] == row["env_steps_per_s"] > 0


def test_the_sac_loop_descends_the_textbook_losses() -> None:
    """One update equals plain gradient steps written out with `torch.distributions`."""
    from copal.bench.peers.drivers import train_cleanrl_sac as sac

    torch = pytest.importorskip("torch")
    options = training.parser("").parse_args(
        ["--hidden", "8", "--learning-rate", "0.01", "--target-tau", "0.25"]
    )
    options.target_update_interval = 1
    learner = sac.Learner(3, 2, training.settings(options))
    obs, action, reward, next_obs = (torch.randn(6, n) for n in (3, 2, 1, 3))
    action, reward, discount = action.tanh(), reward[:, 0], torch.rand(6)
    before = [p.clone() for p in learner.critic_parameters]
    target = [p.clone() for p in learner.target_parameters]
    torch.manual_seed(5)
    with torch.no_grad():
        next_action, density = _textbook_sample(learner.actor(next_obs))
        soft = torch.minimum(*learner.target(next_obs, next_action)) - density
        errors = [q - (reward + discount * soft) for q in learner.critic(obs, action)]
    torch.manual_seed(5)
    found = learner.sample(next_obs)
    torch.testing.assert_close(found[0], next_action)
    torch.testing.assert_close(found[1], density, rtol=1e-4, atol=1e-4)
    torch.manual_seed(5)
    learner.update(obs, action, reward, next_obs, discount)
    # Adam's first step is the learning rate against the gradient's sign; the last bias of each
    # critic has the mean error as its gradient.
    for error, critic, old in zip(
        errors, (learner.critic.first, learner.critic.second), (before[3], before[7]), strict=True
    ):
        torch.testing.assert_close(critic[-1].bias, old - 0.01 * error.mean().sign())
    for now, old, source in zip(
        learner.target_parameters, target, learner.critic_parameters, strict=True
    ):
        torch.testing.assert_close(now, old.lerp(source, 0.25))
    assert float(learner.log_alpha.detach()) != 0


def _textbook_sample(outputs: Any) -> Any:
    """Actions and their log densities, by change of variables through `torch.distributions`."""
    import torch
    from torch import distributions

    mean, log_std = outputs.chunk(2, 1)
    normal = distributions.Normal(mean, log_std.exp())
    squashed = distributions.TransformedDistribution(normal, distributions.TanhTransform())
    action = (mean + log_std.exp() * torch.randn_like(mean)).tanh()
    return action, squashed.log_prob(action).sum(1)


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted((LAUNCHER.parent / "drivers").glob("*.py"))
        if not path.stem.startswith("step_")  # they measure copal inside a peer, where it is shared
    ],
    ids=lambda p: p.stem,
)
def test_drivers_import_no_copal(path: Path) -> None:
    """They run in environments that do not have it; the common parts need NumPy alone."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    absolute = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    absolute += [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    assert "copal" not in {name.split(".")[0] for name in absolute}


def test_every_peer_has_its_files() -> None:
    """Each driver named in the registry exists, and each environment has requirements."""
    for peer in PEERS:
        assert peer.replay or peer.train, peer
        for driver in filter(None, (peer.replay, *peer.curve.values(), *peer.train.values())):
            assert (LAUNCHER.parent / "drivers" / f"{driver}.py").is_file()
        assert peer.environment is None or peer.environment in environments()


@pytest.mark.slow
@pytest.mark.parametrize("name", [peer.name for peer in PEERS if peer.replay])
def test_an_installed_peer_answers(name: str) -> None:
    """Where a peer is installed, its driver runs the whole set of operations."""
    peer = BY_NAME[name]
    reason = absence(PEER_ROOT, peer.environment)
    if reason is not None:
        pytest.skip(reason)
    assert peer.replay is not None
    rows = launched(
        peer.replay,
        *("--rows", "400", "--block-ms", "1"),
        *("--ops", "insert:1,insert:64,sample:32,update:32,cycle:32"),
        python=str(interpreter(PEER_ROOT, peer.environment)),
    )
    assert len(rows) == 6, rows
    assert all(row["us"] > 0 for row in rows[1:])
