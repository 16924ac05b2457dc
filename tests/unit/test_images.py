# SPDX-License-Identifier: MIT
"""Convolutional networks on bytes: layouts, stand-in Programs, backends that refuse them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from copal import algorithms
from copal.algorithms.images import Pixels, nature_cnn
from copal.backends import registry
from copal.backends.base import LearnerState
from copal.backends.torch_policy import TorchPolicy
from copal.errors import BackendUnavailableError, CaptureError, ConfigError, ProgramError
from copal.program import Buffer, Program
from copal.program.capture import capture, capture_policy
from copal.runtime.policy import make_policy

SPACE = Box(0, 255, (36, 36), np.uint8)


def built(**settings: Any) -> algorithms.Built:
    """DQN on small grey pictures."""
    algorithm = algorithms.get("dqn")
    return algorithm.build(SPACE, Discrete(3), algorithm.config(**settings))


@pytest.mark.parametrize(
    ("shape", "order", "planes"),
    [
        ((40, 50), "hw", (1, 40, 50)),
        ((4, 40, 50), "chw", (4, 40, 50)),
        ((40, 50, 3), "hwc", (3, 40, 50)),
        ((2, 40, 50, 3), "khwc", (6, 40, 50)),
        ((2, 5, 40, 50), "kchw", (10, 40, 50)),
    ],
)
def test_planes_of_each_layout(
    shape: tuple[int, ...], order: str, planes: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Frames and colours become planes, frame by frame, divided by 255."""
    images = rng.integers(256, size=(2, *shape)).astype(np.float32)
    pixels = Pixels(shape)
    assert pixels.planes == planes
    wanted = "".join(c for c in "kchw" if c in order)
    expected = np.einsum(f"b{order}->b{wanted}", images).reshape(2, *planes) / 255
    got = pixels(torch.from_numpy(images.reshape(2, -1)))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_network_is_that_of_the_paper() -> None:
    """84 x 84 x 4 pictures and 4 actions give 1,686,180 parameters, the same for a seed."""
    network = nature_cnn((4, 84, 84), 4, seed=3)
    assert sum(p.numel() for p in network.parameters()) == 1_686_180
    again = nature_cnn((4, 84, 84), 4, seed=3)
    pairs = zip(network.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("shape", [(20, 20), (3, 20, 84), (2, 2, 2, 84, 84)])
def test_pictures_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    """Too small for the convolutions, or too many axes."""
    with pytest.raises(ConfigError, match="pixels"):
        nature_cnn(shape, 2, seed=0)


def test_dqn_keeps_bytes_and_names_the_operation() -> None:
    """Replay columns of uint8, and Programs of `opaque` operations."""
    found = built()
    assert found.columns["obs"] == ((36 * 36,), "uint8")
    assert found.columns["next_obs"] == ((36 * 36,), "uint8")
    program = found.update.phases[0].program
    assert {op.kind for op in program.ops} == {"opaque"}
    assert {op.attrs["name"] for op in program.ops} == {"aten.convolution.default"}
    assert set(program.outputs) == {"loss", "td_error", "q"}
    policy = found.update.policy
    widths = {b.name: (b.width, b.dtype) for b in policy.buffers()}
    assert [widths[policy.outputs[r]] for r in ("q", "action")] == [(3, "float32"), (1, "int32")]
    assert Program.from_json(policy.to_json()) == policy


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_other_backends_refuse_with_the_operation(backend: str) -> None:
    """The message names the operation and the backend that has it."""
    with pytest.raises(BackendUnavailableError) as caught:
        registry.learner(registry.get(backend), built(), batch_size=4)
    assert "aten.convolution" in str(caught.value)
    assert "--backend torch" in caught.value.hint
    assert caught.value.exit_code == 3


def test_normalisation_of_pictures_is_refused() -> None:
    """They are divided by 255."""
    with pytest.raises(ConfigError, match="normalize_observations"):
        built(normalize_observations=True)


def test_other_algorithms_refuse_pictures() -> None:
    """Their networks are dense."""
    with pytest.raises(ConfigError, match="images"):
        algorithms.get("sac").build(SPACE, Box(-1.0, 1.0, (2,)))


@pytest.mark.parametrize("double", ["dqn", "double-dqn"])
def test_torch_learner_takes_bytes(double: str, rng: np.random.Generator) -> None:
    """One update; it moves the network."""
    found = algorithms.get(double).build(SPACE, Discrete(3))
    learner = registry.learner(registry.get("torch"), found, batch_size=5)
    batch = {
        "obs": rng.integers(256, size=(5, 36 * 36), dtype=np.uint8),
        "next_obs": rng.integers(256, size=(5, 36 * 36), dtype=np.uint8),
        "action": rng.integers(3, size=5),
        "reward": rng.normal(size=5).astype(np.float32),
        "terminated": rng.random(5) < 0.5,
        "discount": np.full(5, 0.9, np.float32),
        "weight": np.ones(5, np.float32),
    }
    td_error = learner.step(batch)
    assert td_error.shape == (5,)
    assert np.isfinite(td_error).all()
    assert (learner.parameters("q") != found.parameters["q"]).any()


def test_policy_acts_with_the_weights_it_is_given(rng: np.random.Generator) -> None:
    """From a vector and from a store, whose newer version replaces the older one."""
    found = built()
    policy = make_policy(found.update.policy, found.source)
    assert isinstance(policy, TorchPolicy)
    obs = rng.integers(256, size=(6, 36 * 36), dtype=np.uint8)
    weights = found.parameters["q"]
    q = found.source.networks["q"](torch.from_numpy(obs.astype(np.float32))).detach().numpy()
    out = np.zeros(6, np.int64)
    policy.act_into(weights, obs, out)
    np.testing.assert_array_equal(out, q.argmax(1))
    from copal.native import native

    store = native.WeightStore(weights.size)
    for version, sign in enumerate((1, -1)):
        flipped = weights.copy()
        flipped[-512 * 3 - 3 :] *= sign
        store.publish(flipped, version)
        np.testing.assert_allclose(policy.act(store, obs)["q"], sign * q, rtol=1e-4, atol=1e-5)


def test_policy_without_its_source_is_refused() -> None:
    """The Program alone does not say what to run."""
    with pytest.raises(ProgramError):
        make_policy(built().update.policy)


def test_loss_with_a_counterpart_stays_open() -> None:
    """`opaque=True` only matters where capture would refuse."""

    def loss(nets: Any, b: Any) -> Any:
        q = nets.q(b.obs)[:, 0]
        return q**2, q

    networks = {"q": nn.Linear(3, 1)}
    programs = [
        capture(loss, networks, [Buffer("obs", 3)], gradient="q", name="c", opaque=opaque)
        for opaque in (False, True)
    ]
    assert programs[0] == programs[1]


def test_wrong_loss_is_refused_all_the_same() -> None:
    """A result of the wrong shape is no matter of operations."""
    networks = {"q": nn.Conv1d(1, 1, 1)}
    with pytest.raises(CaptureError):
        capture_policy(
            lambda nets, b: (nets.q(b.obs[:, None]),) * 2,
            networks,
            [Buffer("obs", 3)],
            ("q",),
            name="c",
            opaque=True,
        )


def test_state_goes_through_the_torch_learner() -> None:
    """What a checkpoint holds of a convolutional network comes back."""
    found = built()
    state = LearnerState.initial(found.update, found.parameters)
    state.parameters["q"] += np.float32(0.5)
    learner = registry.learner(registry.get("torch"), found, state, batch_size=4)
    np.testing.assert_array_equal(learner.state().parameters["q"], state.parameters["q"])
