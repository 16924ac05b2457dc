# SPDX-License-Identifier: MIT
"""Makes the running copal importable in the peers' environments, for its adapters.

These have the same Python as the running one, and the adapters need nothing that a peer has not,
so the package is copied and a path file in each environment names the copy.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import copal
from copal.bench.peers import interpreter
from copal.native import supported

FOLDER = "copal"
"""Name of the copy below the folder of the environments."""
PATH_FILE = "copal.pth"


def copy_package(folder: Path) -> Path:
    """Copies the running package, extension modules included, over an older copy.

    Args:
        folder: Gets the package as `folder/copal`.

    Returns:
        `folder`, to be put on a path of modules.
    """
    fresh = folder / f"copal.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    source = Path(str(copal.__file__)).parent
    shutil.copytree(source, fresh, ignore=shutil.ignore_patterns("__pycache__"))
    for extension in _extensions():
        shutil.copy2(extension, fresh / extension.name)
    target = folder / "copal"
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return folder


def _extensions() -> Iterator[Path]:
    for name in ("_isa", *(f"_native_{isa}" for isa in supported())):
        spec = importlib.util.find_spec(f"copal.{name}")
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)


def site_packages(root: Path, environment: str) -> Path:
    """Where an environment below `root` keeps its modules."""
    folder = interpreter(root, environment).parent.parent
    variables = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


def share(root: Path, environments: list[str]) -> None:
    """Copies the package below `root` and makes `environments` import it from there.

    Args:
        root: Folder of the environments.
        environments: Names of those; one that is not installed is left out.
    """
    folder = copy_package(root / FOLDER).resolve()
    for environment in environments:
        modules = site_packages(root, environment)
        if modules.is_dir():
            (modules / PATH_FILE).write_text(f"{folder}\n", encoding="utf-8")
