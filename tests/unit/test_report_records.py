# SPDX-License-Identifier: MIT
"""metrics.jsonl as a report reads it: long, cut, resumed, odd."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import report_runs as made

from copal.codesign.report import folder, records


def written(path: Path, lines: list[str]) -> Path:
    """A file of these lines."""
    path.write_text("".join(lines))
    return path


def test_figures_become_columns(tmp_path: Path) -> None:
    """Every value stands where its record does, and time counts from the beginning."""
    found = folder.load(made.made(tmp_path / "a"), "a").records
    np.testing.assert_array_equal(found.train["env_steps"], 1000.0 * np.arange(1, 11))
    np.testing.assert_allclose(found.train["elapsed_s"], np.arange(1, 11))
    np.testing.assert_array_equal(found.evals["mean_return"], np.arange(1, 11))
    assert np.isnan(found.train["no such figure"]).all()
    assert found.last["updates"] == 5000
    assert found.final is not None
    assert (found.unreadable, found.stride, found.resumes) == (0, 1, 0)


@pytest.mark.parametrize(
    "odd",
    [
        '{"kind": "train", "time_s": 1.7e9, "env_st',
        "\n",
        "[]\n",
        "7\n",
        "{}\n",
        '{"kind": 3, "time_s": 1, "env_steps": 1}\n',
        '{"kind": "train", "time_s": null, "env_steps": 1}\n',
        '{"kind": "train", "time_s": 1.0, "env_steps": true}\n',
        "[" * 100_000 + "\n",
        "\x00\x00\ufffd\n",
    ],
    ids=range(10),
)
def test_a_line_that_is_no_record_is_counted_and_left_out(tmp_path: Path, odd: str) -> None:
    """At the end, as a kill leaves it, and in the middle."""
    good = [json.dumps(made.train(s)) + "\n" for s in (1, 2, 3)]
    last = records.read(written(tmp_path / "last", [*good, odd]))
    amid = records.read(written(tmp_path / "amid", [good[0], odd.rstrip("\n") + "\n", *good[1:]]))
    for found in (last, amid):
        np.testing.assert_array_equal(found.train["env_steps"], [1000.0, 2000.0, 3000.0])
        assert found.unreadable == 1


def test_bytes_that_are_no_text_cost_one_line(tmp_path: Path) -> None:
    """A damaged block on the disk."""
    path = tmp_path / "metrics"
    path.write_bytes(b"\xff\xfe\x80\n" + json.dumps(made.train(1)).encode() + b"\n")
    found = records.read(path)
    assert (len(found.train), found.unreadable) == (1, 1)


def test_values_beyond_floats_are_missing(tmp_path: Path) -> None:
    """null, infinities, texts, lists and huge whole numbers are no points."""
    values = ["null", "Infinity", "NaN", '"x"', "[1, 2]", "1" + "0" * 400, "true", "4.5"]
    lines = [
        json.dumps(made.train(s))[:-1] + f', "odd": {value}}}\n'
        for s, value in enumerate(values, start=1)
    ]
    odd = records.read(written(tmp_path / "m", lines)).train["odd"]
    np.testing.assert_array_equal(odd, [np.nan] * 7 + [4.5])


def test_a_resumed_run_replaces_what_it_did_again(tmp_path: Path) -> None:
    """Records after the checkpoint are dropped, the pause does not count, counters go on."""
    again = [made.train(s) | {"time_s": made.BEGAN_S + 5000 + s} for s in (4, 5, 6)]
    for record in again:
        # The counters of the new session begin at 0.
        record["step_s"] -= 1.5
    resume = {"kind": "event", "event": "resume", "time_s": made.BEGAN_S + 5003, "env_steps": 3000}
    first = [made.train(s) for s in (1, 2, 3, 4, 5)]
    found = folder.load(made.made(tmp_path / "a", [*first, resume, *again]), "a")
    train = found.records.train
    np.testing.assert_array_equal(train["env_steps"], 1000.0 * np.arange(1, 7))
    np.testing.assert_allclose(train["elapsed_s"], np.arange(1, 7))
    assert found.total("step_s") == pytest.approx(3.0)
    assert found.records.resumes == 1


def test_a_resume_in_a_cut_line_is_found(tmp_path: Path) -> None:
    """The first record of a resumed run stands right behind what a kill left of a line."""
    resume = {"kind": "event", "event": "resume", "time_s": made.BEGAN_S + 5003, "env_steps": 3000}
    again = made.train(4) | {"time_s": made.BEGAN_S + 5004}
    first = [json.dumps(made.train(s)) + "\n" for s in (1, 2, 3, 4, 5)]
    cut = [json.dumps(made.train(6))[:40] + json.dumps(resume) + "\n", json.dumps(again) + "\n"]
    found = records.read(written(tmp_path / "m", [*first, *cut]))
    np.testing.assert_allclose(found.train["elapsed_s"], [1, 2, 3, 4])
    assert (found.resumes, found.unreadable) == (1, 1)


def test_a_run_trained_further_is_not_finished(tmp_path: Path) -> None:
    """The score before the resume is not the score of what goes on."""
    resume = {"kind": "event", "event": "resume", "time_s": made.BEGAN_S + 99, "env_steps": 10_000}
    found = folder.load(made.made(tmp_path / "a", [*made.usual(), resume]), "a")
    assert found.records.final is None
    assert found.status != "finished"


@pytest.mark.parametrize("n", [999, 1000, 1001, 5000, 12_345])
def test_long_files_are_thinned(tmp_path: Path, n: int) -> None:
    """At most `limit` records a kind and some, evenly, with the first and the last."""
    lines = [json.dumps(made.train(s)) + "\n" for s in range(1, n + 1)]
    lines += [json.dumps(made.final(n, 1.0)) + "\n"]
    found = records.read(written(tmp_path / "m", lines), limit=1000)
    seconds = found.train["elapsed_s"]
    assert seconds[0] == pytest.approx(1)
    assert seconds[-1] == pytest.approx(n)
    assert len(seconds) <= 1001
    assert len(seconds) == n or len(seconds) > 450
    assert np.diff(seconds).max() <= found.stride
    assert found.final is not None


def test_thinning_keeps_the_order_of_kinds(tmp_path: Path, rng: np.random.Generator) -> None:
    """Time never runs twice, whatever kinds follow each other."""
    lines = []
    for second in range(1, 3001):
        kind = made.train(second) if rng.random() < 0.7 else made.evaluation(second, 1.0)
        lines.append(json.dumps(kind) + "\n")
    lines.append(json.dumps(made.train(3001)) + "\n")
    found = records.read(written(tmp_path / "m", lines), limit=50)
    for columns in (found.train, found.evals):
        np.testing.assert_allclose(columns["elapsed_s"], columns["env_steps"] // 1000)


def test_a_million_records_are_read(tmp_path: Path) -> None:
    """What is kept stays small, and counters end where they ended."""
    head = '{"kind": "train", "time_s": '
    path = tmp_path / "m"
    with path.open("w") as file:
        for second in range(1, 1_000_001):
            file.write(f'{head}{second}, "env_steps": {second}, "env_steps_per_s": 1}}\n')
    found = records.read(path)
    assert len(found.train) <= records.LIMIT + 1
    assert found.train["env_steps"][-1] == found.train["elapsed_s"][-1] == 1_000_000
    assert found.stride == 50
