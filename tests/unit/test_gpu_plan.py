# SPDX-License-Identifier: MIT
"""Layouts, places, divisions of work and counts of the GPU backend, without a compiler."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import numpy as np
import pytest

from copal.bench import gpu_counts
from copal.bench.learner_build import build
from copal.errors import ConfigError, ProgramError
from copal.gpu.blockcode import BlockCode
from copal.gpu.counts import H100, count
from copal.gpu.layout import layouts, pad
from copal.gpu.names import double, identifiers, literal
from copal.gpu.places import Lifetime, place
from copal.gpu.plan import PlanOptions, plan
from copal.gpu.segments import Heavy, Light, Store, steps
from copal.gpu.sequence import active_phases, due_targets, fusable
from copal.gpu.source import unit
from copal.gpu.tiling import MAX_SHARES, shares, tile
from copal.program import Target, Update

ALGOS = ("dqn", "double-dqn", "ddpg", "td3", "sac")


@functools.cache
def update_of(algo: str, *hidden: int) -> Update:
    """An algorithm's Update."""
    return build(algo, hidden or (13, 6)).update


@pytest.mark.parametrize("algo", ALGOS)
def test_vectors_survive_packing(algo: str) -> None:
    """Every number has a place of its own, weights are transposed, what is between is zero."""
    rng = np.random.default_rng()
    for layout in layouts(update_of(algo)).values():
        flat = rng.normal(size=layout.size).astype(np.float32)
        packed = layout.pack(flat)
        np.testing.assert_array_equal(layout.unpack(packed), flat)
        assert packed.shape == (layout.padded,)
        assert np.count_nonzero(packed) == np.count_nonzero(flat)
        for (start, fan_in, fan_out), at in layout.weights.items():
            assert at.offset % 4 == 0
            assert not at.plain
            there = packed[at.offset :][: pad(fan_in) * pad(fan_out)].reshape(pad(fan_in), -1)
            weights = flat[start : start + fan_in * fan_out].reshape(fan_out, fan_in)
            np.testing.assert_array_equal(there[:fan_in, :fan_out], weights.T)


def test_places_never_overlap_while_both_are_needed() -> None:
    """Random lifetimes, with and without room for all of them."""
    rng = np.random.default_rng()
    for room in (10**6, 200, 60, 0):
        lifetimes = []
        for i in range(40):
            first = int(rng.integers(-1, 20))
            last = int(rng.integers(max(first, 0), 21))
            lifetimes.append(Lifetime(f"b{i}", 4 * int(rng.integers(1, 20)), first, last))
        placed = place(lifetimes, room)
        assert placed.shared_floats <= room
        assert set(placed.places) == {b.name for b in lifetimes}
        for i, a in enumerate(lifetimes):
            for b in lifetimes[i + 1 :]:
                if a.first <= b.last and b.first <= a.last:
                    assert not placed.places[a.name].overlaps(placed.places[b.name])


def test_negative_shared_memory_is_refused() -> None:
    """Nothing could ever fit."""
    with pytest.raises(ConfigError, match="at least 0"):
        place([], -1)


@pytest.mark.parametrize("learners", [1, 3])
def test_shares_hold_every_row_once(learners: int) -> None:
    """Any batch; the shares are as long as one another but the last one."""
    for batch_size in (3, 5, 16, 37, 128, 129, 250, 513, 1024, 4096, 5001):
        found = shares(batch_size, learners)
        assert found.count <= max(MAX_SHARES, learners)
        assert (found.count - 1) * found.each < batch_size <= found.count * found.each
        assert found.rows in (1, 2, 4, 8, 16)
        assert found.rows < 2 * found.each


@pytest.mark.parametrize("changes", [{"learners": 0}, {"learners": 9}, {"rows": 3}, {"rows": 32}])
def test_shares_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    """More learners than rows, rows that no kernel is made for."""
    with pytest.raises(ConfigError):
        shares(8, **changes)


@pytest.mark.parametrize(
    "options", [PlanOptions(agents=0), PlanOptions(threads=100), PlanOptions(threads=2048)]
)
def test_plans_that_make_no_sense_are_refused(options: PlanOptions) -> None:
    """No agent, or blocks that no GPU has."""
    with pytest.raises(ConfigError):
        plan(update_of("dqn"), 8, options)


def test_tiles_give_every_warp_work_where_there_is_enough() -> None:
    """Slices are powers of two that have terms; wide layers keep whole lines."""
    for groups in (1, 2, 16, 64, 300):
        for blocks in (1, 2, 3, 64, 65):
            for rows in (1, 2, 8, 16):
                found = tile(groups, blocks, rows, 8, least=4)
                assert found.slices & (found.slices - 1) == 0
                assert 1 <= found.slices <= min(blocks, 32)
                assert rows % found.rows == 0
                assert found.rows <= 8
    assert tile(64, 64, 8, 8, least=4) == dataclasses.replace(
        tile(64, 64, 8, 8, least=4), slices=4, rows=8
    )


@pytest.mark.parametrize("algo", ALGOS)
def test_steps_do_every_operation_once(algo: str) -> None:
    """Fused or not; every output is stored once; relus of dense layers are fused."""
    for phase in update_of(algo).phases:
        program = phase.program
        found = steps(program)
        heavy = [s for s in found if isinstance(s, Heavy)]
        light = [o for s in found if isinstance(s, Light) for o in s.ops]
        fused = sum(s.relu or s.mask is not None for s in heavy)
        done = len(heavy) + fused + sum(not isinstance(o, Store) for o in light)
        assert done == len(program.ops)
        stored = sorted(o.role for o in light if isinstance(o, Store))
        assert stored == sorted(program.outputs)
        kinds = [o.kind for o in light if not isinstance(o, Store)]
        assert "relu" not in kinds
        assert "relu_grad" not in kinds


@pytest.mark.parametrize("algo", ALGOS)
def test_kernels_are_named_and_sized(algo: str) -> None:
    """The unit has the kernels that it says, no includes, and no size that is not a constant."""
    planned = plan(update_of(algo), 37)
    made = unit(planned)
    names = re.findall(
        r'extern "C" __global__ void __launch_bounds__\([^)]*\) (\w+)\(', made.source
    )
    assert tuple(names) == made.kernels
    assert "#include" not in made.source
    other = unit(plan(update_of(algo), 38))
    assert made.digest() == unit(planned).digest() != other.digest()


def test_a_block_waits_only_where_it_has_to() -> None:
    """The products of a chain of layers need a barrier each, sums over rows that follow none."""
    planned = plan(update_of("dqn", 16, 16), 32)
    lines = list(BlockCode(planned, planned.phases[0]).loop())
    assert lines.count("__syncthreads();") == 11
    last = max(i for i, line in enumerate(lines) if line == "__syncthreads();")
    assert sum("dense_grad_weight" in line for line in lines[last:]) == 3


def test_targets_are_averaged_by_the_step_that_trains_their_source() -> None:
    """Unless a later phase reads them, or another target follows them."""
    td3 = update_of("td3")
    sources = [[td3.targets[t].source for t in fusable(td3, n)] for n in range(len(td3.phases))]
    assert sources == [["critic"], ["actor"]]
    dqn = update_of("dqn")
    assert fusable(dqn, 0) == (0,)
    chain = dataclasses.replace(dqn, targets=(*dqn.targets, Target("q_target", "slow")))
    assert fusable(chain, 0) == ()


def test_delays_are_those_of_the_update() -> None:
    """Phase and target run in updates u with (u + 1) % every == 0."""
    td3 = update_of("td3")
    delay = td3.phases[1].every
    assert delay > 1
    assert active_phases(td3, 0) == (0,)
    assert active_phases(td3, delay - 1) == (0, 1)
    assert due_targets(td3, delay - 1) == (0, 1)


def test_counts_of_a_known_network() -> None:
    """8-256-256-4 at batch 256: operations and bytes as one counts them by hand."""
    planned = plan(update_of("dqn", 256, 256), 256)
    (found,) = count(planned)
    # Two forward passes, the weights' gradient, and the inputs' of all layers but the first.
    dense = 2 * 256 * (3 * 8 * 256 + 4 * 256 * 256 + 4 * 256 * 4)
    assert found.flops == pytest.approx(dense, rel=0.01)
    assert found.blocks == 32
    assert found.kernels == 2
    weights = 2 * (8 * 256 + 256 * 256 + 256 * 4) + 256 * 256 + 256 * 4
    size = planned.layouts["q"].padded
    assert found.gradient_bytes == 4 * (32 * (weights + size) + 256 * 21)
    assert found.reduce_bytes == 4 * size * (32 + 8)
    assert found.floor_s(H100) == pytest.approx(12e-6, rel=0.1)


def test_more_agents_cost_no_time_while_there_are_multiprocessors() -> None:
    """Four times the work in four times the blocks."""
    one, four = (
        count(plan(update_of("dqn", 64, 64), 64, PlanOptions(agents=n)))[0] for n in (1, 4)
    )
    assert four.flops == 4 * one.flops
    assert four.blocks == 4 * one.blocks
    assert four.floor_s(H100) < 2 * one.floor_s(H100)


def test_the_table_of_counts_is_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each algorithm and size."""
    gpu_counts.main(["--algos", "dqn", "sac", "--hidden", "64", "--batch-sizes", "32", "256"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 4
    assert len({line.count("|") for line in lines}) == 1


def test_numbers_are_written_exactly() -> None:
    """Also those that C++ has no text for."""
    rng = np.random.default_rng()
    for value in (*rng.normal(size=20), 0.0, -1.0, 1e-30, 3e38, 1e10):
        assert np.float32(literal(value).removesuffix("f")) == np.float32(value)
        assert float(double(value)) == value
        assert re.search(r"[.e]", literal(value))
    assert literal(float("nan")).startswith("__int_as_float(")
    assert literal(3.0, "int32") == "3"


def test_names_are_those_of_cpp() -> None:
    """Whatever buffers are called, their names differ and are words."""
    program = update_of("sac").phases[0].program
    found = identifiers(program)
    assert len(set(found.values())) == len(found)
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in found.values())


def test_opaque_operations_are_refused() -> None:
    """There is no device function for what only PyTorch has."""
    from copal.backends.gpu import GpuBackend
    from copal.program import Buffer, Op, Program

    op = Op("opaque", ("x",), Buffer("y", 1), {"name": "aten.convolution"})
    program = Program("p", (), (Buffer("x", 1),), (op,), {"td_error": "y", "loss": "y"})
    assert GpuBackend("emulate").supports(program) == "opaque"
    with pytest.raises(ProgramError, match="opaque"):
        steps(program)
