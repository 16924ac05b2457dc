# SPDX-License-Identifier: MIT
"""The driver of an engine, on the model: updates, states, exponents, and every way to fail."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from copal import algorithms, backends
from copal.algorithms import Built
from copal.backends import LearnerState
from copal.backends.fpga import EngineLearner
from copal.errors import ConfigError, FpgaError, FpgaTimeoutError, LearnerFailedError, SchemaError
from copal.fpga.compiler import compile_update
from copal.fpga.driver import EngineDriver
from copal.fpga.engine import open_engine, sized
from copal.fpga.model_device import ModelDevice
from copal.fpga.report import WINDOW, EngineReport
from copal.program.reference import ReferenceLearner

ALGORITHMS = ("dqn", "double-dqn", "ddpg", "td3", "sac")
ROWS = 19
"""Of a batch: no multiple of the lanes."""
Batch = dict[str, NDArray[Any]]


@functools.cache
def build(algo: str, **settings: Any) -> Built:
    """A small algorithm on 3 observations, with 2 actions; captured once."""
    discrete = algo in ("dqn", "double-dqn")
    actions = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (2,))
    found = algorithms.get(algo)
    observations = gym.spaces.Box(-1.0, 1.0, (3,))
    config = found.config(hidden=(9, 8), **settings)
    return algorithms.build(found, observations, actions, config, 5)


def engine(built: Built, *, lanes: int = 16, max_transfer: int = 1 << 20) -> EngineDriver:
    """The model with the algorithm on it, nothing loaded yet."""
    config = sized(built.update, ROWS, lanes)
    plan = compile_update(built.update, config, ROWS)
    return EngineDriver(ModelDevice(config, max_transfer), plan, clock_mhz=100.0)


def learner(built: Built, state: LearnerState | None = None, **options: int) -> EngineLearner:
    """The same behind the face of a learner."""
    state = state or LearnerState.initial(built.update, built.parameters)
    return EngineLearner(engine(built, **options), state)


def batches(built: Built, rng: np.random.Generator, count: int) -> list[Batch]:
    """Random batches whose observations grow, so that exponents have to follow."""
    inputs = {b.name: b for phase in built.update.phases for b in phase.program.inputs}
    found = []
    for i in range(count):
        batch: Batch = {
            b.name: rng.standard_normal((ROWS, b.width)).astype(np.float32) * 1.2**i
            for b in inputs.values()
            if b.source == "batch"
        }
        for name, buffer in inputs.items():
            if buffer.dtype == "int32":
                batch[name] = rng.integers(0, 2, (ROWS, 1)).astype(np.int32)
        batch["terminated"] = (rng.random((ROWS, 1)) < 0.2).astype(np.float32)
        batch["discount"] = np.full((ROWS, 1), 0.99, np.float32)
        batch["weight"] = rng.random((ROWS, 1)).astype(np.float32)
        found.append(batch)
    return found


def assert_same(one: LearnerState, two: LearnerState) -> None:
    """Equal bit for bit."""
    for field in dataclasses.fields(LearnerState):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if field.name in ("parameters", "first_moment", "second_moment"):
            assert a.keys() == b.keys()
            for name in a:
                np.testing.assert_array_equal(a[name], b[name], err_msg=f"{field.name} {name}")
        else:
            assert a == b, field.name


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_updates_follow_the_reference(algo: str, rng: np.random.Generator) -> None:
    """TD errors stay near those of float64, while weights, targets and exponents move.

    A row may saturate in the update in which its numbers double, so the median row counts.
    """
    built = build(algo)
    found, oracle = learner(built), ReferenceLearner(built.update, built.parameters)
    for batch in batches(built, rng, 12):
        td, wanted = found.step(batch), oracle.step(batch)
        assert td.dtype == np.float32
        assert np.median(np.abs(td - wanted)) <= 1e-3 * np.abs(wanted).max()
    assert found.updates == oracle.updates == 12
    for name in built.update.networks():
        moved = np.abs(oracle.parameters[name] - built.parameters[name]).max()
        assert np.abs(found.parameters(name) - oracle.parameters[name]).mean() <= 0.1 * moved
    assert found.state().optimiser_steps == oracle.optimiser_steps


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_state_goes_on_with_the_same_bits(algo: str, rng: np.random.Generator) -> None:
    """Another engine, loaded in the middle, ends as the first one does: exponents included."""
    built = build(algo)
    whole, given = learner(built), batches(built, rng, 15)
    for batch in given[:7]:
        whole.step(batch)
    middle = whole.state()
    assert_same(middle, learner(built, middle).state())
    resumed = learner(built, middle)
    for batch in given[7:]:
        np.testing.assert_array_equal(whole.step(batch), resumed.step(batch))
    assert_same(whole.state(), resumed.state())
    assert middle.notes["exponents"] != whole.state().notes["exponents"]


def test_notes_of_another_engine_are_ignored(rng: np.random.Generator) -> None:
    """A state of the `cpu` backend has none, one of other networks has other names."""
    built = build("dqn")
    batch = batches(built, rng, 1)[0]
    fresh = learner(built)
    wanted = fresh.step(batch)
    for notes in ({}, {"exponents": {"x": [1, 0, 0, 0]}, "bits": [18, 22]}, {"bits": [16, 22]}):
        state = LearnerState.initial(built.update, built.parameters)
        np.testing.assert_array_equal(
            learner(built, dataclasses.replace(state, notes=notes)).step(batch), wanted
        )


def test_short_transfers_make_the_same_bits(rng: np.random.Generator) -> None:
    """Through a DMA of 256 bytes."""
    built = build("td3")
    one, two = learner(built), learner(built, max_transfer=256)
    for batch in batches(built, rng, 3):
        np.testing.assert_array_equal(one.step(batch), two.step(batch))
    assert_same(one.state(), two.state())


@pytest.mark.parametrize("lanes", [64, 256])
def test_lanes_change_little(lanes: int, rng: np.random.Generator) -> None:
    """Only sums of vector operations may be taken in another order."""
    built = build("sac")
    one, two = learner(built), learner(built, lanes=lanes)
    for batch in batches(built, rng, 2):
        np.testing.assert_allclose(one.step(batch), two.step(batch), rtol=1e-3, atol=1e-3)


def test_columns_are_checked(rng: np.random.Generator) -> None:
    """A wrong batch changes nothing; a column of width 1 may be flat."""
    built = build("dqn")
    found, batch = learner(built), batches(built, rng, 1)[0]
    before = found.state()
    with pytest.raises(SchemaError, match="reward"):
        found.step({k: v for k, v in batch.items() if k != "reward"})
    with pytest.raises(SchemaError, match=r"obs.*\[19, 3\]"):
        found.step({**batch, "obs": batch["obs"][:-1]})
    assert_same(before, found.state())
    flat = {k: v[:, 0] if v.shape[1] == 1 else v for k, v in batch.items()}
    np.testing.assert_array_equal(found.step(flat), learner(built).step(batch))


def test_states_are_checked() -> None:
    """A vector of another size is refused, and what is on the engine stays."""
    built = build("dqn")
    found = learner(built)
    before, bad = found.state(), found.state()
    bad.first_moment["q"] = bad.first_moment["q"][1:]
    bad.parameters["q"] += 1
    with pytest.raises(SchemaError, match="first_moment"):
        found.load_state(bad)
    assert_same(before, found.state())


@pytest.mark.parametrize("algo", ["dqn", "sac"])
@pytest.mark.parametrize("first", [True, False])
def test_nan_in_the_batch_is_traced(algo: str, first: bool, rng: np.random.Generator) -> None:
    """Phase, input and row are named, and the run could go on as if nothing had been."""
    built = build(algo)
    found, clean = learner(built), learner(built)
    good, bad, later = batches(built, rng, 3)
    if not first:
        found.step(good)
        clean.step(good)
    bad["reward"][7] = np.nan
    with pytest.raises(LearnerFailedError, match=r"phases\[0\].*`reward` in row 7") as caught:
        found.step(bad)
    assert caught.value.rows == (7,)
    np.testing.assert_array_equal(found.step(later), clean.step(later))
    assert_same(found.state(), clean.state())


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("size", [1e-42, 1e-20, 1e20, 1e38])
def test_numbers_beyond_reason_saturate(algo: str, size: float, rng: np.random.Generator) -> None:
    """Columns of any size, some far from the others: what does not fit saturates, no field does."""
    built = build(algo)
    engine = learner(built)
    (batch,) = batches(built, rng, 1)
    obs, following = (batch[name] for name in ("obs", "next_obs"))
    for columns in (obs * np.float32(size), obs), (obs, following * np.float32(size)):
        batch["obs"], batch["next_obs"] = columns
        with contextlib.suppress(*([LearnerFailedError] if size > 1 else [])):
            engine.step(batch)
    assert not np.isnan(engine.parameters(built.update.trained()[0])).any()
    assert not np.isinf(engine.metrics.get("loss", 0.0))


def test_infinity_on_the_engine_is_traced(rng: np.random.Generator) -> None:
    """Error 5 stops the RUN before the optimiser's step."""
    built = build("dqn", huber=False)
    found, clean = learner(built), learner(built)
    good, bad = batches(built, rng, 2)
    found.step(good)
    clean.step(good)
    bad["reward"][3], bad["weight"][3] = 3e38, 2.0
    with pytest.raises(LearnerFailedError, match=r"phases\[0\].*ops\[\d+\].*row 3"):
        found.step(bad)
    assert_same(found.state(), clean.state())


def test_errors_of_the_engine_name_the_instruction(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that is not what it should be."""
    built = build("dqn")
    driver = engine(built)
    found = EngineLearner(driver, LearnerState.initial(built.update, built.parameters))
    pc = driver.plan.phases[0].blocks[0].runs[0].pc + 1
    load = driver._memories.load_code

    def damaged(code: NDArray[np.uint64]) -> None:
        code[5 * pc] |= np.uint64(15)
        load(code)

    monkeypatch.setattr(driver._memories, "load_code", damaged)
    with pytest.raises(FpgaError, match=f"instruction {pc} .*OPCODE"):
        found.step(batches(built, rng, 1)[0])


@pytest.mark.parametrize("what", ["update", "dump of W", "load of W"])
def test_silence_names_the_transfer(what: str, rng: np.random.Generator) -> None:
    """Whatever is under way; afterwards the engine goes on."""
    built = build("dqn")
    driver = engine(built)
    state = LearnerState.initial(built.update, built.parameters)
    found, given = EngineLearner(driver, state), batches(built, rng, 2)
    found.step(given[0])
    calls: dict[str, Callable[[], Any]] = {
        "update": lambda: found.step(given[1]),
        "dump of W": lambda: found.parameters("q"),
        "load of W": lambda: found.load_state(state),
    }
    device: Any = driver._device
    device.answering = False
    with pytest.raises(FpgaTimeoutError, match=f"transfer `{what}`"):
        calls[what]()
    device.answering = True
    found.load_state(state)
    assert np.isfinite(found.step(given[0])).all()


def test_other_engines_are_refused() -> None:
    """Before anything is loaded."""
    built = build("dqn")
    config = sized(built.update, ROWS, 16)
    plan = compile_update(built.update, config, ROWS)
    other = ModelDevice(dataclasses.replace(config, sum_bits=47))
    with pytest.raises(FpgaError, match="ACC"):
        EngineDriver(other, plan, clock_mhz=100.0)
    with pytest.raises(ConfigError, match="parallel learners"):
        backends.require("fpga", device="model").learner(
            built.update,
            LearnerState.initial(built.update, built.parameters),
            batch_size=ROWS,
            learners=2,
        )


def test_metrics_tell_what_an_update_takes(rng: np.random.Generator) -> None:
    """Cycles, bytes, time at the clock, and the newest loss."""
    built = build("dqn")
    driver = open_engine("model", built.update, batch_size=ROWS, lanes=16, clock_mhz=50.0)
    found = EngineLearner(driver, LearnerState.initial(built.update, built.parameters))
    assert found.report() == ""
    for batch in batches(built, rng, 3):
        td = found.step(batch)
    figures = found.metrics
    cycles = driver.plan.cycles()
    assert abs(figures["engine_cycles"] - cycles) <= 0.02 * cycles
    assert figures["engine_update_us"] == pytest.approx(figures["engine_cycles"] / 50)
    assert figures["engine_bytes_sent"] > 4 * ROWS * 11
    assert 0 < figures["engine_lane_use"] < 1
    assert figures["td_error_abs"] == pytest.approx(np.abs(td).mean(), rel=1e-6)
    assert figures["loss"] > 0
    assert "engine of 16 lanes" in found.report()
    assert "at 50 MHz (simulated)" in found.report()
    found.close()


def test_saturation_is_warned_about_once() -> None:
    """Above 0.1 % of a tensor's values in a hundred updates; the tensor and a remedy are named."""
    report = EngineReport(["`a`", "`b`"], lanes=16, clock_mhz=100.0, simulated=True)
    values = np.array([1000, 1000])
    for i in range(3 * WINDOW):
        report.count_update(10, 5, values, np.array([int(i % 2 == 0), 2]))
        if i < WINDOW - 1:
            assert report.take_messages() == []
        elif i == WINDOW - 1:
            (text,) = report.take_messages()
            assert "0.20% of the values of `b`" in text
            assert "learning rate" in text
    assert report.take_messages() == []
    assert report.shares() == {"`a`": 0.0005, "`b`": 0.002}
    assert "most of `b`: 0.002" in report.text()
