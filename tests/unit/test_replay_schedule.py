# SPDX-License-Identifier: MIT
"""The linear schedule of beta and epsilon."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copal import LinearSchedule
from copal.errors import ConfigError


@given(
    start=st.floats(-5, 5),
    end=st.floats(-5, 5),
    steps=st.integers(1, 1000),
    step=st.integers(-10, 2000),
)
def test_value_lies_on_the_ramp(start: float, end: float, steps: int, step: int) -> None:
    """Linear within the ramp, constant outside, exact at both ends."""
    schedule = LinearSchedule(start, end, steps)
    share = min(max(step / steps, 0), 1)
    assert schedule(step) == pytest.approx(start + (end - start) * share, abs=1e-12)
    assert schedule(0) == start
    assert schedule(steps) == schedule(steps + 1) == end


def test_zero_steps_mean_the_end_at_once() -> None:
    """A schedule that is off."""
    assert LinearSchedule(1.0, 0.1, 0)(0) == 0.1


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((float("nan"), 0, 5), "start"),
        ((0, float("inf"), 5), "end"),
        ((0, 1, -1), "steps"),
    ],
)
def test_bad_settings(values: tuple[float, float, int], field: str) -> None:
    """The error names the field."""
    with pytest.raises(ConfigError) as caught:
        LinearSchedule(*values)
    assert caught.value.field == field
