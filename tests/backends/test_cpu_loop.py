# SPDX-License-Identifier: MIT
"""The native learner loop over the replay buffer."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cpu_cases import batch, dqn_update, learner, parameters

from copal.errors import ConfigError, EmptyReplayError, LearnerFailedError, SchemaError
from copal.native import native
from copal.replay import PrioritizedReplay

SIZES = (4, 16, 3)
WAIT_S = 60.0
COLUMNS = {
    "obs": ((4,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "next_obs": ((4,), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


class Setup:
    """A replay, a learner, a store and their loop."""

    def __init__(self, rows=0, seed=0, columns=COLUMNS, **options):
        self.rng = np.random.default_rng(seed)
        update = dqn_update(SIZES)
        self.replay = PrioritizedReplay(capacity=512, columns=columns, seed=seed, gamma=0.97)
        self.cpu = learner(update, parameters(update, self.rng), 32, learners=2)
        self.store = native.WeightStore(self.cpu.native.networks()["q"])
        self.loop = native.LearnerLoop(self.cpu.native, self.replay, self.store, **options)
        if rows:
            self.insert(rows)

    def insert(self, n):
        rows = batch(SIZES, n, self.rng)
        keep = {k: rows[k] for k in ("obs", "action", "reward", "next_obs", "terminated")}
        self.replay.add(**keep, truncated=np.zeros(n, bool))

    def act(self, gate, total):
        """An actor that takes `total` steps, two at a time."""
        for _ in range(0, total, 2):
            if not gate.acquire_steps(2):
                return
            self.insert(2)
            gate.inserted(2)


def test_run_once_equals_sample_step_update():
    """The loop does what three Python calls do, bit for bit, at the schedule's beta."""
    a = Setup(300, beta_start=0.4, beta_end=1.0, beta_updates=10)
    b = Setup(300)
    for i in range(20):
        assert a.loop.beta == pytest.approx(0.4 + 0.6 * min(1, i / 10))
        rows = b.replay.sample(32, beta=np.float32(a.loop.beta))
        a.loop.run_once()
        columns = {name: rows[name] for name in rows.keys()}  # noqa: SIM118  a batch is no dict
        b.replay.update_priorities(rows.ids, b.cpu.step({**columns, "weight": rows.weights}))
    np.testing.assert_array_equal(a.cpu.state().parameters["q"], b.cpu.state().parameters["q"])
    assert a.replay.total_priority == b.replay.total_priority
    assert a.loop.counters()["updates"] == a.cpu.updates == 20


def test_step_takes_a_batch_of_the_replay_as_it_is():
    """The importance weights are found under their name in the batch."""
    a, b = Setup(100), Setup(100)
    rows = a.replay.sample(32, beta=0.5)
    columns = {name: rows[name] for name in rows.keys()}  # noqa: SIM118  a batch is no dict
    expected = b.cpu.step({**columns, "weight": rows.weights})
    np.testing.assert_array_equal(a.cpu.step(rows), expected)


@pytest.mark.parametrize("interval", [0.5, 1, 4])
def test_loop_holds_the_ratio_and_drains(interval):
    """Two actors and the loop; afterwards exactly the updates that are due."""
    s = Setup()
    gate = native.RatioGate(interval, 100, 8)
    s.loop.start(gate)
    actors = [threading.Thread(target=s.act, args=(gate, 1000), daemon=True) for _ in range(2)]
    lock, insert = threading.Lock(), s.insert

    def guarded(n):
        with lock:
            insert(n)

    s.insert = guarded
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join(WAIT_S)
        assert not actor.is_alive()
    gate.drain()
    assert s.loop.join(WAIT_S)
    s.loop.raise_if_failed()
    assert gate.counters() == {
        "env_steps": 2000,
        "inserted": 2000,
        "updates": int(1900 / interval),
    }
    assert s.cpu.updates == s.loop.counters()["updates"] == gate.updates
    assert not s.loop.running


def test_pause_leaves_a_consistent_state():
    """While paused nothing changes; afterwards it goes on."""
    s = Setup(200)
    gate = native.RatioGate(1, 0, 100_000)
    assert gate.acquire_steps(50_000)
    gate.inserted(50_000)
    s.loop.start(gate)
    for _ in range(5):
        s.loop.pause()
        before = s.cpu.state()
        assert before.updates == gate.updates == s.loop.counters()["updates"]
        threading.Event().wait(0.01)
        assert s.cpu.updates == before.updates
        s.loop.resume()
    s.loop.stop()
    assert not s.loop.running
    assert s.cpu.updates == gate.updates
    s.loop.start(gate)
    s.loop.stop()


def test_publishes_when_the_last_snapshot_was_read():
    """A snapshot nobody looks at is not replaced."""
    s = Setup(200)
    s.store.read()
    versions = []
    for _ in range(3):
        s.loop.run_once()
        versions.append(s.store.version)
    assert versions == [1, 1, 1]
    s.store.read()
    s.loop.run_once()
    s.loop.run_once()
    assert s.store.version == 4
    s.loop.publish()
    np.testing.assert_array_equal(s.store.read()[0], s.cpu.state().parameters["q"])


def test_failure_is_kept_and_closes_the_gate():
    """NaN in the replay ends the loop with its error; actors do not wait for ever."""
    s = Setup(200)
    rows = batch(SIZES, 200, s.rng)
    rows["obs"][:] = np.nan
    keep = {k: rows[k] for k in ("obs", "action", "reward", "next_obs", "terminated")}
    s.replay.add(**keep, truncated=np.zeros(200, bool))
    gate = native.RatioGate(1, 0, 1)
    s.loop.start(gate)
    s.act_one = lambda: gate.acquire_steps(1) and gate.inserted(1)
    actor = threading.Thread(target=lambda: [s.act_one() for _ in range(100)], daemon=True)
    actor.start()
    assert s.loop.join(WAIT_S)
    actor.join(WAIT_S)
    assert not actor.is_alive()
    assert gate.closed
    with pytest.raises(LearnerFailedError, match="dqn"):
        s.loop.raise_if_failed()


def test_empty_replay_is_a_typed_error():
    """Synchronously as well as from the thread."""
    s = Setup()
    with pytest.raises(EmptyReplayError):
        s.loop.run_once()
    gate = native.RatioGate(1, 0, 1)
    assert gate.acquire_steps(1)
    gate.inserted(1)
    s.loop.start(gate)
    assert s.loop.join(WAIT_S)
    with pytest.raises(EmptyReplayError):
        s.loop.raise_if_failed()


@pytest.mark.parametrize(
    ("column", "value"),
    [("obs", ((5,), "float32")), ("action", ((), "float32")), ("reward", None)],
)
def test_replay_without_what_the_learner_reads(column, value):
    """Missing column, wrong width, wrong dtype: at construction."""
    columns = {**COLUMNS, column: value}
    if value is None:
        del columns[column]
    with pytest.raises(SchemaError, match=column):
        Setup(columns=columns)


def test_setting_out_of_range():
    """Schedules and the store's size."""
    for options in ({"beta_start": -0.1}, {"beta_end": 1.5}, {"beta_updates": 0}):
        with pytest.raises(ConfigError):
            Setup(**options)
    s = Setup()
    with pytest.raises(ConfigError, match="store"):
        native.LearnerLoop(s.cpu.native, s.replay, native.WeightStore(5))
    gate = native.RatioGate(1, 0, 1)
    s.loop.start(gate)
    with pytest.raises(ConfigError, match="start"):
        s.loop.start(gate)


def test_dropping_a_running_loop_stops_it():
    """No thread outlives its loop, even if nobody called stop."""
    s = Setup(200)
    gate = native.RatioGate(1, 0, 100_000)
    assert gate.acquire_steps(50_000)
    gate.inserted(50_000)
    s.loop.start(gate)
    cpu = s.cpu
    del s
    done = cpu.updates
    threading.Event().wait(0.02)
    assert cpu.updates == done
