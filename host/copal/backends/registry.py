# SPDX-License-Identifier: MIT
"""Backends by name, and the reason why one cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from copal.algorithms.base import Built
from copal.backends.base import Backend, Learner, LearnerState
from copal.errors import BackendUnavailableError, UnknownNameError
from copal.program import Program, Update


@dataclass(frozen=True)
class _Unavailable(Backend):
    """Stands for a backend that cannot be used, with the reason."""

    name: str = ""
    """What the user types."""
    reason: str = ""
    """Why, and what to do."""

    def unavailable(self) -> str | None:
        """The reason."""
        return self.reason

    def supports(self, program: Program) -> str | None:
        """The kind of the first operation: it has none of them."""
        return program.ops[0].kind if program.ops else None

    def learner(
        self,
        update: Update,  # noqa: ARG002
        state: LearnerState,  # noqa: ARG002
        *,
        batch_size: int,  # noqa: ARG002
        learners: int,  # noqa: ARG002
    ) -> NoReturn:
        """Always raises BackendUnavailableError."""
        raise _error(self)


def _error(backend: Backend) -> BackendUnavailableError:
    return BackendUnavailableError(
        "backend",
        "one that can be used here",
        f"`{backend.name}`: {backend.unavailable()}",
        backend.hint,
    )


def _cpu() -> Backend:
    try:
        from copal.backends.cpu import CpuBackend
    except ImportError as error:
        return _Unavailable("cpu", f"the native extension is missing ({error}): reinstall copal")
    backend: Backend = CpuBackend()
    return backend


def _torch() -> Backend:
    from copal.backends.torch import TorchBackend

    return TorchBackend()


def _reference() -> Backend:
    from copal.backends.reference import ReferenceBackend

    return ReferenceBackend()


def _fpga(**settings: Any) -> Backend:
    from copal.backends.fpga import FpgaBackend

    return FpgaBackend(**settings)


def _gpu(**settings: Any) -> Backend:
    from copal.backends.gpu import GpuBackend

    return GpuBackend(**settings)


_BACKENDS: dict[str, Callable[..., Backend]] = {
    "cpu": _cpu,
    "gpu": _gpu,
    "fpga": _fpga,
    "torch": _torch,
    "reference": _reference,
}


_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "pytorch": "torch", "numpy": "reference"}
"""What other frameworks call them: no spelling is near."""


def names() -> tuple[str, ...]:
    """Names that `get` knows."""
    return tuple(_BACKENDS)


def get(name: str, **settings: Any) -> Backend:
    """The backend called `name`, whether it can be used or not.

    Args:
        name: What the user types.
        settings: `device` of `fpga` and `gpu`, `replay_device` of `gpu`, `lanes` and `clock_mhz` of
            `fpga`.

    Raises:
        UnknownNameError: There is none; lists the near matches.
    """
    if name in _SYNONYMS:
        hint = f"did you mean `{_SYNONYMS[name]}`? {Backend.hint}"
        raise UnknownNameError("backend", f"one of {', '.join(_BACKENDS)}", f"`{name}`", hint)
    if name not in _BACKENDS:
        raise UnknownNameError.of("backend", name, _BACKENDS)
    return _BACKENDS[name](**settings)


def require(name: str, **settings: Any) -> Backend:
    """The backend called `name`, ready for use.

    Args:
        name: What the user types.
        settings: As `get` takes them.

    Raises:
        UnknownNameError: There is none.
        BackendUnavailableError: It cannot be used on this machine; gives the reason.
    """
    backend = get(name, **settings)
    if backend.unavailable() is not None:
        raise _error(backend)
    return backend


def devices() -> list[tuple[str, str | None]]:
    """Every backend's name with None, or the reason why it cannot be used.

    A backend with devices is followed by them, as `fpga:sim` for instance.
    """
    found = []
    for name in _BACKENDS:
        backend = get(name)
        found.append((name, backend.unavailable()))
        found += [(f"{name}:{device}", reason) for device, reason in backend.devices()]
    return found


def learner(
    backend: Backend,
    built: Built,
    state: LearnerState | None = None,
    *,
    batch_size: int,
    learners: int = 1,
) -> Learner:
    """Builds a learner of any backend for an algorithm.

    Args:
        backend: What runs it.
        built: The algorithm.
        state: Where to start; None: at the initial parameters.
        batch_size: Rows of a batch.
        learners: Parallel learners that share the batch.

    Raises:
        BackendUnavailableError: The backend cannot be used on this machine.
        ProgramError: It lacks an operation.
        ConfigError: `learners` does not fit.
    """
    from copal.backends.torch import TorchBackend

    _check_operations(backend, built.update)
    state = state or LearnerState.initial(built.update, built.parameters)
    if isinstance(backend, TorchBackend):
        return backend.learner(
            built.update, state, batch_size=batch_size, learners=learners, source=built.source
        )
    return backend.learner(built.update, state, batch_size=batch_size, learners=learners)


def _check_operations(backend: Backend, update: Update) -> None:
    """Refuses an Update with operations that only PyTorch has.

    Raises:
        BackendUnavailableError: `backend` is another one.
    """
    found = (phase.program.opaque() for phase in update.phases)
    operation = next((name for name in found if name is not None), None)
    if operation is None or backend.name == "torch":
        return
    raise BackendUnavailableError(
        "backend",
        f"one that has `{operation}`, which the loss of {update.name} needs",
        f"`{backend.name}`",
        "use `--backend torch`, which runs any loss",
    )
