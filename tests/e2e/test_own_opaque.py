# SPDX-License-Identifier: MIT
"""An algorithm of one's own that only PyTorch runs: trained, saved, and loaded from its path."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import copal
from copal.errors import BackendUnavailableError, CaptureError
from runs import BARE

ALGORITHM = '''
from copal.algorithms import CommonConfig
from copal.algorithms.assemble import Acting, Step, assemble, transitions
from copal.algorithms.networks import mlp


class Sorting:
    """Values by a network whose hidden units are sorted, which no Program can say."""

    name, config, defaults = "sorting", CommonConfig, {"batch_size": 8}
    opaque = True

    def build(self, observations, actions, config=None, seed=0):
        def loss(nets, batch):
            error = nets.q(batch.obs).sort(1).values[:, 0] - batch.reward
            return batch.weight * error**2, error

        def policy(nets, batch):
            values = nets.q(batch.obs.sort(1).values)
            return values.argmax(1)

        return assemble(
            self.name, config, networks={"q": mlp((4, *config.hidden, 2), seed)},
            steps=[Step("q", loss)], acting=Acting(policy, ("q",), ("action",)),
            columns=transitions(4, ((), "int64")), opaque=self.opaque, seed=seed,
        )


class Refused(Sorting):
    opaque = False
'''


def settings(tmp_path: Path, **changes: object) -> copal.TrainConfig:
    """A run of a second."""
    values = {
        **BARE,
        "env": "CartPole-v1",
        "steps": 200,
        "learning_starts": 100,
        "hidden": (8,),
        "final_eval_episodes": 2,
        "out": tmp_path / "run",
        **changes,
    }
    return copal.TrainConfig(**values)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sorting_mine.py").write_text(ALGORITHM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "sorting_mine", raising=False)


def test_trains_on_torch_and_loads_by_its_path(tmp_path: Path) -> None:
    """The policy's file says which object builds its networks, not only its name."""
    path = "sorting_mine:Sorting"
    result = copal.train(settings(tmp_path, algo=path, backend="torch"))
    assert result.updates == 100
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    again = copal.load_policy(result.out, algo=path)
    np.testing.assert_array_equal(again(obs), result.policy(obs))
    assert copal.evaluate(result.out, episodes=2).mean > 0
    resumed = copal.train(copal.TrainConfig(resume=result.out, steps=300))
    assert resumed.updates == 200


def test_other_backends_and_losses_that_are_not_opaque_are_refused(tmp_path: Path) -> None:
    """Both errors lead to what works."""
    with pytest.raises(BackendUnavailableError, match="--backend torch"):
        copal.train(settings(tmp_path, algo="sorting_mine:Sorting"))
    with pytest.raises(
        CaptureError, match=r"(?s)aten.sort.*opaque=True.*--backend torch"
    ) as caught:
        copal.train(settings(tmp_path, algo="sorting_mine:Refused", backend="torch"))
    assert "sorting_mine.py" in caught.value.got
