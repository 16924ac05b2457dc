# SPDX-License-Identifier: MIT
"""Configurations, tables, plots, and the reports behind `copal bench`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from copal.bench import (
    BENCHES,
    LearnerBench,
    ReplayBench,
    TrainBench,
    learner_report,
    machine,
    plot,
    replay_report,
    run_replay,
    table,
    train_report,
)
from copal.bench.peers import REASON_FILE, Peer, absence, install
from copal.bench.peers.drivers import protocol, training
from copal.config import TrainConfig
from copal.errors import ConfigError, UnknownNameError
from copal.runtime.machine import allowed_cpus
from copal.runtime.settings import settled

ANSWERS = """
import json, sys
print(json.dumps({"ready": True, "versions": {}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({**request, **json.loads(sys.argv[1])}), flush=True)
"""


def answering(**values: float) -> list[str]:
    """A command that answers every request with the same figures."""
    return [sys.executable, "-c", ANSWERS, json.dumps(values)]


def missing(environment: str) -> Callable[[Path, str | None], str | None]:
    """A stand-in for `absence`: one environment is not here."""
    return lambda _, name: "not here" if name == environment else None


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces copal's and the peers' processes: copal takes 2 us or does 900 steps a second."""

    def own(module: str, arguments: Sequence[str]) -> list[str]:
        return answering(us=2.0, env_steps_per_s=900.0, updates_per_s=900.0, wall_s=10.0)

    def other(peer: Peer, driver: str, root: Path, arguments: Sequence[str]) -> list[str]:
        return answering(us=30.0, env_steps_per_s=300.0, updates_per_s=300.0, wall_s=45.0)

    for module in (replay_report, train_report):
        monkeypatch.setattr(module, "own_command", own)
        monkeypatch.setattr(module, "peer_command", other)
    monkeypatch.setattr(replay_report, "absence", missing("torchrl"))
    monkeypatch.setattr(train_report, "absence", missing("rllib"))


@pytest.mark.usefixtures("stand_ins")
def test_replay_report_has_a_row_for_each_figure_and_each_absence(tmp_path: Path) -> None:
    """The JSON has machine, versions and rows; ratios say how much slower a peer is."""
    config = ReplayBench(
        rows=(1000,), batch_sizes=(32,), peers=("cpprb", "torchrl"), rounds=2, scaling=False
    )
    report = json.loads(run_replay(config).to_json())
    assert set(report) == {"machine", "versions", "rows"}
    figures = [row for row in report["rows"] if "us" in row]
    assert {(row["op"], row["n"]) for row in figures} == {
        ("insert", 1),
        ("insert", 64),
        ("sample", 32),
        ("update", 32),
        ("cycle", 32),
    }
    assert {row["name"]: row["ratio"] for row in figures} == {"copal-cpu": 1.0, "cpprb": 15.0}
    assert [row for row in report["rows"] if "absent" in row] == [
        {"name": "torchrl", "rows": 1000, "absent": "not here"}
    ]


@pytest.mark.usefixtures("stand_ins")
def test_the_growth_is_drawn_up_to_ten_million_rows(tmp_path: Path) -> None:
    """A peer that cannot be filled so far says so, the picture has the others."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "growth.svg"
    config = ReplayBench(
        rows=(10_000,), batch_sizes=(32,), peers=("rllib",), rounds=1, scaling=False, plot=path
    )
    rows = run_replay(config).rows
    assert {row["rows"] for row in rows if row["name"] == "copal-cpu"} == {10_000, 10_000_000}
    assert [row["rows"] for row in rows if "absent" in row] == [10_000_000]
    assert path.read_text().count("<svg") == 1


@pytest.mark.usefixtures("stand_ins")
def test_train_report_compares_rates_and_wall_times() -> None:
    """Rates and solved seeds are rows of one report."""
    config = TrainBench(peers=("sb3", "rllib"), seconds=0.1, rounds=2, solve_seeds=(1, 2))
    rows = train_report.measure(config).rows
    figures = [row for row in rows if "absent" not in row]
    rates = {row["name"]: row["ratio"] for row in figures if row["op"] == "rate"}
    assert rates == {"copal-cpu": 1.0, "sb3": 3.0}
    walls = {(row["name"], row["seed"]): row["ratio"] for row in figures if "seed" in row}
    assert walls == {
        ("copal-cpu", 1): 1.0,
        ("copal-cpu", 2): 1.0,
        ("cleanrl-style", 1): 4.5,
        ("cleanrl-style", 2): 4.5,
    }
    assert [row for row in rows if "absent" in row] == [
        {"name": "rllib", "op": "rate", "absent": "not here"}
    ]


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_every_driver_gets_the_settings_of_the_comparison(algo: str) -> None:
    """All drivers parse the same flags into the same values."""
    config = TrainBench(algo=algo, env="E-v0", hidden=(64, 64), batch_size=100)
    options = training.parser("").parse_args(train_report.shared_arguments(config))
    found = training.settings(options)
    assert (found.algo, found.env, found.hidden, found.batch_size) == (algo, "E-v0", (64, 64), 100)
    sac = (found.learning_rate, found.target_tau, found.target_update_interval)
    assert (sac == (3e-4, 0.005, 1)) == (algo == "sac")


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("as_json", [False, True])
def test_stdout_holds_the_report_alone(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress goes to stderr; stdout is a table, or one JSON object."""
    config = ReplayBench(
        rows=(1000,), batch_sizes=(32,), peers=("cpprb",), rounds=1, scaling=False, json=as_json
    )
    assert BENCHES["replay"].run(config) == 0
    out, err = capsys.readouterr()
    assert "round 1 of 1" in err
    if as_json:
        assert json.loads(out)["rows"]
    else:
        assert "| cycle 32" in out
        assert "30.0 (15.0x)" in out


def test_learner_rows_get_ratios_and_missing_ones_are_named() -> None:
    """What could not be measured stays a row."""
    rows = [
        {"name": "copal-cpu", "us": 200.0},
        {"name": "torch-eager-fused", "us": 600.0},
        {"name": "torch-compile", "absent": "no C++ compiler"},
    ]
    found = {row["name"]: row for row in learner_report.with_ratios(rows)}
    assert found["torch-eager-fused"]["ratio"] == 3.0
    assert found["torch-compile"] == {"name": "torch-compile", "absent": "no C++ compiler"}
    assert found["numpy"] == {"name": "numpy", "absent": "not measured"}


def test_policies_are_compared_at_the_same_number_of_observations() -> None:
    """One observation and many are two comparisons."""
    rows = [
        {"name": name, "n": n, "us": us}
        for name, n, us in (
            ("copal-policy", 1, 2.0),
            ("torch-policy", 1, 30.0),
            ("copal-policy", 64, 50.0),
            ("torch-policy", 64, 100.0),
        )
    ]
    ratios = [row["ratio"] for row in learner_report.with_policy_ratios(rows)]
    assert ratios == [1.0, 15.0, 1.0, 2.0]


def test_the_torch_loop_gets_the_settings_of_our_run() -> None:
    """Every flag that is passed is understood, and means the same."""
    chosen = TrainConfig(n_step=3, max_grad_norm=5.0, steps=50_000, hidden=(32, 16))
    top = training.parser("")
    for flag in ("--steps", "--eval-interval", "--eval-episodes", "--final-eval-episodes"):
        top.add_argument(flag, type=int)
    top.add_argument("--solve", action="store_true")
    top.add_argument("--stop-at-return", type=float)
    options = top.parse_args(train_report.solver_arguments(chosen))
    settings, chosen = training.settings(options), settled(chosen)
    for name in ("learning_rate", "gamma", "batch_size", "target_tau", "buffer_size", "n_step"):
        assert getattr(settings, name) == getattr(chosen, name), name
    assert settings.max_grad_norm == 5.0
    assert settings.hidden == (32, 16)
    assert settings.epsilon_steps == round(chosen.epsilon_fraction * 50_000)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: ReplayBench(rows=()), "rows"),
        (lambda: ReplayBench(rows=(0,)), "rows"),
        (lambda: ReplayBench(rows=(16,), batch_sizes=(32,)), "batch_sizes"),
        (lambda: ReplayBench(block_ms=float("nan")), "block_ms"),
        (lambda: ReplayBench(rounds=0), "rounds"),
        (lambda: LearnerBench(hidden=()), "hidden"),
        (lambda: LearnerBench(threads=0), "threads"),
        (lambda: TrainBench(seconds=0.0), "seconds"),
        (lambda: TrainBench(learners=0), "learners"),
    ],
)
def test_bad_settings_are_refused(build: Any, field: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError) as failed:
        build()
    assert failed.value.field == field


def test_an_unknown_peer_gets_the_near_matches() -> None:
    """A typing error is answered with the right name; peers without a job do not count."""
    with pytest.raises(UnknownNameError, match="did you mean `tianshou`"):
        ReplayBench(peers=("tianshu",))
    with pytest.raises(UnknownNameError):
        TrainBench(peers=("cpprb",))
    with pytest.raises(UnknownNameError, match="rltools"):
        TrainBench(algo="sac", peers=("tianshou",))


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before anything is measured."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'copal-rl\[plot\]'"):
        run_replay(ReplayBench(plot=Path("growth.svg")))


def test_an_unknown_picture_format_is_a_typed_error(tmp_path: Path) -> None:
    """The suffix is what chooses it."""
    pytest.importorskip("matplotlib")
    rows = [{"name": "a", "op": "cycle", "n": 32, "rows": 10, "us_min": 1.0}]
    with pytest.raises(ConfigError, match=r"growth\.abc"):
        plot.growth(rows, "cycle", tmp_path / "growth.abc")


def test_machine_is_described() -> None:
    """Whoever reads a figure knows the processor and how busy it was."""
    described = machine.describe()
    assert {"cpu", "cores", "isa", "load_average", "machine_cores"} <= set(described)
    assert described["cores"] == len(allowed_cpus())
    assert protocol.versions("numpy", "no-such-distribution").keys() == {"numpy"}
    assert {"numpy", "torch"} <= set(machine.versions())
    assert described["cpu"] in table.heading(described)


def test_replay_table_puts_sizes_in_columns() -> None:
    """Numbers carry three digits; what was not measured is a dash; a reason stands below, once."""
    rows = [
        {"name": "copal-cpu", "op": "cycle", "n": 32, "rows": 1000, "us": 3.456, "ratio": 1.0},
        {"name": "cpprb", "op": "cycle", "n": 32, "rows": 1000, "us": 81.23, "ratio": 23.5},
        {"name": "copal-cpu", "op": "cycle", "n": 32, "rows": 2000, "us": 1234.5, "ratio": None},
        {"name": "rllib", "rows": 1000, "absent": "gone"},
        {"name": "rllib", "rows": 2000, "absent": "gone"},
    ]
    lines = table.replay_table(rows).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:4]]
    assert cells[0] == ["operation", "implementation", "1,000 rows, us", "2,000 rows, us"]
    assert cells[2] == ["cycle 32", "copal-cpu", "3.46 (1.00x)", "1,234"]
    assert cells[3] == ["cycle 32", "cpprb", "81.2 (23.5x)", "-"]
    assert lines[4:] == ["rllib: absent: gone"]


def test_a_failed_installation_leaves_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command still succeeds, and the benchmark can tell why the peer is absent."""
    monkeypatch.setattr(install, "REQUIREMENTS", tmp_path)
    (tmp_path / "cpprb.txt").write_text("./no-such-folder\n")
    root = tmp_path / "root"
    assert install.main(["cpprb", "--root", str(root)]) == 0
    assert "cpprb: absent" in capsys.readouterr().out
    assert (root / "cpprb" / REASON_FILE).exists()
    assert "no-such-folder" in str(absence(root, "cpprb"))


def test_an_installed_environment_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same requirements are not installed twice; changed ones are."""
    monkeypatch.setattr(install, "REQUIREMENTS", tmp_path)
    filled: list[Path] = []

    def fill(folder: Path, *_: object) -> None:
        filled.append(folder)

    monkeypatch.setattr(install, "_fill", fill)
    (tmp_path / "cpprb.txt").write_text("a\n")
    assert install.install("cpprb", tmp_path / "root") is None
    assert install.install("cpprb", tmp_path / "root") is None
    assert len(filled) == 1
    (tmp_path / "cpprb.txt").write_text("b\n")
    install.install("cpprb", tmp_path / "root")
    assert len(filled) == 2


def test_an_unknown_environment_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is installed then."""
    assert install.main(["cppr"]) == 2
    assert "cpprb" in capsys.readouterr().err


def test_a_peer_that_is_not_installed_names_the_command(tmp_path: Path) -> None:
    """The reason is a command to type."""
    assert absence(tmp_path, "sb3") == "not installed; python -m copal.bench.peers.install sb3"
    assert absence(tmp_path, None) is None
