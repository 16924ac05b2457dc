# SPDX-License-Identifier: MIT
"""`copal report`: its page as HTML and SVG, its pictures, and what it refuses."""

from __future__ import annotations

import html.parser
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import report_runs as made

from copal import cli
from copal.codesign import report
from copal.codesign.report import ReportConfig, svg
from copal.errors import CheckpointError, ConfigError, NoSuchRunError

VOID = {"meta", "link", "img", "br"}
SHAPES = {"polyline", "polygon", "line", "rect", "circle", "text"}


class Tree(html.parser.HTMLParser):
    """Checks that elements nest, and gathers what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of the elements of this kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def cells(self) -> list[str]:
        """Texts of the tables."""
        return [text for tag, text in self.texts if tag in ("td", "th")]


def page(tmp_path: Path, *folders: Path, **settings: object) -> str:
    """The text of the page about these runs."""
    out = tmp_path / "report.html"
    assert report.write(ReportConfig(folders, out=out, **settings))[0] == out
    return out.read_text(encoding="utf-8")


def test_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    """Elements nest, ids are unique, and no address leads outside."""
    runs = [made.made(tmp_path / str(s), made.usual(gain=s), seed=s) for s in (1, 2)]
    other = made.made(tmp_path / "torch", backend="torch")
    text = page(tmp_path, *runs, other)
    tree = Tree(text)
    ids = [a["id"] for _, a in tree.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"url\(|@import|https?:", outside)
    for tag, attributes in tree.elements:
        for name in ("src", "href", "action"):
            assert attributes.get(name, "data:,") == "data:,", tag
    titles = " ".join(text for tag, text in tree.texts if tag == "figcaption")
    for title in ("Evaluation over steps", "Evaluation over time", "Ratio", "by stage", "loss"):
        assert title in titles


def test_curves_lie_inside_their_axes(tmp_path: Path, rng: np.random.Generator) -> None:
    """Every number of every shape is finite and inside the picture."""
    records = []
    for second in range(1, 400):
        value = float(10.0 ** rng.uniform(-6, 9)) * float(rng.choice([-1, 1]))
        records += [made.train(second, loss=value), made.evaluation(second, value)]
    tree = Tree(page(tmp_path, made.made(tmp_path / "a", records)))
    shapes = [(name, a) for name, a in tree.elements if name in SHAPES]
    assert len(shapes) > 100
    for name, attributes in shapes:
        numbers = " ".join(
            attributes.get(key) or "" for key in ("points", "x", "y", "x1", "x2", "y1", "y2")
        )
        values = np.array([float(n) for n in re.split(r"[ ,]+", numbers.strip()) if n])
        assert np.isfinite(values).all(), name
        assert (values >= -1).all(), name
        assert (values <= max(svg.WIDTH, svg.HEIGHT) + 1).all(), name


def test_drawn_values_are_those_of_the_records(tmp_path: Path) -> None:
    """What the pointer shows, and where the curve is, for the mean of two seeds."""
    runs = [made.made(tmp_path / str(s), made.usual(gain=s), seed=s) for s in (1, 3)]
    text = page(tmp_path, *runs)
    found = re.search(r'<figure id="evaluation-steps".*?</figure>', text, re.DOTALL)
    assert found is not None
    data = json.loads(re.search(r"application/json\">(.*?)</script>", found[0])[1])  # type: ignore[index]
    line = data["lines"][0]
    assert line["mean"] == [2.0 * s for s in range(1, 11)]
    assert line["low"] == [1.0 * s for s in range(1, 11)]
    assert line["high"] == [3.0 * s for s in range(1, 11)]
    points = re.search(r'class="mean" points="([^"]*)"', found[0])[1]  # type: ignore[index]
    x, y = map(float, points.split(" ")[-1].split(","))
    left, top, right, bottom = data["box"]
    assert x == pytest.approx(left + (10_003 / data["x"][1]) * (right - left), abs=0.1)
    assert y == pytest.approx(bottom - 20 / data["y"][1] * (bottom - top), abs=0.1)


def test_tables_say_what_became_of_runs(tmp_path: Path) -> None:
    """Finished, running, stopped, resumed; rates, scores and settings that differ."""
    finished = made.made(tmp_path / "finished")
    running = made.made(tmp_path / "running", [made.train(1)], tail='{"kind": "tr', gamma=0.9)
    stopped = made.made(tmp_path / "stopped", [made.train(1)], gamma=0.8)
    empty = made.made(tmp_path / "empty", [], gamma=0.7)
    (empty / "metrics.jsonl").unlink()
    old = time.time() - 7200
    os.utime(stopped / "metrics.jsonl", (old, old))
    tree = Tree(page(tmp_path, finished, running, stopped, empty))
    cells = tree.cells()
    row = cells[cells.index("finished") :]
    assert "10.0 ± 1.5 (20)" in row
    assert any(re.fullmatch(r"running, last record \d+ s ago", cell) for cell in cells)
    assert "stopped without a final score, silent for 2 h 00 min" in cells
    assert "stopped without a final score, no records" in cells
    assert {"gamma", "0.99", "0.9", "0.8", "0.7"} <= set(cells)
    notes = " ".join(text for tag, text in tree.texts if tag == "p")
    assert "running: 1 line of metrics.jsonl could not be read" in notes
    assert "empty: no records yet" in notes
    assert "No evaluation during training: running, stopped, empty" in notes


PLAN = {
    "copal_plan": 1,
    "objective": "throughput",
    "why": "3 + 1 on cpu: 12.0% fewer env steps/s",
    "chosen": {
        "backend": "cpu",
        "allocation": {"actors": 2, "learners": 1},
        "predicted": {"env_steps_per_s": 1250.0, "updates_per_s": 400.0},
    },
}


def test_plan_stands_beside_what_was_achieved(tmp_path: Path) -> None:
    """Every line of the comparison, what drifted, and the promised rates in the charts."""
    run = made.made(tmp_path / "a")
    lines = [
        {"name": "env steps/s", "predicted": 1250.0, "achieved": 1000.0, "off": -0.2},
        {"name": "env, us an env step", "predicted": 20.0, "achieved": 30.0, "off": 0.5},
    ]
    achieved = {"lines": lines, "drift": ["drift: most of it in stage `env`"]}
    (run / "plan.json").write_text(json.dumps(PLAN))
    (run / "achieved.json").write_text(json.dumps(achieved))
    text = page(tmp_path, run)
    tree = Tree(text)
    cells = tree.cells()
    at = cells.index("env, us an env step")
    assert cells[at : at + 4] == ["env, us an env step", "20", "30", "+50 %"]
    assert "-20 %" in cells
    captions = " ".join(text for tag, text in tree.texts if tag == "caption")
    assert "planned with 2 + 1 threads (actors + learners) on cpu, for throughput" in captions
    assert "12.0% fewer env steps/s" in captions
    assert "a: drift: most of it in stage `env`" in [t for tag, t in tree.texts if tag == "p"]
    assert "plan: 1,250" in text
    assert "plan: 400" in text


def test_plan_of_a_run_that_goes_on_is_compared_by_its_rates(tmp_path: Path) -> None:
    """Until the run is over nothing else is known."""
    run = made.made(tmp_path / "a", [made.train(s) for s in (1, 2, 3)])
    (run / "plan.json").write_text(json.dumps(PLAN))
    cells = Tree(page(tmp_path, run)).cells()
    at = len(cells) - cells[::-1].index("env steps/s") - 1
    assert cells[at : at + 4] == ["env steps/s", "1,250", "1,000", "-20 %"]


@pytest.mark.parametrize("plan", [{}, {"chosen": 3, "why": []}, {"chosen": {"predicted": []}}])
def test_odd_plans_cost_no_page(tmp_path: Path, plan: dict) -> None:
    """Of another version, or changed by hand."""
    run = made.made(tmp_path / "a")
    (run / "plan.json").write_text(json.dumps(plan))
    (run / "achieved.json").write_text(json.dumps({"lines": [1, {}, {"name": []}], "drift": 7}))
    assert "Plan against achieved" in page(tmp_path, run)


def test_names_are_escaped(tmp_path: Path) -> None:
    """Text of a run never becomes markup."""
    evil = '</script><script>alert("1")</script><img src=x onerror=alert(2)>&\'$x'
    folder = made.made(tmp_path / "<i>run", [made.train(1, **{evil: 1.0})], env=evil)
    tree = Tree(page(tmp_path, folder, title=evil))
    assert tree.all("img") == []
    assert [a.get("type") for a in tree.all("script")].count(None) == 1
    heading = "".join(text for tag, text in tree.texts if tag == "h1")
    assert heading == evil
    assert "<i>run" in tree.cells()


def test_a_folder_of_runs_stands_for_its_runs(tmp_path: Path) -> None:
    """Each once, also when it is named twice."""
    for name in ("a", "b"):
        made.made(tmp_path / "runs" / name, seed=ord(name))
    tree = Tree(page(tmp_path, tmp_path / "runs", tmp_path / "runs" / "a"))
    assert tree.cells().count("a") == tree.cells().count("b") == 1


@pytest.mark.parametrize("kind", ["nothing", "file", "empty"])
def test_what_is_no_run_is_refused(tmp_path: Path, kind: str) -> None:
    """With what it is instead, status 2, and no page."""
    folder = tmp_path / "x"
    if kind == "file":
        folder.write_text("")
    elif kind == "empty":
        folder.mkdir()
    with pytest.raises(NoSuchRunError) as caught:
        page(tmp_path, made.made(tmp_path / "a"), folder)
    assert str(folder) in caught.value.got
    assert "config.json" in caught.value.hint
    assert cli.main(["report", str(folder), "--out", str(tmp_path / "o.html")]) == 2
    assert list(tmp_path.glob("*.html")) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_a_damaged_run_is_named(tmp_path: Path, text: str) -> None:
    """The file that cannot be read is told."""
    folder = made.made(tmp_path / "a")
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError) as caught:
        page(tmp_path, folder)
    assert caught.value.field == str(folder / "config.json")


@pytest.mark.parametrize("blocked", ["out", "png"])
def test_output_that_cannot_be_written_is_refused(tmp_path: Path, blocked: str) -> None:
    """A file where a folder should be; root may write anywhere else."""
    run = made.made(tmp_path / "a")
    (tmp_path / "file").write_text("kept")
    where = tmp_path / "file" / "x"
    targets = {"out": tmp_path / "r.html", "png": None, blocked: where}
    with pytest.raises(ConfigError) as caught:
        report.write(ReportConfig((run,), **targets))
    assert caught.value.field == blocked
    assert caught.value.hint
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    """`--out` names a file; what the folder holds is left alone."""
    run = made.made(tmp_path / "a")
    with pytest.raises(ConfigError, match="is a folder"):
        report.write(ReportConfig((run,), out=run))
    assert sorted(p.name for p in run.iterdir()) == [
        "config.json",
        "machine.json",
        "metrics.jsonl",
    ]


def test_no_run_at_all_is_refused() -> None:
    """Nothing to report about."""
    with pytest.raises(ConfigError, match="at least one run folder"):
        ReportConfig(())


def test_pictures_are_written(tmp_path: Path) -> None:
    """One PNG a figure of the page, of a size for print."""
    text_of = tmp_path / "pictures"
    runs = [made.made(tmp_path / f"$a_{s}$", seed=s, gamma=1 / s) for s in (1, 2)]
    page(tmp_path, *runs, png=text_of)
    tree = Tree((tmp_path / "report.html").read_text())
    figures = {f"{a['id']}.png" for a in tree.all("figure")}
    assert {path.name for path in text_of.iterdir()} == figures
    for path in text_of.iterdir():
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(data[16:20], "big") > 1000


def test_a_figure_with_a_slash_in_its_name_is_a_file(tmp_path: Path) -> None:
    """The losses of algorithms with several networks, `sac-actor/loss`, stay in the folder."""
    records = [made.train(second, **{"sac-actor/loss": 1.0}) for second in range(1, 5)]
    page(tmp_path, made.made(tmp_path / "a", records), png=tmp_path / "pictures")
    assert (tmp_path / "pictures" / "sac-actor-loss.png").is_file()
    assert all(path.is_file() for path in (tmp_path / "pictures").iterdir())


def test_pictures_without_matplotlib_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written; the page alone needs nothing."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run = made.made(tmp_path / "a")
    with pytest.raises(ConfigError, match="matplotlib"):
        page(tmp_path, run, png=tmp_path / "pictures")
    assert not (tmp_path / "report.html").exists()
    assert page(tmp_path, run)


def test_command_prints_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else goes to stdout."""
    run, out = made.made(tmp_path / "a"), tmp_path / "deep" / "r.html"
    assert cli.main(["report", str(run), "--out", str(out), "--title", "Ours"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "<h1>Ours</h1>" in out.read_text()
