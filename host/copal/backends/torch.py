# SPDX-License-Identifier: MIT
"""The `torch` backend: the loss itself under PyTorch's autograd, with fused Adam.

This is what a user would have written by hand: the baseline of every benchmark, and the way to
train with a loss that cannot be captured.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.algorithms.base import Source
from copal.backends.base import Backend, Learner, LearnerState, one_learner
from copal.errors import BackendUnavailableError, LearnerFailedError, ProgramError
from copal.program import Buffer, Phase, Program, Update
from copal.program.diagnosis import Finding, failure, find
from copal.program.noise import with_noise
from copal.program.reference import run


class TorchBackend(Backend):
    """Runs any algorithm whose PyTorch loss is at hand."""

    name = "torch"

    def unavailable(self) -> str | None:
        """None if PyTorch is installed."""
        try:
            found = importlib.util.find_spec("torch") is not None
        except ImportError:
            found = False
        return None if found else "PyTorch is not installed: `pip install torch`"

    def supports(self, program: Program) -> str | None:  # noqa: ARG002
        """None: it runs the loss, not the Program."""
        return None

    def learner(
        self,
        update: Update,
        state: LearnerState,
        *,
        batch_size: int,  # noqa: ARG002  any size a batch has
        learners: int,
        source: Source | None = None,
    ) -> Learner:
        """See `copal.backends.base.Backend`.

        Args:
            update: Optimiser settings, targets and inputs.
            state: Where to start.
            batch_size: Not needed.
            learners: 1; PyTorch has threads of its own.
            source: The losses and modules that `update` was captured from.

        Raises:
            BackendUnavailableError: PyTorch is not installed.
            ProgramError: There is no `source`.
            ConfigError: `learners` is not 1.
        """
        reason = self.unavailable()
        if reason is not None:
            raise BackendUnavailableError("backend", "`torch` usable here", reason)
        one_learner(self.name, learners)
        if source is None:
            raise ProgramError(
                "source",
                "the losses that the Update was captured from",
                "None",
                "pass `source=built.source`, or use `copal.backends.learner(backend, built, ...)`",
            )
        return TorchLearner(update, state, source)


class TorchLearner(Learner):
    """An ordinary training loop, one update at a time.

    Args:
        update: Optimiser settings, targets and inputs.
        state: Where to start.
        source: The losses and modules that `update` was captured from.
    """

    def __init__(self, update: Update, state: LearnerState, source: Source) -> None:
        import torch

        self._update, self._source = update, source
        self._modules = {name: copy.deepcopy(m) for name, m in source.networks.items()}
        self._optimisers = {
            name: torch.optim.Adam(self._modules[name].parameters(), fused=True)
            for name in update.trained()
        }
        self._inputs = {b.name: b for phase in update.phases for b in phase.program.inputs}
        self._updates = 0
        self.load_state(state)
        self._backup = _Backup(self._tensors()) if len(update.phases) > 1 else None

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._updates

    def step(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs one update; see `copal.backends.base.Learner`. A failed one changes nothing."""
        batch = with_noise(self._update, batch, self._updates)
        columns = {name: _column(buffer, batch) for name, buffer in self._inputs.items()}
        if self._backup is not None:
            self._backup.keep(self._tensors())
        try:
            td_errors = [
                self._step_phase(phase, loss, columns)
                for phase, loss in zip(self._update.phases, self._source.losses, strict=True)
                if (self._updates + 1) % phase.every == 0
            ]
        except LearnerFailedError:
            if self._backup is not None:
                self._backup.restore(self._tensors())
            raise
        self._updates += 1
        self._follow()
        return np.asarray(td_errors[0].numpy(), np.float32)

    def _tensors(self) -> list[Any]:
        """All that phases change."""
        found = []
        for name, optimiser in self._optimisers.items():
            for p in self._modules[name].parameters():
                slot = optimiser.state[p]
                found += [p, slot["exp_avg"], slot["exp_avg_sq"], slot["step"]]
        return found

    def _step_phase(self, phase: Phase, loss: Any, columns: Mapping[str, Any]) -> Any:
        import torch

        from copal.program.arguments import Batch, Networks

        network = str(phase.program.gradient)
        parameters = list(self._modules[network].parameters())
        row_loss, td_error, *more = loss(Networks(self._modules), Batch(columns))
        td_error = td_error.detach()
        results = [row_loss, td_error, *(v for extras in more for v in extras.values())]
        settings, optimiser = phase.optimiser, self._optimisers[network]
        for group in optimiser.param_groups:
            group.update(
                lr=settings.learning_rate,
                betas=(settings.beta1, settings.beta2),
                eps=settings.eps,
            )
        optimiser.zero_grad()
        row_loss.mean().backward(inputs=parameters)
        limit = phase.max_grad_norm if phase.max_grad_norm is not None else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        total = norm + sum(v.detach().sum() for v in results)
        if not bool(torch.isfinite(total)):
            raise failure(self._update, phase, self._updates, self._find_bad(phase, columns))
        optimiser.step()
        return td_error

    def _find_bad(self, phase: Phase, columns: Mapping[str, Any]) -> Finding:
        """What the captured Program finds on the way to a bad number."""
        program = phase.program
        if program.opaque():
            return Finding("an operation of the loss")
        arrays = {b.name: columns[b.name].numpy() for b in program.inputs}
        parameters = {n.name: self.parameters(n.name) for n in program.networks}
        result = run(program, parameters, arrays, np.float32)
        return find(program, parameters, result.buffers, result.gradient)

    def _follow(self) -> None:
        import torch

        with torch.no_grad():
            for target in self._update.targets:
                if self._updates % target.every == 0:
                    torch._foreach_lerp_(
                        list(self._modules[target.target].parameters()),
                        list(self._modules[target.source].parameters()),
                        target.tau,
                    )

    def parameters(self, network: str) -> NDArray[np.float32]:
        """A copy of one network's parameters, flat."""
        from copal.program.modules import flatten_module

        return flatten_module(self._modules[network])

    def state(self) -> LearnerState:
        """A copy of the whole state."""
        first, second, steps = {}, {}, {}
        for name, optimiser in self._optimisers.items():
            slots = [optimiser.state[p] for p in self._modules[name].parameters()]
            first[name] = np.concatenate([s["exp_avg"].numpy().ravel() for s in slots])
            second[name] = np.concatenate([s["exp_avg_sq"].numpy().ravel() for s in slots])
            steps[name] = int(slots[0]["step"])
        parameters = {name: self.parameters(name) for name in self._modules}
        return LearnerState(parameters, first, second, steps, self._updates)

    def load_state(self, state: LearnerState) -> None:
        """Goes on from `state`."""
        import torch

        from copal.program.modules import unflatten_into

        for name, module in self._modules.items():
            unflatten_into(module, state.parameters[name])
        for name, optimiser in self._optimisers.items():
            start = 0
            for p in self._modules[name].parameters():
                part = slice(start, start + p.numel())
                optimiser.state[p] = {
                    "step": torch.tensor(float(state.optimiser_steps[name])),
                    "exp_avg": _part(state.first_moment[name], part, p),
                    "exp_avg_sq": _part(state.second_moment[name], part, p),
                }
                start = part.stop
        self._updates = state.updates


class _Backup:
    """Copies of tensors, in memory that is allocated once."""

    def __init__(self, tensors: list[Any]) -> None:
        self._copies = [t.detach().clone() for t in tensors]

    def keep(self, tensors: list[Any]) -> None:
        """Remembers the present values."""
        _copy(self._copies, tensors)

    def restore(self, tensors: list[Any]) -> None:
        """Brings back the values that were kept last."""
        _copy(tensors, self._copies)


def _copy(to: list[Any], source: list[Any]) -> None:
    import torch

    with torch.no_grad():
        torch._foreach_copy_(to, source)


def _column(buffer: Buffer, batch: Mapping[str, NDArray[Any]]) -> Any:
    """A batch column as the loss sees it: [B] of width 1, else [B, width]."""
    import torch

    dtype = torch.int64 if buffer.dtype == "int32" else torch.float32
    column = torch.as_tensor(np.asarray(batch[buffer.name]), dtype=dtype)
    return column.squeeze(1) if buffer.width == 1 and column.ndim == 2 else column


def _part(vector: NDArray[np.float32], part: slice, parameter: Any) -> Any:
    import torch

    return torch.from_numpy(vector[part].copy()).view_as(parameter)
