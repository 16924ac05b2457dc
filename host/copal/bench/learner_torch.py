# SPDX-License-Identifier: MIT
"""The PyTorch side of the learner benchmark: what a user would write by hand, made lean."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from copal.algorithms.base import Built
from copal.bench.learner_build import noise_widths
from copal.bench.peers.drivers import train_cleanrl_sac, training
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


class Updater:
    """One update a call: noise, losses, backward, fused Adam, `_foreach_lerp_` of the targets.

    Args:
        built: The algorithm.
        batch: Columns, made tensors here, once; noise that is missing is drawn in each update.
        wrap: Applied to each loss.
        device: Where it runs, `cpu` or `cuda`.
    """

    def __init__(
        self,
        built: Built,
        batch: dict[str, Any],
        *,
        wrap: Callable[[Any], Any] = lambda f: f,
        device: str = "cpu",
    ) -> None:
        networks = built.source.networks.items()
        modules = {name: copy.deepcopy(m).to(device) for name, m in networks}
        self.modules = modules
        self._noises = _noises(built, batch, device)
        columns = {name: column.to(device) for name, column in _tensors(built, batch).items()}
        self._columns = Batch({**columns, **self._noises})
        self._updates = itertools.count(1)
        self._steps = [
            (
                phase.every,
                wrap(loss),
                Networks(_only_trained(modules, str(phase.program.gradient))),
                _adam(phase, modules),
                list(modules[str(phase.program.gradient)].parameters()),
            )
            for phase, loss in zip(built.update.phases, built.source.losses, strict=True)
        ]
        self._targets = [
            (
                target.every,
                _parameters(modules[target.target]),
                _parameters(modules[target.source]),
                target.tau,
            )
            for target in built.update.targets
        ]

    def __call__(self) -> None:
        """Runs one update."""
        number = next(self._updates)
        for noise in self._noises.values():
            noise.normal_()
        for every, loss, nets, optimiser, parameters in self._steps:
            if number % every == 0:
                optimiser.zero_grad(set_to_none=True)
                loss(nets, self._columns)[0].mean().backward(inputs=parameters)
                optimiser.step()
        with torch.no_grad():
            for every, target, source, tau in self._targets:
                if number % every == 0:
                    torch._foreach_lerp_(target, source, tau)


def _parameters(module: Any) -> list[torch.Tensor]:
    return list(module.parameters())


def _only_trained(modules: dict[str, Any], network: str) -> dict[str, Any]:
    """The modules, all but one as twins of the same memory without gradients.

    Autograd then records nothing for them, and a compiled graph does not compute it either.
    """
    found = {}
    for name, module in modules.items():
        if name == network:
            found[name] = module
            continue
        found[name] = copy.deepcopy(module).requires_grad_(False)
        for twin, parameter in zip(found[name].parameters(), module.parameters(), strict=True):
            twin.data = parameter.data
    return found


def compiled_updater(built: Built, batch: dict[str, Any]) -> Updater:
    """The same with every loss compiled, forward and backward; compiles before it returns."""
    update = Updater(built, batch, wrap=torch.compile)
    for _ in range(max(phase.every for phase in built.update.phases)):
        update()
    return update


def graphed(update: Updater) -> Callable[[], None]:
    """An updater on `cuda` as one CUDA graph; runs it a few times before it is captured."""
    cuda: Any = torch.cuda
    aside = cuda.Stream()
    aside.wait_stream(cuda.current_stream())
    with cuda.stream(aside):
        for _ in range(3):
            update()
    cuda.current_stream().wait_stream(aside)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        update()
    replay: Callable[[], None] = graph.replay
    return replay


def sac_by_hand(built: Built, batch: dict[str, Any]) -> Callable[[], None]:
    """SAC's update of the lean loop that training is compared with."""
    actor = next(n for n in built.update.policy.networks if n.name == "actor")
    options = training.parser(None).parse_args(
        [
            *("--hidden", *(str(layer.fan_out) for layer in actor.layers[:-1])),
            *("--learning-rate", "3e-4", "--target-tau", "0.005", "--target-update-interval", "1"),
        ]
    )
    obs, action = batch["obs"], batch["action"]
    learner = train_cleanrl_sac.Learner(obs.shape[1], action.shape[1], training.settings(options))
    discount = batch["discount"] * ~batch["terminated"]
    columns = (obs, action, batch["reward"], batch["next_obs"], discount)
    tensors = [torch.from_numpy(column) for column in columns]
    return lambda: learner.update(*tensors)


def actor(built: Built, obs: Any) -> Callable[[], Any]:
    """Actions, from a NumPy array to a NumPy array, as a user computes them.

    Args:
        built: The algorithm.
        obs: Observations [n, width].
    """
    kind = built.exploration
    name = "q" if kind == "epsilon" else "actor"
    module = copy.deepcopy(built.source.networks[name])

    def act() -> Any:
        with torch.inference_mode():
            outputs = module(torch.from_numpy(obs))
            if kind == "epsilon":
                return outputs.argmax(1).numpy()
            if kind == "gaussian":
                return outputs.numpy()
            mean, log_std = outputs.chunk(2, 1)
            std = log_std.clamp(*train_cleanrl_sac.LOG_STD_RANGE).exp()
            return (mean + std * torch.randn_like(mean)).tanh().numpy()

    return act


def _adam(phase: Any, modules: dict[str, Any]) -> Any:
    settings = phase.optimiser
    return torch.optim.Adam(
        modules[str(phase.program.gradient)].parameters(),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
        capturable=next(modules[str(phase.program.gradient)].parameters()).is_cuda,
    )


def _tensors(built: Built, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch's columns as a loss sees them: [B] where the width is 1."""
    inputs = {b.name: b for phase in built.update.phases for b in phase.program.inputs}
    return {
        name: torch.as_tensor(
            batch[name].reshape(len(batch[name]), -1).squeeze(1) if b.width == 1 else batch[name],
            dtype=torch.int64 if b.dtype == "int32" else torch.float32,
        )
        for name, b in inputs.items()
        if name in batch
    }


def _noises(built: Built, batch: dict[str, Any], device: str) -> dict[str, Any]:
    """Tensors for the noise that the batch does not have, to be filled in each update."""
    size = len(batch["weight"])
    widths = {name: w for name, w in noise_widths(built).items() if name not in batch}
    shapes = {name: (size,) if w == 1 else (size, w) for name, w in widths.items()}
    return {name: torch.empty(shape, device=device) for name, shape in shapes.items()}
