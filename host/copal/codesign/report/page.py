# SPDX-License-Identifier: MIT
"""One HTML page that needs nothing beside itself: text, tables, figures, style and script."""

from __future__ import annotations

import base64
import hashlib
import json
import string
from collections.abc import Sequence
from html import escape
from importlib import resources

from copal.codesign.report import svg
from copal.codesign.report.contents import Contents, Section
from copal.codesign.report.figures import Bars, Figure
from copal.codesign.report.groups import Group
from copal.codesign.report.tables import Table

FOLDED = 24
"""Tables with more rows than this are folded until asked for."""


def render(contents: Contents) -> str:
    """The page.

    Everything that comes from a run is escaped, and the page's policy lets no script run but its
    own, and nothing be fetched.
    """
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(("\n" + script).encode()).digest()).decode()
    numbered = _Numbers()
    sections = "\n".join(_section(section, numbered) for section in contents.sections)
    return string.Template(_asset("page.html")).substitute(
        title=escape(contents.title),
        lead=escape(contents.lead),
        legend="".join(_key(group) for group in contents.groups),
        sections=sections,
        footer=escape(contents.footer),
        style=_asset("page.css"),
        script=script,
        script_hash=digest,
    )


class _Numbers:
    """Counts figures and tables."""

    def __init__(self) -> None:
        self._given = {"Figure": 0, "Table": 0}

    def next(self, kind: str) -> str:
        """The next one of its kind, such as `Figure 3`."""
        self._given[kind] += 1
        return f"{kind} {self._given[kind]}"


def _asset(name: str) -> str:
    return (resources.files("copal.codesign.report") / "assets" / name).read_text(encoding="utf-8")


def _key(group: Group) -> str:
    n = len(group.runs)
    text = escape(group.label) + (f" ({n} seeds)" if n > 1 else "")
    return (
        f'<button type="button" data-group="{group.index}" aria-pressed="true">'
        f'<span class="swatch {svg.colour(group.index)}"></span>{text}</button>'
    )


def _section(section: Section, numbered: _Numbers) -> str:
    parts = [f'<section id="{section.key}"><h2>{escape(section.title)}</h2>']
    parts += [f'<p class="note">{escape(note)}</p>' for note in section.notes]
    if section.figures:
        drawn = "".join(_figure(figure, numbered) for figure in section.figures)
        parts.append(f'<div class="figures">{drawn}</div>')
    parts += [_table(table, numbered) for table in section.tables]
    return "".join(parts) + "</section>"


def _figure(figure: Figure, numbered: _Numbers) -> str:
    caption = f"<figcaption><b>{numbered.next('Figure')}.</b> {escape(figure.title)}.</figcaption>"
    if isinstance(figure, Bars):
        keys = "".join(
            f'<li><i class="p{i % 9}"></i>{escape(part)}</li>'
            for i, part in enumerate(figure.parts)
        )
        inside = f'{svg.drawn(figure)}<ul class="keys">{keys}</ul>'
        return f'<figure id="{escape(figure.key)}">{inside}{caption}</figure>'
    # A `<` could end the element early.
    values = json.dumps(svg.values(figure), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure id="{escape(figure.key)}" data-x="{escape(figure.x_label)}">{svg.drawn(figure)}'
        f'<script type="application/json">{values}</script>{caption}</figure>'
    )


def _table(table: Table, numbered: _Numbers) -> str:
    number = numbered.next("Table")
    kinds = ["text" if i in table.text or i == 0 else "" for i in range(len(table.header))]
    head = "".join(_cell("th", text, kind) for text, kind in zip(table.header, kinds, strict=True))
    rows = "".join(f"<tr>{_row(row, kinds)}</tr>" for row in table.rows)
    made = (
        f'<div class="scroll"><table><caption><b>{number}.</b> {escape(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    if len(table.rows) <= FOLDED:
        return made
    return f"<details><summary>{escape(table.caption)}</summary>{made}</details>"


def _row(cells: Sequence[str], kinds: Sequence[str]) -> str:
    first, *others = (_cell("td", text, kind) for text, kind in zip(cells, kinds, strict=True))
    return first.replace("<td", '<th scope="row"', 1).replace("</td>", "</th>") + "".join(others)


def _cell(tag: str, text: str, kind: str) -> str:
    return (
        f'<{tag} class="{kind}">{escape(text)}</{tag}>'
        if kind
        else f"<{tag}>{escape(text)}</{tag}>"
    )
