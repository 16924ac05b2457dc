# SPDX-License-Identifier: MIT
"""Memory in the PTX interpreter: bounds, alignment, vectors, stacks, parameters, constants."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_snippets import module

import ptx

TWO = ".param .u64 k_param_0, .param .u64 k_param_1"
COPY = """
    ld.param.u64 %l0, [k_param_0];
    ld.param.u64 %l1, [k_param_1];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %l2, %r0, {width};
    add.s64 %l0, %l0, %l2;
    add.s64 %l1, %l1, %l2;
    {body}
    ret;
"""
SINGLE = "ld.global.nc.f32 %f1, [%l1]; st.global.f32 [%l0], %f1;"
VECTOR = """
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%l1];
    st.global.v2.f32 [%l0], {%f2, %f1};
    st.global.v2.f32 [%l0+8], {%f4, %f3};
"""


def test_vectors_keep_bits(rng: np.random.Generator) -> None:
    """Loads of 16 bytes and stores of 8 move any bits, NaN with its payload too."""
    source = rng.integers(0, 2**32, 128, dtype=np.uint32)
    out = np.zeros(128, np.uint32)
    loaded = module(COPY.format(width=16, body=VECTOR), TWO)
    loaded.launch("k", (1,), (32,), (out, source))
    assert np.array_equal(out.reshape(-1, 2), source.reshape(-1, 2)[:, ::-1])


@pytest.mark.parametrize(
    ("short", "reason"),
    [("out", "argument 0 of k.*124 bytes.*byte 124"), ("source", "argument 1 of k.*byte 124")],
)
def test_access_beyond_a_buffer(short: str, reason: str) -> None:
    """Named with the buffer, its size and the place, whoever lies behind it."""
    out, source = np.zeros(32 - (short == "out"), "f4"), np.zeros(32 - (short == "source"), "f4")
    with pytest.raises(ptx.PtxError, match=reason):
        module(COPY.format(width=4, body=SINGLE), TWO).launch("k", (1,), (32,), (out, source))


def test_misaligned_vector() -> None:
    """A load of 16 bytes at a multiple of 4."""
    body = COPY.format(width=4, body=VECTOR)
    with pytest.raises(ptx.PtxError, match="misaligned access of 16 bytes"):
        module(body, TWO).launch("k", (1,), (32,), (np.zeros(40, "f4"), np.zeros(40, "f4")))


def test_null_and_freed_addresses() -> None:
    """Neither is any buffer's."""
    memory_of = module(COPY.format(width=4, body=SINGLE), TWO)
    out = np.zeros(32, "f4")
    with pytest.raises(ptx.PtxError, match="address of no buffer"):
        memory_of.launch("k", (1,), (32,), (out, 0))
    address = memory_of.memory.add("given", np.ones(32, "f4"))
    memory_of.launch("k", (1,), (32,), (out, address))
    assert out.tolist() == [1] * 32
    memory_of.memory.drop(address)
    with pytest.raises(ptx.PtxError, match="address of no buffer"):
        memory_of.launch("k", (1,), (32,), (out, address))


def test_read_only_buffer() -> None:
    """A store into it is a fault that names it."""
    loaded = module(COPY.format(width=4, body=SINGLE), TWO)
    constant = loaded.memory.add("constants", np.zeros(32, "f4"), read_only=True)
    with pytest.raises(ptx.PtxError, match="`constants` is read-only"):
        loaded.launch("k", (1,), (32,), (constant, np.zeros(32, "f4")))


def test_parameters_by_value() -> None:
    """Whole numbers, floats and structures lie where their types put them."""
    body = """
        ld.param.u64 %l0, [k_param_0];
        ld.param.u32 %r1, [k_param_1];
        ld.param.f32 %f1, [k_param_2];
        ld.param.f32 %f2, [k_param_3+4];
        cvt.rn.f32.s32 %f3, %r1;
        add.f32 %f3, %f3, %f1;
        add.f32 %f3, %f3, %f2;
        st.global.f32 [%l0], %f3;
        ret;
    """
    parameters = (
        ".param .u64 k_param_0, .param .u32 k_param_1, .param .f32 k_param_2, "
        ".param .align 4 .b8 k_param_3[8]"
    )
    out = np.zeros(1, "f4")
    loaded = module(body, parameters)
    loaded.launch("k", (1,), (1,), (out, -3, 0.5, np.array([9, 0.25], "f4").tobytes()))
    assert out.tolist() == [-2.25]
    with pytest.raises(ptx.PtxError, match="4 bytes for a parameter of 8"):
        loaded.launch("k", (1,), (1,), (out, -3, 0.5, b"1234"))
    with pytest.raises(ptx.PtxError, match="3 arguments for 4"):
        loaded.launch("k", (1,), (1,), (out, -3, 0.5))


def test_stack_and_constants() -> None:
    """Every thread has its own stack; a table of the module is read by a generic address."""
    text = """
    .version 9.0
    .target sm_90
    .address_size 64
    .global .align 4 .b32 table[4] = {10, 20, 30, 40};
    .visible .entry k(
        .param .u64 k_param_0
    )
    {
        .local .align 16 .b8 __local_depot0[16];
        .reg .b64 %SP;
        .reg .b32 %r<9>;
        .reg .b64 %rd<9>;
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd1, %r1, 4;
        mov.u64 %rd2, __local_depot0;
        add.s64 %rd3, %rd2, %rd1;
        mov.u64 %rd4, table;
        add.s64 %rd4, %rd4, %rd1;
        ld.global.u32 %r2, [%rd4];
        st.local.u32 [%rd3], %r2;
        cvta.local.u64 %rd5, %rd3;
        ld.u32 %r3, [%rd5];
        ld.param.u64 %rd6, [k_param_0];
        add.s64 %rd6, %rd6, %rd1;
        st.global.u32 [%rd6], %r3;
        ret;
    }
    """
    text = "\n".join(line.strip() for line in text.splitlines())
    out = np.zeros(4, np.uint32)
    ptx.Loaded(text).launch("k", (1,), (4,), (out,))
    assert out.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("wgmma.fence.sync.aligned; ret;", "line .*not interpreted: wgmma.fence"),
        ("add.f32 %f1, %f2, %f3; ret;", "%f2 is read before it is written"),
        ("trap;", "trap"),
    ],
)
def test_program_that_cannot_be_run(body: str, reason: str) -> None:
    """What is not interpreted, poison in registers and traps end the launch by name."""
    with pytest.raises(ptx.PtxError, match=reason):
        module(body).launch("k", (1,), (32,), (0,))


def test_launch_that_does_not_fit() -> None:
    """More threads than the kernel was compiled for."""
    text = module("ret;").names
    assert text == ("k",)
    with pytest.raises(ptx.PtxError, match="2048 threads, at most 1024"):
        module("ret;").launch("k", (1,), (2048,), (0,))
