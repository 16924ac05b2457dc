# SPDX-License-Identifier: MIT
"""The noise of learners: a known answer, NumPy's own Philox family, moments, shares."""

import numpy as np
import pytest
from scipy import stats

from copal.program import noise


@pytest.mark.parametrize(
    ("counter", "seed", "expected"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, seed, expected):
    """The known-answer vectors of Random123."""
    words = noise.philox(np.array([counter], np.uint32), seed)
    assert tuple(words[0]) == expected


def test_normal_numbers_are_normal_and_columns_are_independent():
    """Kolmogorov-Smirnov per column, and correlations near 0."""
    x = noise.normal(20_000, 7, seed=3, stream=1, update=12)
    assert all(stats.kstest(x[:, j], "norm").pvalue > 1e-4 for j in range(7))
    off_diagonal = np.corrcoef(x.T) - np.eye(7)
    assert np.abs(off_diagonal).max() < 0.04


def test_a_share_of_the_rows_has_the_numbers_of_those_rows():
    """What makes parallel learners agree with one."""
    whole = noise.normal(10, 5, seed=1, stream=2, update=2**33 + 1)
    share = noise.normal(4, 5, seed=1, stream=2, update=2**33 + 1, first_row=3)
    np.testing.assert_array_equal(whole[3:7], share)


def test_seed_stream_and_update_each_change_every_number():
    """No two of them may share a counter."""
    base = {"seed": 1, "stream": 0, "update": 0}
    first = noise.normal(50, 4, **base)
    for name, value in {"seed": 2**32 + 1, "stream": 1, "update": 2**32}.items():
        assert not np.isin(noise.normal(50, 4, **{**base, name: value}), first).any()
