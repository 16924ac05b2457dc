# SPDX-License-Identifier: MIT
"""Checkpoints: one folder each, whole or absent, the newest whole one wins.

    checkpoints/step_000050000/
        manifest                  its own checksum, the format version, counters, and
                                  size and SHA-256 of every other file
        weights.safetensors       every network, targets included
        optimiser.safetensors     both moments of Adam of every trained network
        best.safetensors          acting network of the best evaluation so far, if there was one
        replay.bin                the replay buffer
        actors.json               episodes in progress and counters of every actor

A checkpoint is written into a hidden folder, flushed to the disk and then renamed, so a process
that dies in the middle leaves the previous ones as they are.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import copal
from copal.errors import CheckpointError
from copal.runtime import files

FORMAT = 1
MANIFEST = "manifest"
_TEMPORARY = ".writing-"
_REPLACED = ".replaced"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    path: Path
    """Its folder."""
    counters: Mapping[str, Any]
    """What was stored beside the files: env steps, updates and so on."""

    def arrays(self, name: str) -> dict[str, Any]:
        """Content of the safetensors file `name`, empty if it was not written."""
        path = self.path / name
        return files.read_arrays(path) if path.exists() else {}

    def json(self, name: str) -> Any:
        """Content of the JSON file `name`."""
        return json.loads((self.path / name).read_text())


class CheckpointStore:
    """The checkpoints of one run folder.

    Args:
        root: Folder of the checkpoints, made when the first one is written.
        keep: How many to keep, newest first.
    """

    def __init__(self, root: Path, keep: int = 2) -> None:
        self.root, self._keep = root, keep

    @contextlib.contextmanager
    def writing(self, env_steps: int) -> Iterator[Path]:
        """A temporary folder to write the files into; follow with `seal`."""
        folder = self.root / f"{_TEMPORARY}{_name(env_steps)}"
        self._sweep()
        folder.mkdir(parents=True)
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def seal(self, folder: Path, env_steps: int, counters: Mapping[str, Any]) -> Path:
        """Turns the folder of `writing` into a checkpoint and drops the oldest ones.

        Returns:
            The checkpoint's folder.
        """
        listed = {
            p.name: {"bytes": p.stat().st_size, "sha256": files.sha256(p)}
            for p in sorted(folder.iterdir())
        }
        for path in folder.iterdir():
            files.sync(path)
        manifest = {
            "format": FORMAT,
            "copal": copal.__version__,
            "counters": dict(counters),
            "files": listed,
        }
        files.write_text(folder / MANIFEST, manifest_text(manifest))
        files.sync(folder)
        final = self.root / _name(env_steps)
        replaced = final.with_suffix(_REPLACED)
        if final.exists():
            # Under a name that `folders` finds too: at no moment is there none.
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)
        folder.rename(final)
        files.sync(self.root)
        for other in self._superseded(final):
            shutil.rmtree(other, ignore_errors=True)
        return final

    def folders(self) -> list[Path]:
        """Folders of the checkpoints, newest first, whole or not."""
        found = self.root.glob("step_*") if self.root.exists() else ()
        return sorted(found, key=lambda p: (p.stem, p.suffix != _REPLACED), reverse=True)

    def _superseded(self, final: Path) -> list[Path]:
        """All but the newest `keep` up to `final`.

        One that claims more steps than `final` was damaged when the run went on from before it; if
        it counted, it would push out those that are whole.
        """
        older = [p for p in self.folders() if p.stem <= final.stem and p.suffix != _REPLACED]
        return [p for p in self.folders() if p not in older[: self._keep]]

    def newest(self, warn: Callable[[str], None]) -> Checkpoint:
        """The newest checkpoint that is whole.

        Args:
            warn: Told about each damaged one that was passed over.

        Raises:
            CheckpointError: None is whole, or the newest one is of another format version.
        """
        damaged: CheckpointError | None = None
        for folder in self.folders():
            try:
                return load(folder)
            except CheckpointError as e:
                if e.field == "format":
                    raise
                warn(f"checkpoint {folder.name} is damaged, trying the one before it: {e}")
                damaged = damaged or e
        if damaged is not None:
            raise damaged
        raise CheckpointError(
            "resume",
            f"a checkpoint in `{self.root}`",
            "none",
            "give the run folder that `copal train` printed",
        )

    def _sweep(self) -> None:
        for left in self.root.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)


def load(folder: Path) -> Checkpoint:
    """Checks the checkpoint in `folder`, file by file.

    Raises:
        CheckpointError: A file is missing, truncated or altered, or the format is another one.
    """
    try:
        check, text = (folder / MANIFEST).read_text().split("\n", 1)
        manifest = json.loads(text)
        version, listed, counters = manifest["format"], manifest["files"], manifest["counters"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise CheckpointError(str(folder / MANIFEST), "a manifest", repr(e)) from e
    if check != _check_line(text):
        raise CheckpointError(str(folder / MANIFEST), _check_line(text), check)
    if version != FORMAT:
        raise CheckpointError(
            "format",
            f"{FORMAT}",
            f"{version}, written by copal {manifest.get('copal')}",
            "resume with that version of copal, or start a new run",
        )
    for name, facts in listed.items():
        _check_file(folder / name, facts)
    return Checkpoint(folder, counters)


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The manifest as it is stored: its own checksum, then JSON."""
    text = json.dumps(manifest, indent=2) + "\n"
    return f"{_check_line(text)}\n{text}"


def _check_line(text: str) -> str:
    return f"// crc32 {zlib.crc32(text.encode()):08x}"


def _check_file(path: Path, facts: Mapping[str, Any]) -> None:
    size = path.stat().st_size if path.exists() else -1
    if size != facts["bytes"]:
        got = "no such file" if size < 0 else f"{size} bytes"
        raise CheckpointError(str(path), f"{facts['bytes']} bytes", got)
    if files.sha256(path) != facts["sha256"]:
        raise CheckpointError(str(path), "the content that was written", "another SHA-256")


def _name(env_steps: int) -> str:
    return f"step_{env_steps:012d}"
