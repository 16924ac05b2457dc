# SPDX-License-Identifier: MIT
"""Learning curves: run, kept, read again, put into a table, drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from copal.bench import BENCHES, CurveBench, curve_report, curve_runs, own_curve, plot, run_curve
from copal.bench.peers import Peer
from copal.bench.peers.drivers import curve
from copal.bench.process import DriverFailedError
from copal.errors import ConfigError, UnknownNameError

STAND_IN = """
import json, sys
sys.stderr.write("WARNING: compiler attribute 'settotalmass' is deprecated\\n")
gain, seed = float(sys.argv[1]), int(sys.argv[2])
print(json.dumps({"ready": True, "versions": {"v": "1"}}), flush=True)
for step in range(100, 801, 100):
    row = {"op": "curve", "seed": seed, "env_steps": step + 3, "mean_return": gain * step + seed}
    print(json.dumps({**row, "std": 0.0, "wall_s": 0.1}), flush=True)
"""


def stand_in(gain: float, arguments: Sequence[str]) -> list[str]:
    """A process whose returns grow with the steps."""
    seed = arguments[list(arguments).index("--seed") + 1]
    return [sys.executable, "-c", STAND_IN, str(gain), seed]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CurveBench:
    """Two seeds of copal and one peer, whose processes only print."""

    def own(module: str, arguments: Sequence[str]) -> list[str]:
        return stand_in(2.0, arguments)

    def other(peer: Peer, driver: str, root: Path, arguments: Sequence[str]) -> list[str]:
        return stand_in(1.0, arguments)

    monkeypatch.setattr(curve_report, "own_command", own)
    monkeypatch.setattr(curve_report, "peer_command", other)
    monkeypatch.setattr(curve_report, "absence", lambda *_: None)
    return CurveBench(seeds=(10, 20), steps=800, eval_interval=100, save=tmp_path / "curves")


def kept(folder: Path, name: str, seed: int, last: int, **settings: Any) -> None:
    """Writes a curve of zeros that ends at `last` steps."""
    folder.mkdir(exist_ok=True)
    rows = [{"ready": True, "versions": {}, "settings": settings}] + [
        {"op": "curve", "seed": seed, "env_steps": step, "mean_return": 0.0, "std": 0.0}
        for step in range(100, last + 1, 100)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    curve_runs.path(folder, name, seed).write_text(text)


def test_a_report_has_every_evaluation(small: CurveBench) -> None:
    """One row for each implementation, seed and evaluation; the files hold the same."""
    report = run_curve(small)
    assert len(report.rows) == 2 * 2 * 8
    assert {row["name"] for row in report.rows} == {"copal-cpu", "sb3"}
    assert sorted(path.name for path in small.save.iterdir()) == [
        f"{name}-seed{seed}.jsonl" for name in ("copal-cpu", "sb3") for seed in (10, 20)
    ]


def test_the_table_shows_quarters_with_their_spread(
    small: CurveBench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation nearest to a mark counts; simulators' warnings stay out."""
    assert BENCHES["curve"].run(small) == 0
    out, err = capsys.readouterr()
    assert "settotalmass" not in out + err
    line = next(line for line in out.splitlines() if line.startswith("| copal-cpu"))
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    assert cells == [f"{2 * at + 15:,} ({2 * at + 10:,} to {2 * at + 20:,})" for at in Q800]


Q800 = (200, 400, 600, 800)


def test_a_mark_without_an_evaluation_near_it_stays_empty() -> None:
    """A curve that was cut off does not lend its last value to later marks."""
    rows = [{"name": "a", "seed": 1, "env_steps": 100, "mean_return": 7.0}]
    assert curve_report.summary(rows, steps=400, interval=100) == [
        {
            "name": "a",
            "env_steps": 100,
            "seeds": 1,
            "mean_return": 7.0,
            "lowest": 7.0,
            "highest": 7.0,
        }
    ]


def test_a_finished_curve_is_read_and_not_run_again(small: CurveBench, tmp_path: Path) -> None:
    """One that is too short, or of other settings, is run."""
    load = tmp_path / "old"
    kept(load, "sb3", 10, last=800, batch_size=256)
    kept(load, "sb3", 20, last=600)
    kept(load, "copal-cpu", 10, last=800, batch_size=64)
    (load / "copal-cpu-seed20.jsonl").write_text("{damaged")
    report = run_curve(CurveBench(**{**vars(small), "load": load}))
    means = {
        (name, seed): max(
            row["mean_return"] for row in report.rows if (row["name"], row["seed"]) == (name, seed)
        )
        for name in ("copal-cpu", "sb3")
        for seed in (10, 20)
    }
    assert means[("sb3", 10)] == 0
    assert means[("sb3", 20)] == 820
    assert means[("copal-cpu", 10)] == 1610
    assert means[("copal-cpu", 20)] == 1620


def test_a_run_that_fails_is_a_row(small: CurveBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other implementation's curve is there all the same."""
    code = "import sys; sys.exit('no such simulator')"
    monkeypatch.setattr(curve_report, "peer_command", lambda *_: [sys.executable, "-c", code])
    rows = run_curve(small).rows
    assert [row for row in rows if "absent" in row] == [
        {"name": "sb3", "seed": seed, "absent": "no such simulator"} for seed in (10, 20)
    ]
    assert "sb3: absent: no such simulator" in curve_report.table(rows, 800, 100)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"absent": "ImportError: mujoco"}\n', "ImportError: mujoco"),
        ('{"ready": true}\n', "no evaluation"),
        ("hello\n", "not a curve"),
    ],
)
def test_what_is_no_curve_says_why(text: str, reason: str) -> None:
    """The reason of the process itself comes first."""
    with pytest.raises(DriverFailedError, match=reason):
        curve_runs.Curve.parse(text)


def test_our_own_driver_trains_and_tells_its_evaluations() -> None:
    """A short real run replies with its evaluations in order, as the peers' drivers do."""
    rows: list[dict[str, Any]] = []
    own_curve.main(
        [
            *("--algo", "dqn", "--env", "CartPole-v1", "--steps", "600", "--seed", "3"),
            *("--hidden", "8", "--batch-size", "8", "--learning-starts", "100"),
            *("--eval-interval", "200", "--eval-episodes", "2", "--buffer-size", "1000"),
        ],
        rows.append,
    )
    assert rows[0]["settings"]["env"] == "CartPole-v1"
    assert set(rows[0]["settings"]) == set(curve.SETTINGS)
    points = rows[1:]
    assert points
    steps = [point["env_steps"] for point in points]
    assert steps == sorted(steps)
    assert steps[0] >= 200
    for point in points:
        assert point["seed"] == 3
        assert point["mean_return"] >= 1
        assert point["wall_s"] >= 0


def test_every_setting_reaches_both_drivers() -> None:
    """Flags of the verb, parsed by the drivers' parser, are the settings again."""
    config = CurveBench(hidden=(32, 16), learning_rate=1e-3, gamma=0.9, target_tau=0.01)
    options = curve.parser("").parse_args(curve_report.arguments(config, seed=7))
    assert (options.seed, options.steps) == (7, 200_000)
    assert curve.head(options, {})["settings"] == config.settings()
    ours = own_curve.train_config(options, Path("out"))
    for name in set(curve.SETTINGS) - {"hidden"}:
        assert getattr(ours, name) == getattr(config, name), name
    assert ours.hidden == (32, 16)
    assert not ours.prioritized


def test_curves_are_drawn_with_a_line_for_each_name(tmp_path: Path) -> None:
    """Seeds of different lengths are drawn as far as all of them go."""
    pytest.importorskip("matplotlib")
    rows = [
        {"name": name, "seed": seed, "env_steps": 100 * i, "mean_return": float(i * seed)}
        for name in ("copal-cpu", "sb3")
        for seed, length in ((1, 3), (2, 4))
        for i in range(1, length)
    ]
    plot.curves([*rows, {"name": "x", "seed": 1, "absent": "gone"}], "title", tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_text().count("<svg") == 1


def test_bad_settings_of_a_curve_are_refused() -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match="seeds"):
        CurveBench(seeds=())
    with pytest.raises(UnknownNameError):
        CurveBench(peers=("rltools",))
    with pytest.raises(UnknownNameError):
        CurveBench(algo="td3", peers=("sb3",))
