# SPDX-License-Identifier: MIT
"""What `copal report` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from copal.bench.plot import require_matplotlib
from copal.codesign.report import page, png
from copal.codesign.report.contents import Contents, contents
from copal.codesign.report.folder import find, load, names
from copal.codesign.report.groups import grouped
from copal.errors import ConfigError, reason
from copal.runtime import files


@dataclass(frozen=True)
class ReportConfig:
    """Write one HTML page about one or several runs, side by side."""

    dirs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, as `copal train --out` wrote them, or folders that hold some."""
    out: Path = Path("report.html")
    """Page to write; it needs nothing beside itself."""
    png: Path | None = None
    """Folder for one PNG a figure, which needs matplotlib."""
    title: str | None = None
    """Heading; None: what was trained on what."""

    def __post_init__(self) -> None:
        if not self.dirs:
            raise ConfigError("dirs", "at least one run folder", "none", "copal report runs/*")


def run(config: ReportConfig) -> int:
    """Writes the report and prints where it is; returns the exit status."""
    for path in write(config):
        print(path)
    return 0


def write(config: ReportConfig) -> list[Path]:
    """Reads the runs and writes the page, and the pictures if they are asked for.

    Returns:
        The files written.

    Raises:
        NoSuchRunError: A folder holds no run.
        CheckpointError: A file of a run cannot be read.
        ConfigError: A file cannot be written, or matplotlib is not installed.
    """
    if config.png is not None:
        require_matplotlib("png")
    told = _contents(config.dirs, config.title)
    _write(config.out, page.render(told))
    return [config.out, *([] if config.png is None else png.save(told.figures(), config.png))]


def _contents(dirs: Sequence[Path], title: str | None) -> Contents:
    folders = find(dirs)
    read = [load(folder, name) for folder, name in zip(folders, names(folders), strict=True)]
    return contents(grouped(read), title)


def _write(path: Path, text: str) -> None:
    try:
        if path.is_dir():
            raise IsADirectoryError(f"`{path}` is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
    except OSError as error:
        raise ConfigError(
            "out", "a file that can be written", reason(error), "such as --out report.html"
        ) from error
