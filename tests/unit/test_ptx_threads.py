# SPDX-License-Identifier: MIT
"""Threads in the PTX interpreter: branches, barriers, shuffles, votes, races, atomics."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_snippets import module

import ptx

LANE = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.s32 %r3, %r1, %r2, %r0;
    ld.param.u64 %l0, [k_param_0];
    mul.wide.u32 %l1, %r3, 4;
    add.s64 %l0, %l0, %l1;
"""
END = "st.global.u32 [%l0], %r9; ret;"
TILE = """
    mov.u32 %r5, tile;
    shl.b32 %r6, %r0, 2;
    add.s32 %r7, %r5, %r6;
    xor.b32 %r8, %r6, {other};
    add.s32 %r8, %r5, %r8;
"""


def _run(body: str, *, blocks: int = 3, threads: int = 64, shared: int = 0, races: bool = False,
         mine: bool = True) -> np.ndarray:  # fmt: skip
    out = np.zeros(blocks * threads, np.uint32)
    loaded = module(LANE + body + (END if mine else ""), shared=shared)
    loaded.launch("k", (blocks,), (threads,), (out,), races=races)
    return out.reshape(blocks, threads)


def test_loop_of_different_length_in_every_thread() -> None:
    """Threads that leave a loop early wait for the others behind it."""
    body = """
        mov.u32 %r9, 0;
        mov.u32 %r10, %r3;
    $L1:
        setp.eq.s32 %p1, %r10, 0;
        @%p1 bra $L2;
        add.s32 %r9, %r9, %r10;
        add.s32 %r10, %r10, -1;
        bra.uni $L1;
    $L2:
    """
    numbers = np.arange(192)
    assert _run(body).ravel().tolist() == (numbers * (numbers + 1) // 2).tolist()


def test_exchange_through_shared_memory() -> None:
    """A barrier orders what one thread writes and another reads; blocks have their own memory."""
    body = (
        TILE.format(other=252) + "st.shared.u32 [%r7], %r3; bar.sync 0; ld.shared.u32 %r9, [%r8];"
    )
    want = np.arange(192).reshape(3, 64)[:, ::-1]
    assert np.array_equal(_run(body, shared=256, races=True), want)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("st.shared.u32 [%r7], %r3; ld.shared.u32 %r9, [%r8];", "is read while another thread"),
        ("st.shared.u32 [%r7], %r3; st.shared.u32 [%r8], %r3;", "is written by two threads"),
        ("st.shared.u32 [%r5], %r3;", "is written by two threads at once"),
        (
            "st.shared.u32 [%r7], %r3; bar.sync 0; ld.shared.u32 %r9, [%r8];"
            "st.shared.u32 [%r7], %r3;",
            "is written while another thread reads it",
        ),
    ],
)
def test_race_is_found(body: str, reason: str) -> None:
    """Each kind, although the interpreter's own order happens to be harmless."""
    with pytest.raises(ptx.PtxError, match=reason):
        _run(TILE.format(other=252) + body + "mov.u32 %r9, 0;", shared=256, races=True)


def test_warp_barrier_orders_a_warp_alone() -> None:
    """After `bar.warp.sync` a lane may read a word of its warp, but not of another one."""
    body = "st.shared.u32 [%r7], %r3; bar.warp.sync 0xffffffff; ld.shared.u32 %r9, [%r8];"
    got = _run(TILE.format(other=124) + body, shared=256, races=True)
    assert got[0, :4].tolist() == [31, 30, 29, 28]
    with pytest.raises(ptx.PtxError, match="no barrier between"):
        _run(TILE.format(other=252) + body, shared=256, races=True)


def test_readers_of_one_warp_and_then_a_writer() -> None:
    """Many lanes of a warp read a word, and after a warp barrier one of them writes it."""
    body = """
        setp.ne.s32 %p1, %r0, 0;
        @%p1 bra $L1;
        st.shared.u32 [%r5], %r3;
    $L1:
        bar.warp.sync 0xffffffff;
        ld.shared.u32 %r9, [%r5];
        {sync}
        @%p1 bra $L2;
        st.shared.u32 [%r5], 7;
    $L2:
    """
    good = TILE.format(other=0) + body.replace("{sync}", "bar.warp.sync 0xffffffff;")
    got = _run(good, threads=32, shared=128, races=True)
    assert got.tolist() == [[32 * block] * 32 for block in range(3)]
    bad = TILE.format(other=0) + body.replace("{sync}", "")
    with pytest.raises(ptx.PtxError, match="is written while another thread reads it"):
        _run(bad, threads=32, shared=128, races=True)


def test_unwritten_shared_memory() -> None:
    """Reading it is a fault even without looking for races."""
    body = TILE.format(other=4) + "ld.shared.u32 %r9, [%r8];"
    with pytest.raises(ptx.PtxError, match="read before it is written"):
        _run(body, shared=256)


def test_bytes_that_a_wide_load_does_not_need() -> None:
    """The compiler may read 16 bytes where 12 are asked for; only those count."""
    body = (
        TILE.format(other=0)
        + """
        shl.b32 %r10, %r0, 4;
        add.s32 %r10, %r5, %r10;
        st.shared.v2.u32 [%r10], {%r3, %r3};
        {pragma}
        ld.shared.v4.u32 {%r9, %r11, %r12, %r13}, [%r10];
    """
    )
    used = '.pragma "used_bytes_mask 255";'
    got = _run(body.replace("{pragma}", used), shared=1024, races=True)
    assert got.ravel().tolist() == list(range(192))
    with pytest.raises(ptx.PtxError, match="read before it is written"):
        _run(body.replace("{pragma}", used.replace("255", "4095")), shared=1024)


@pytest.mark.parametrize(
    "skip", ["setp.gt.u32 %p1, %r0, 3; @%p1 bra $L1;", "setp.gt.u32 %p1, %r0, 3; @%p1 ret;"]
)
def test_barrier_that_not_every_thread_reaches(skip: str) -> None:
    """Named as a fault: it never hangs."""
    other = "bar.sync 0; mov.u32 %r9, 1; bra.uni $L2; $L1: bar.sync 0; $L2: mov.u32 %r9, 2;"
    with pytest.raises(ptx.PtxError, match=r"not reached by every thread.*bar\.sync"):
        _run(skip + other.replace("; ", ";\n") + "\n")


@pytest.mark.parametrize(
    ("mode", "by", "bounds", "source"),
    [
        ("bfly", 5, 31, lambda lane: lane ^ 5),
        ("down", 3, 31, lambda lane: lane + 3 if lane + 3 < 32 else lane),
        ("up", 2, 0, lambda lane: lane - 2 if lane >= 2 else lane),
        ("idx", 7, 31, lambda _: 7),
        ("idx", 3, 0x181F, lambda lane: lane // 8 * 8 + 3),
        ("bfly", 9, 31, lambda lane: lane ^ 9),
    ],
)
def test_shuffle(mode: str, by: int, bounds: int, source) -> None:  # type: ignore[no-untyped-def]
    """Each mode, with segments of eight lanes too; beyond the edge a lane keeps its own."""
    body = f"shfl.sync.{mode}.b32 %r9|%p2, %r3, {by}, {bounds}, -1;"
    want = [[block * 64 + warp * 32 + source(lane) for warp in range(2) for lane in range(32)]
            for block in range(3)]  # fmt: skip
    assert _run(body).tolist() == want


def test_shuffle_waits_for_its_lanes() -> None:
    """Lanes that come later by a branch take part; the lanes outside the mask do not."""
    body = """
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra $L1;
        mov.u32 %r3, 100;
    $L1:
        shfl.sync.bfly.b32 %r9, %r3, 16, 31, -1;
    """
    assert _run(body, blocks=1, threads=32)[0].tolist() == [100] * 16 + list(range(16))
    alone = "setp.lt.u32 %p1, %r0, 16; @%p1 bra $L1;\nret;\n$L1:\n"
    alone += "shfl.sync.bfly.b32 %r9, %r3, {}, 31, {};"
    assert _run(alone.format(1, "0xffff"), threads=32)[0, :4].tolist() == [1, 0, 3, 2]
    with pytest.raises(ptx.PtxError, match="not reached by every thread"):
        _run(alone.format(1, "-1"), threads=32)
    with pytest.raises(ptx.PtxError, match="takes no part"):
        _run(alone.format(16, "0xffff"), threads=32)


def test_votes() -> None:
    """Ballot, any and all count the lanes of one warp."""
    body = """
        and.b32 %r8, %r0, 1;
        setp.eq.s32 %p1, %r8, 0;
        vote.sync.ballot.b32 %r9, %p1, -1;
        setp.ge.s32 %p2, %r0, 32;
        vote.sync.all.pred %p3, %p2, -1;
        vote.sync.any.pred %p4, !%p1, -1;
        selp.u32 %r10, 1, 0, %p3;
        add.s32 %r9, %r9, %r10;
        selp.u32 %r10, 2, 0, %p4;
        add.s32 %r9, %r9, %r10;
    """
    assert _run(body)[0].tolist() == [0x55555557] * 32 + [0x55555558] * 32


def test_atomics_of_all_threads() -> None:
    """Every thread's addition counts and gets its own old value."""
    body = """
        ld.param.u64 %l5, [k_param_0];
        atom.global.add.u32 %r9, [%l5], 1;
        ret;
    """
    assert _run(body, mine=False)[0, 0] == 192


def test_asynchronous_copy_lands_when_it_is_waited_for() -> None:
    """Not before; a second group may stay in flight; an unwaited one is never read."""
    body = (
        TILE.format(other=0)
        + """
        st.global.u32 [%l0], %r3;
        cp.async.ca.shared.global [%r7], [%l0], 4;
        cp.async.commit_group;
        cp.async.ca.shared.global [%r7+256], [%l0], 4, 0;
        cp.async.commit_group;
        cp.async.wait_group {pending};
        ld.shared.u32 %r9, [%r7];
        ld.shared.u32 %r10, [%r7+{place}];
        add.s32 %r9, %r9, %r10;
    """
    )
    both = _run(body.format(pending=0, place=256), shared=512, races=True)
    assert both.ravel().tolist() == list(range(192))
    first = _run(body.format(pending=1, place=0), shared=512)
    assert first.ravel().tolist() == list(range(0, 384, 2))
    with pytest.raises(ptx.PtxError, match="read before it is written"):
        _run(body.format(pending=1, place=256), shared=512)
