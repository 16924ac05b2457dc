# SPDX-License-Identifier: MIT
"""The page of `copal report` about real runs, in a real headless browser."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import browser
import copal
from copal.codesign import report
from copal.codesign.report import ReportConfig

EVIL = "<img src=x onerror=broken()></script><script>broken()</script>"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """A browser for all tests; where one is promised, it has to be there."""
    program = browser.find()
    if program is None:
        assert "CI" not in os.environ, "no Chromium on PATH: .ci/run installs one"
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    with browser.launched(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report about two seeds of one setting and one run of another, with a hostile name."""
    root = tmp_path_factory.mktemp("runs")
    for name, seed, learners in (("one", 1, 1), ("two", 2, 1), (f"{EVIL[:28]}", 1, 2)):
        copal.train(
            copal.TrainConfig(
                env="CartPole-v1",
                steps=2000,
                seed=seed,
                deterministic=True,
                learners=learners,
                eval_interval=500,
                eval_episodes=1,
                final_eval_episodes=2,
                out=root / "runs" / name,
                tensorboard=False,
                quiet=True,
            )
        )
    out = root / "report.html"
    report.write(ReportConfig((root / "runs",), out=out, title=f"Seeds {EVIL}"))
    return out


def hidden(page: browser.Page, group: int) -> list[bool]:
    """Whether each chart hides the group's curve."""
    found: list[bool] = page.value(
        f"[...document.querySelectorAll('.line[data-group=\"{group}\"]')]"
        ".map(e => getComputedStyle(e).display === 'none')"
    )
    return found


def test_page_loads_without_complaint_and_fetches_nothing(
    tab: browser.Browser, page_path: Path
) -> None:
    """No error, no blocked script, no request but the page itself; names are only text."""
    page = tab.open(page_path)
    assert page.complaints() == []
    assert page.requested() == [page_path.as_uri()]
    assert page.value("document.querySelectorAll('figure svg').length") >= 10
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("document.querySelector('h1').textContent") == f"Seeds {EVIL}"


def test_script_of_others_would_not_run(tab: browser.Browser, page_path: Path) -> None:
    """The page's policy holds even if text were not escaped."""
    page = tab.open(page_path)
    page.value(
        "document.body.append(Object.assign(document.createElement('script'),"
        "{textContent: 'window.broken = 1'}))"
    )
    assert page.value("window.broken === undefined")
    assert any("Content Security Policy" in text for text in page.complaints())


def test_pointer_shows_the_values_of_the_nearest_point(
    tab: browser.Browser, page_path: Path
) -> None:
    """At the second point of a curve, for each group, with the range of its seeds."""
    page = tab.open(page_path)
    data = json.loads(page.value("document.querySelector('#evaluation-steps script').textContent"))
    x, y = page.centre("#evaluation-steps svg")
    scale = page.value(
        "document.querySelector('#evaluation-steps svg').getBoundingClientRect().width / 560"
    )
    left, _, right, _ = data["box"]
    line = next(line for line in data["lines"] if "low" in line)
    # Half way between two points rounding would decide which one is shown.
    wanted = line["x"][1]
    share = (wanted - data["x"][0]) / (data["x"][1] - data["x"][0])
    page.point(x + scale * (left + share * (right - left) - 560 / 2), y)
    xs = [value for each in data["lines"] for value in each["x"]]
    nearest = min(abs(value - wanted) for value in xs)
    shown = page.value("document.getElementById('tip').innerText")
    assert not page.value("document.getElementById('tip').hidden")
    i = min(range(len(line["x"])), key=lambda i: abs(line["x"][i] - wanted))
    assert line["label"] in shown
    assert f"{line['mean'][i]:.4g}" in shown.replace(",", "")
    assert "[" in shown
    step = float(shown.split("environment steps")[1].split()[0].replace(",", ""))
    assert abs(step - wanted) == pytest.approx(nearest, abs=1)
    assert page.value("document.querySelectorAll('#evaluation-steps .pointer circle').length") == 2
    page.point(2, 2)
    assert page.value("document.getElementById('tip').hidden")
    assert page.complaints() == []


def test_legend_hides_a_group_in_every_chart(tab: browser.Browser, page_path: Path) -> None:
    """A click hides it, another one brings it back; the other group stays."""
    page = tab.open(page_path)
    button = 'nav button[data-group="1"]'
    assert not any(hidden(page, 1))
    page.click(button)
    assert all(hidden(page, 1))
    assert not any(hidden(page, 0))
    assert page.value(f"document.querySelector('{button}').getAttribute('aria-pressed')") == "false"
    page.point(*page.centre("#evaluation-steps svg"))
    assert page.value("document.querySelectorAll('#evaluation-steps .pointer circle').length") == 1
    page.click(button)
    assert not any(hidden(page, 1))


def test_page_follows_the_system_and_the_button(tab: browser.Browser, page_path: Path) -> None:
    """Light and dark, with text that contrasts in both."""
    page = tab.open(page_path)
    colour = "getComputedStyle(document.body).backgroundColor"
    page.prefer("light")
    light, ink = page.value(colour), page.value("getComputedStyle(document.body).color")
    page.prefer("dark")
    dark, chalk = page.value(colour), page.value("getComputedStyle(document.body).color")
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    assert chalk != ink
    page.click("#theme")
    assert page.value(colour) == light
    page.click("#theme")
    assert page.value(colour) == dark


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_page_fits_windows_of_any_width(tab: browser.Browser, page_path: Path, width: int) -> None:
    """Nothing but wide tables scrolls sideways, and those inside their own box."""
    page = tab.open(page_path, width=width)
    assert page.value("document.documentElement.scrollWidth") <= width
    outside = page.value(
        "[...document.querySelectorAll('svg text, figcaption, h1, p, nav button')].filter(e => {"
        "const b = e.getBoundingClientRect();"
        f"return b.width && (b.left < -1 || b.right > {width} + 1); }}).map(e => e.textContent)"
    )
    assert outside == []
