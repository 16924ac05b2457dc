# SPDX-License-Identifier: MIT
"""The PyTorch side of the learner benchmark: what a user would write by hand, made lean."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from copal.algorithms.base import Built
from copal.program.arguments import Batch, Networks


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch computes with `count` threads within."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def updater(
    built: Built, batch: dict[str, Any], *, wrap: Callable[[Any], Any] = lambda f: f
) -> Callable[[], None]:
    """One update: losses, backward, fused Adam, `_foreach_lerp_` of the targets.

    Args:
        built: The algorithm.
        batch: Columns, made tensors here, once.
        wrap: Applied to each loss.
    """
    modules = {name: copy.deepcopy(m) for name, m in built.source.networks.items()}
    nets, columns = Networks(modules), Batch(_tensors(built, batch))
    steps = [
        (wrap(loss), _adam(phase, modules), list(modules[str(phase.program.gradient)].parameters()))
        for phase, loss in zip(built.update.phases, built.source.losses, strict=True)
    ]
    targets: list[tuple[list[Any], list[Any], float]] = [
        (list(modules[t.target].parameters()), list(modules[t.source].parameters()), t.tau)
        for t in built.update.targets
    ]

    def update() -> None:
        for loss, optimiser, parameters in steps:
            optimiser.zero_grad(set_to_none=True)
            loss(nets, columns)[0].mean().backward(inputs=parameters)
            optimiser.step()
        with torch.no_grad():
            for target, source, tau in targets:
                torch._foreach_lerp_(target, source, tau)

    return update


def compiled_updater(built: Built, batch: dict[str, Any]) -> Callable[[], None]:
    """The same with every loss compiled, forward and backward; compiles before it returns."""
    update = updater(built, batch, wrap=torch.compile)
    update()
    return update


def actor(built: Built, network: str, obs: Any) -> Callable[[], Any]:
    """Greedy actions of the acting network, from a NumPy array to a NumPy array."""
    module = copy.deepcopy(built.source.networks[network])

    def act() -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(obs)).argmax(1).numpy()

    return act


def _adam(phase: Any, modules: dict[str, Any]) -> Any:
    settings = phase.optimiser
    return torch.optim.Adam(
        modules[str(phase.program.gradient)].parameters(),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def _tensors(built: Built, batch: dict[str, Any]) -> dict[str, Any]:
    inputs = {b.name: b for phase in built.update.phases for b in phase.program.inputs}
    return {
        name: torch.as_tensor(
            np.asarray(batch[name]), dtype=torch.int64 if b.dtype == "int32" else torch.float32
        )
        for name, b in inputs.items()
    }
