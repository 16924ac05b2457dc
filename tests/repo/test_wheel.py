# SPDX-License-Identifier: MIT
"""The wheel holds everything that the package needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    """A wheel built from the checkout imports and samples on its own."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    # One instruction set is enough to see that the parts are in place.
    settings = ["cmake.define.COPAL_ISAS=v2", f"build-dir={tmp_path / 'build'}"]
    options = [f"--config-settings={s}" for s in settings]
    subprocess.run([*build, *options, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import copal, importlib.resources, numpy as np;"
        "page = importlib.resources.files('copal.codesign.report') / 'assets' / 'page.html';"
        "assert page.is_file(), page;"
        f"assert copal.__file__.startswith({str(tmp_path)!r}), copal.__file__;"
        "r = copal.PrioritizedReplay(8, {'obs': ((2,), 'float32')});"
        "r.add(obs=np.ones((3, 2), 'float32'));"
        "assert r.sample(4, beta=0.4)['obs'].sum() == 8"
    )
    packages = Path(np.__file__).parents[1]
    env = {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{packages}", "COPAL_ISA": "v2"}
    # Without `site`, the finder of an editable install stays out.
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=tmp_path, env=env)
