# SPDX-License-Identifier: MIT
"""What is built once: tools that end with their build, folders that are swept, disks that fill."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from copal import builds, cli
from copal.errors import ConfigError
from copal.fpga import build, simulate, tools
from copal.fpga.config import EngineConfig

LIMIT_S = 60.0
#: Starts a program of its own, as `make` does, says which, and waits.
TOOL = "sleep 600 & echo $!; wait"
#: A process that builds, as one that is killed sees it.
BUILD = f"""
import signal, sys
from pathlib import Path
from copal import builds
# A shell starts what runs in its background with this one ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
out = Path(sys.argv[1])
with builds.locked(out / "engine.lock"), builds.workspace(out / "engine") as work:
    with (out / "told").open("w") as log:
        builds.run(["sh", "-c", {TOOL!r}], work, log=log)
"""


def gone(process: int) -> bool:
    """Whether a process has ended, or does so soon."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def told(path: Path) -> int:
    """The number in a file, once it is there."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
        time.sleep(0.01)
    pytest.fail(f"{path.name} was not written")


def test_a_tool_that_takes_too_long_ends_with_all_it_started(tmp_path: Path) -> None:
    """The shell and the program that it waits for."""
    log = tmp_path / "told"
    with log.open("w") as file, pytest.raises(subprocess.TimeoutExpired):
        builds.run(["sh", "-c", TOOL], tmp_path, log=file, limit_s=1.0)
    assert gone(told(log))


def test_a_tool_s_output_and_status_are_returned(tmp_path: Path) -> None:
    """Both streams, whatever their bytes are."""
    script = "printf 'a\\377b'; echo c >&2; exit 3"
    done = builds.run(["sh", "-c", script], tmp_path)
    assert (done.returncode, done.stdout) == (3, "a\N{REPLACEMENT CHARACTER}bc\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_tools_and_sweeps_the_folder(
    number: signal.Signals, tmp_path: Path
) -> None:
    """No compiler works on for nobody, nothing but the lock stays."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        tool = told(tmp_path / "told")
        process.send_signal(number)
        status = process.wait(LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert status in (128 + number, -number)
    assert gone(tool)
    assert {p.name for p in tmp_path.iterdir()} == {"engine.lock", "told"}


def test_what_a_killed_build_left_is_swept(tmp_path: Path) -> None:
    """By the next one of the same engine, which holds its lock; others may be at work."""
    for name in ("engine.abc", "other.abc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "engine.lock").touch()
    with builds.workspace(tmp_path / "engine") as work:
        assert work.is_dir()
        assert not (tmp_path / "engine.abc").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"engine.lock", "other.abc"}


def test_a_full_disk_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the run's folder that is full; nothing of the build is left."""

    def full(config: EngineConfig, work: Path) -> None:
        del config
        raise OSError(errno.ENOSPC, "No space left on device", str(work / "vec.v"))

    monkeypatch.setenv("COPAL_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_compile", full)
    monkeypatch.setattr(tools, "missing", lambda *_: None)
    with pytest.raises(ConfigError, match=r"`COPAL_CACHE`.*No space left") as caught:
        build.build(EngineConfig())
    assert "make room" in str(caught.value.hint)
    assert [p.suffix for p in (tmp_path / "fpga" / "sim").iterdir()] == [".lock"]


def test_output_to_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    """It is no defect to report."""
    del tmp_path
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "copal.cli", "devices", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "make room" in done.stderr
    assert "report" not in done.stderr


def test_disk_errors_of_any_verb_have_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other errors of the system still ask to be reported."""
    for number, hint in ((errno.EROFS, "another folder"), (errno.EPIPE + 1000, "report")):
        error = OSError(number, "refused")
        monkeypatch.setattr(simulate, "run", lambda _, error=error: (_ for _ in ()).throw(error))
        assert cli.main(["simulate"]) == 1
        assert hint in capsys.readouterr().err


def test_results_that_were_cut_off_count_as_a_failure(tmp_path: Path) -> None:
    """A simulation that is killed while it writes them has not passed."""
    cut = tmp_path / "results.xml"
    cut.write_text("<testsuites><testsuite><testcase")
    assert simulate._counts(cut) == (1, 1)
    assert simulate._counts(tmp_path / "none.xml") == (1, 1)


def test_a_tool_that_finds_no_room_is_a_full_disk(tmp_path: Path) -> None:
    """Not a defect of what it compiles; a tool that went through may print what it likes."""
    script = "echo 'x.o: No space left on device'; exit"
    with pytest.raises(OSError, match=r"x\.o: No space left") as caught:
        builds.run(["sh", "-c", f"{script} 1"], tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert builds.run(["sh", "-c", f"{script} 0"], tmp_path).returncode == 0


def test_what_is_kept_appears_whole(tmp_path: Path) -> None:
    """A file or a folder, made once; nothing is there after a failure."""

    def fails(work: Path) -> Path:
        (work / "half").touch()
        raise ZeroDivisionError

    def works(work: Path) -> Path:
        (work / "made").mkdir()
        return work / "made"

    with pytest.raises(ZeroDivisionError):
        builds.once(tmp_path / "kept", fails)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.lock"]
    assert builds.once(tmp_path / "kept", works).is_dir()
    assert builds.once(tmp_path / "kept", fails) == tmp_path / "kept"
