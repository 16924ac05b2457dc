# SPDX-License-Identifier: MIT
"""Where figures go: one JSON object a line, TensorBoard events, and stderr."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from copal.runtime import machine, metrics


def test_records_are_appended_one_a_line(tmp_path: Path) -> None:
    """A second log goes on in the same file; what is not finite becomes null."""
    for steps in (10, 20):
        with metrics.MetricsLog(tmp_path, tensorboard=False) as log:
            log.write("train", steps, {"return": 1.5, "loss": float("nan")})
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["env_steps"] for r in records] == [10, 20]
    assert all((r["kind"], r["return"], r["loss"]) == ("train", 1.5, None) for r in records)
    assert records[0]["time_s"] <= records[1]["time_s"]


def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    """Numbers become scalars, texts do not."""
    with metrics.MetricsLog(tmp_path, tensorboard=True) as log:
        log.write("eval", 10, {"mean_return": 1.5, "note": "text", "none": float("inf")})
    files = list((tmp_path / "events").iterdir())
    assert len(files) == 1
    assert b"eval/mean_return" in files[0].read_bytes()
    assert b"eval/no" not in files[0].read_bytes()


def test_lines_go_to_stderr_and_the_last_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Between the first and the last line the figures wait for the interval."""
    lines = metrics.Lines(100, interval_s=1e6)
    for step in (10, 20, 30):
        lines.update(step, {"return": 2.0, "env_steps_per_s": 1234.0})
    lines.say("a message")
    lines.close()
    out, err = capsys.readouterr()
    assert out == ""
    shown = err.splitlines()
    assert len(shown) == 3
    assert shown[0] == "step 10/100  return 2.0  1,234 steps/s"
    assert shown[1] == "a message"
    assert shown[2].startswith("step 30/100")


def test_bar_accepts_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    """A message that looks like markup is shown as it is, on stderr."""
    bar = metrics.Bar(10)
    bar.update(5, {"return": float("nan")})
    bar.say("column [obs] is wrong")
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "column [obs] is wrong" in err


@pytest.mark.parametrize(
    ("step", "total", "figures", "shown"),
    [
        (
            123_456,
            400_000,
            (-123.4, 12_345.0, 12_340.0, 1.0),
            "123,456/400,000 -:--:-- left return -123.4 12.3k steps/s 12.3k upd/s ratio 1.00",
        ),
        (
            123_456_789,
            900_000_000,
            (-9999.94, 123_456.0, 9_999.0, 16.04),
            "123.46M/900M -:--:-- left return -9999.9 123k steps/s 9999 upd/s ratio 16.0",
        ),
        (
            999_999,
            999_999,
            (-23_456.0, 1_234_567.0, 999.6, 0.5),
            "999,999/999,999 0:00:00 left return -23.5k 1.23M steps/s 1000 upd/s ratio 0.50",
        ),
    ],
)
def test_bar_fits_a_terminal_of_80_columns(
    step: int, total: int, figures: tuple[float, ...], shown: str
) -> None:
    """Nothing is cut; on a wide one a bar stands in front."""
    names = ("return", "env_steps_per_s", "updates_per_s", "ratio")
    for width in (80, 120):
        text = io.StringIO()
        bar = metrics.Bar(total, Console(file=text, width=width, color_system=None))
        bar.update(step, dict(zip(names, figures, strict=True)))
        bar.close()
        line = text.getvalue().splitlines()[-1].rstrip()
        assert len(line) <= width
        assert line.endswith(shown)
        assert (line == shown) == (width == 80)


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither figures nor messages."""
    silent = metrics.progress(10, quiet=True)
    silent.update(5, {"return": 1.0})
    silent.say("hello")
    silent.close()
    assert capsys.readouterr() == ("", "")


def test_machine_is_plain_json() -> None:
    """The description serialises and names what a figure depends on."""
    described = json.loads(json.dumps(machine.describe()))
    assert described["cores"] >= 1
    assert described["cpu"]
    assert {"copal", "python", "numpy"} <= set(described["versions"])
