# SPDX-License-Identifier: MIT
"""Published snapshots of the acting network."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from copal.errors import ConfigError, SchemaError
from copal.native import native


def test_reads_what_was_published_last():
    """A copy and its version."""
    store = native.WeightStore(3)
    weights, version = store.read()
    np.testing.assert_array_equal(weights, [0, 0, 0])
    assert version == 0
    for version in (4, 7, 9):
        store.publish(np.full(3, version, np.float32), version)
        weights, read = store.read()
        np.testing.assert_array_equal(weights, [version] * 3)
        assert read == store.version == version
    weights[:] = -1
    np.testing.assert_array_equal(store.read()[0], [9] * 3)


def test_snapshots_are_whole_under_a_writer():
    """Every element of a snapshot equals its version, and versions never go back."""
    store, stop, wrong = native.WeightStore(4096), threading.Event(), []

    def read():
        last = 0
        while not stop.is_set():
            weights, version = store.read()
            if version < last or not (weights == version).all():
                wrong.append((last, version, weights))
                return
            last = version

    readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(1, 3000):
        store.publish(np.full(4096, version, np.float32), version)
    stop.set()
    for reader in readers:
        reader.join(60)
        assert not reader.is_alive()
    assert not wrong


@pytest.mark.parametrize(
    "weights",
    [np.zeros(2, np.float32), np.zeros(3), np.zeros((3, 1), np.float32), [0.0, 0.0, 0.0]],
)
def test_wrong_vector_is_refused_and_nothing_changes(weights):
    """Size, dtype and rank."""
    store = native.WeightStore(3)
    store.publish(np.ones(3, np.float32), 1)
    with pytest.raises(SchemaError, match="weights"):
        store.publish(weights, 2)
    assert store.version == 1


def test_empty_store_is_refused():
    """There is nothing to act with."""
    with pytest.raises(ConfigError, match="size"):
        native.WeightStore(0)
