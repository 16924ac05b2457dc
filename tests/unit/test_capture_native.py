# SPDX-License-Identifier: MIT
"""Captured losses with several column axes in the native executor, against the reference."""

from __future__ import annotations

from typing import Any

import capture_oracle
import numpy as np
import pytest
import test_capture_columns
import test_capture_formulas

from copal.backends import registry
from copal.backends.base import LearnerState
from copal.program import Adam, Phase, Update
from copal.program.capture import capture, capture_policy
from copal.program.modules import flatten_module
from copal.program.reference import run

CASES = {
    name: cases[name]
    for cases, names in (
        (
            test_capture_columns.CASES,
            ("quantile regression", "categorical projection", "index with arange"),
        ),
        (test_capture_formulas.CASES, ("layer norm", "masked by infinity", "expm1, log1p")),
    )
    for name in names
}


@pytest.mark.parametrize("name", CASES)
def test_native_gradient_equals_the_reference(name: str, rng: np.random.Generator) -> None:
    """Concatenations of slices, masks of indices, quotients by zero in an unused branch."""
    modules = capture_oracle.networks()
    loss: Any = capture_oracle.of_q(CASES[name])
    program = capture(loss, modules, capture_oracle.INPUTS, gradient="q", name="case")
    policy = capture_policy(
        lambda nets, b: nets.q(b.obs), {"q": modules["q"]}, program.inputs[:1], ("q",), name="p"
    )
    update = Update("case", (Phase(program, Adam()),), (), policy)
    parameters = {n: flatten_module(m) for n, m in modules.items() if n in update.networks()}
    columns = capture_oracle.batch(rng)
    expected = run(program, parameters, columns)
    assert expected.gradient is not None
    batch = {
        b.name: columns[b.name].astype(np.int64 if b.dtype == "int32" else np.float32)
        for b in program.inputs
    }
    learner: Any = registry.get("cpu").learner(
        update,
        LearnerState.initial(update, parameters),
        batch_size=capture_oracle.ROWS,
        learners=1,
    )
    gradient, td_error, _ = learner.gradient(batch)
    mean = expected.gradient / capture_oracle.ROWS
    np.testing.assert_allclose(gradient, mean, atol=2e-5 * np.abs(mean).max())
    scale = np.abs(expected.outputs["td_error"]).max()
    np.testing.assert_allclose(td_error, expected.outputs["td_error"], atol=2e-5 * scale)
