# SPDX-License-Identifier: MIT
"""Where parameters lie on the engine, what does not fit, and what runs in which update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fpga_engine import LARGE, Engine, engine
from test_fpga_compiler import ALGORITHMS, algorithm, dqn_built

from copal.algorithms import td3
from copal.errors import ConfigError, ProgramError
from copal.fpga.compiler import compile_update, fit, smallest_depths
from copal.fpga.config import Depths
from copal.fpga.parameters import layout
from copal.program import Adam, Buffer, Dense, Network, Op, Phase, Program, Target, Update


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("p", [4, 8])
def test_every_float_has_its_own_place(name: str, p: int, rng: np.random.Generator) -> None:
    """Packing and unpacking gives the same vectors back; targets lie beside their sources."""
    built = algorithm(name)
    found = layout(built.update, p)
    vectors = {n: rng.normal(size=s).astype(np.float32) for n, s in found.sizes.items()}
    for target in (False, True):
        own = {n: v for n, v in vectors.items() if found.in_target(n) == target}
        memory = found.pack(own)
        assert memory.shape == (found.words, p)
        assert np.count_nonzero(memory) == sum(v.size for v in own.values())
        for n, v in own.items():
            np.testing.assert_array_equal(found.unpack(n, memory), v)
    for target, source in found.sources.items():
        np.testing.assert_array_equal(found.index(target), found.index(source))


def test_tiles_of_a_weight(rng: np.random.Generator) -> None:
    """Word (r * TC + c) * P + i holds W[r*P + i, c*P + 0..P-1]."""
    built = dqn_built(6, 5, (9,))
    found = layout(built.update, 4)
    vector = rng.normal(size=found.sizes["q"]).astype(np.float32)
    memory = found.pack({"q": vector})
    segment = found.find("q", 0, "weight")
    weight = vector[:54].reshape(9, 6)
    for i in range(9):
        for j in range(6):
            word = segment.address + ((i // 4) * 2 + j // 4) * 4 + i % 4
            assert memory[word, j % 4] == weight[i, j]


def test_capacity_names_the_memory() -> None:
    """What is too small, by how much, and what helps."""
    update = dqn_built().update
    needed = smallest_depths(update, engine(), 8)
    for name in ("code", "a", "b", "vector", "parameters", "bias", "mask", "range"):
        with pytest.raises(ConfigError, match=rf"depths\.{name}.*too few"):
            compile_update(update, engine(depths=replace(LARGE, **{name: 2})), 8)
    assert compile_update(update, engine(depths=needed), 8).block_rows == 8
    half = replace(needed, parameters=needed.parameters // 2)
    with pytest.raises(ConfigError, match=r"depths\.parameters"):
        compile_update(update, engine(depths=half), 8)


def test_small_memories_take_blocks() -> None:
    """The largest even share of a batch that fits."""
    update = dqn_built(hidden=(16, 16)).update
    depths = smallest_depths(update, engine(), 64, block_rows=24)
    rows = fit(update, engine(depths=depths), 64)
    assert 24 <= rows < 64
    plan = compile_update(update, engine(depths=depths), 64)
    assert sum(b.rows for b in plan.phases[0].blocks) == 64
    assert all(words <= getattr(depths, name) for name, words in plan.words.items())


def test_smallest_depths_are_powers_of_two() -> None:
    """And hold the network."""
    depths = smallest_depths(algorithm("sac").update, engine(), 16)
    for name in ("code", "vector", "a", "b", "parameters", "bias", "mask"):
        words = getattr(depths, name)
        assert words & (words - 1) == 0
    assert isinstance(depths, Depths)


def test_sums_have_to_fit() -> None:
    """Layers and batches that are too wide for the accumulators are refused."""
    wide = dqn_built(3, 2, (1025,)).update
    with pytest.raises(ConfigError, match="sum_bits") as caught:
        compile_update(wide, engine(sum_bits=48), 8)
    assert "more `sum_bits`" not in str(caught.value.hint), "there are none"
    with pytest.raises(ConfigError, match="batch_size"):
        compile_update(dqn_built().update, engine(), 1 << 15)
    with pytest.raises(ConfigError, match="block_rows"):
        compile_update(dqn_built().update, engine(), 8, 0)


def test_long_batches_are_cut_for_the_accumulators() -> None:
    """A block has no more rows than a sum of the largest operands holds."""
    depths = smallest_depths(dqn_built().update, engine(sum_bits=44), 100)
    plan = compile_update(dqn_built().update, engine(sum_bits=44, depths=depths), 100)
    assert plan.block_rows <= 32


def _policy(*networks: Network) -> Program:
    return Program("p", networks, (), (), {})


def _update(
    networks: tuple[Network, ...], ops: tuple[Op, ...], targets: tuple[Target, ...]
) -> Update:
    ops = (*ops, Op("sum_over_rows", ("x",), None, {"offset": 0}))
    program = Program("u", networks, (Buffer("x", 2),), ops, {"td_error": "x"}, networks[0].name)
    return Update("u", (Phase(program, Adam()),), targets, _policy(*networks))


def test_targets_that_do_not_fit_the_scheme() -> None:
    """One follower a network, of the same size, that is not trained itself."""
    nets = (*(Network(n, 4) for n in "abc"), Network("d", 5))
    for targets in (
        (Target("a", "b"), Target("a", "c")),
        (Target("a", "b"), Target("c", "b")),
        (Target("a", "b"), Target("b", "c")),
        (Target("a", "d"),),
        (Target("b", "a"),),
        (Target("a", "nowhere"),),
    ):
        with pytest.raises(ProgramError, match="target"):
            layout(_update(nets, (), targets), 4)


def test_parts_that_overlap_are_refused() -> None:
    """A matrix and a vector over the same floats have no common layout."""
    dense = {"network": "a", "weight": 0, "bias": -1, "fan_in": 2, "fan_out": 2}
    param = {"network": "a", "offset": 1}
    ops = (Op("dense", ("x",), Buffer("y", 2), dense), Op("param", (), Buffer("z", 2), param))
    with pytest.raises(ProgramError, match="overlap"):
        layout(_update((Network("a", 9, (Dense(0, -1, 2, 2),)),), ops, ()), 4)


def test_what_runs_in_which_update() -> None:
    """TD3: the actor and both targets every second update, averaging beside the step if it can."""
    built = algorithm("td3")
    plan = compile_update(built.update, engine(), 8)
    first, second = plan.runs(0), plan.runs(1)
    assert [r.phase for r in first] == [0, 0]
    assert [r.phase for r in second] == [0, 0, 1, 1]
    assert [r.accumulate for r in second] == [False, True, False, True]
    assert [r.scalars for r in second] == [None, 0, None, 1]
    assert plan.phases[0].step is not None
    assert plan.phases[0].step_average is not None
    assert first[1].entry == plan.phases[0].step
    assert second[1].entry == plan.phases[0].step_average
    assert plan.phases[1].step is None
    assert plan.averages == {}
    assert plan.cycles(1) > plan.cycles(0)


def test_a_target_that_a_later_phase_reads_is_averaged_at_the_end() -> None:
    """Its reader has to see the old one."""
    built = algorithm("td3")
    phases = built.update.phases
    later = replace(phases[0], every=2)
    update = replace(built.update, phases=(later, phases[1], phases[0]))
    with pytest.raises(ProgramError, match=r"sets|gradient"):
        compile_update(replace(update, phases=(*update.phases, *update.phases)), engine(), 8)
    plan = compile_update(update, engine(), 8)
    last = [run.entry for run in plan.runs(1)[-2:]]
    assert last == [plan.phases[2].step_average, plan.averages["actor_target"]]


def test_a_target_of_an_untrained_network_has_a_set_of_its_own(rng: np.random.Generator) -> None:
    """Its rate is read where no phase's is."""
    nets = tuple(Network(n, 4) for n in "abc")
    read = tuple(
        Op("param", (), Buffer(f"p{n}", 4), {"network": n, "offset": 0}) for n in "bc"
    )  # fmt: skip
    update = _update(nets, read, (Target("b", "c", tau=0.25),))
    plan = compile_update(update, engine(), 3)
    assert [run.scalars for run in plan.runs(0)] == [None, 0, 1]
    np.testing.assert_array_equal(plan.scalars(1, 1)[6:8], np.float32([0.25, 0.75]))
    parameters = {n: rng.normal(size=4).astype(np.float32) for n in "abc"}
    run = Engine(plan, parameters, rng)
    run.step({"x": rng.normal(size=(3, 2)).astype(np.float32)})
    want = 0.75 * parameters["c"] + 0.25 * parameters["b"]
    np.testing.assert_allclose(run.parameters()["c"], want, rtol=1e-6)
    np.testing.assert_array_equal(run.parameters()["b"], parameters["b"])


def test_scalars_are_those_of_the_optimiser() -> None:
    """Bias corrections are folded into the step size and eps."""
    built = algorithm("td3")
    plan = compile_update(built.update, engine(), 8)
    k = plan.scalars(1, 3)
    a = built.update.phases[1].optimiser
    np.testing.assert_allclose(k[:4], [a.beta1, 1 - a.beta1, a.beta2, 1 - a.beta2], rtol=1e-6)
    alpha = a.learning_rate * np.sqrt(1 - a.beta2**3) / (1 - a.beta1**3)
    np.testing.assert_allclose(k[4:6], [alpha, a.eps * np.sqrt(1 - a.beta2**3)], rtol=1e-6)
    np.testing.assert_allclose(k[6:9], [0.005, 0.995, 1 / 8], rtol=1e-6)
    assert td3.Td3Config().target_tau == 0.005
