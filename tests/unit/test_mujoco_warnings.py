# SPDX-License-Identifier: MIT
"""MuJoCo's warnings go to the log, each once, and to no file."""

import logging

import pytest

from copal.envs import mujoco_warnings
from copal.envs.gymnasium_envs import make_one

mujoco = pytest.importorskip("mujoco")


@pytest.fixture
def no_handler():
    """The handler as a fresh interpreter has it, put back afterwards."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    mujoco_warnings._said.clear()
    yield
    mujoco.set_mju_user_warning(before)


def test_environments_are_made_without_a_word_on_stderr(no_handler, capfd, tmp_path, monkeypatch):
    """Neither a line a copy, nor a file in the working folder."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        make_one("HalfCheetah-v5").close()
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


def test_a_warning_is_logged_once(no_handler, caplog):
    """An unstable simulation warns at each step otherwise."""
    mujoco_warnings.redirect("HalfCheetah-v5")
    with caplog.at_level(logging.DEBUG):
        for message in ("unstable", "unstable", "x is deprecated"):
            mujoco.get_mju_user_warning()(message)
    levels = [(r.levelno, r.getMessage()) for r in caplog.records]
    assert levels == [(logging.WARNING, "unstable"), (logging.DEBUG, "x is deprecated")]


def test_the_users_own_handler_stays(no_handler):
    """Whoever set one wants to see the warnings."""
    heard: list[str] = []
    mujoco.set_mju_user_warning(heard.append)
    mujoco_warnings.redirect("HalfCheetah-v5")
    mujoco.get_mju_user_warning()("mine")
    assert heard == ["mine"]


def test_other_environments_need_no_mujoco(no_handler):
    """Nothing is imported or set for them."""
    mujoco_warnings.redirect("CartPole-v1")
    assert mujoco.get_mju_user_warning() is None
