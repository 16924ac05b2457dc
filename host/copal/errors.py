# SPDX-License-Identifier: MIT
"""Typed errors. Each says what was expected, what was got, and a hint that fixes it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class CopalError(Exception):
    """Base of every error that copal raises on purpose.

    Args:
        field: Name of the argument, column or file that is wrong, shown in backticks.
        expected: What would have been right.
        got: What was there instead.
        hint: One sentence with the command or the call that fixes it.

    Attributes:
        exit_code: Exit status of the `copal` command that ends with this error.
    """

    exit_code = 1

    def __init__(self, field: str = "", expected: str = "", got: str = "", hint: str = "") -> None:
        self.field, self.expected, self.got, self.hint = field, expected, got, hint
        super().__init__(self._message())

    def _message(self) -> str:
        parts = []
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.got:
            parts.append(f"got {self.got}")
        text = ", ".join(parts)
        if self.field:
            text = f"`{self.field}`: {text}" if text else f"`{self.field}`"
        return f"{text}\nhint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[type[CopalError], tuple[str, str, str, str]]:
        return type(self), (self.field, self.expected, self.got, self.hint)


def reason(error: Exception) -> str:
    """What an exception says: of a file `No such file or directory: its name`, without a number."""
    if isinstance(error, OSError) and error.strerror:
        named = f": `{error.filename}`" if error.filename is not None else ""
        return f"{error.strerror}{named}"
    return str(error)


class ConfigError(CopalError, ValueError):
    """A setting is out of range or does not go with another one."""

    exit_code = 2


class PlanError(ConfigError):
    """A profile or plan is damaged, of another machine or version, or asks for what cannot be."""


class SchemaError(CopalError, ValueError):
    """A column is unknown, missing, or has the wrong shape or dtype."""


class PriorityError(CopalError, ValueError):
    """A priority or TD error is NaN, infinite or negative, or an id was never handed out."""


class EmptyReplayError(CopalError, LookupError):
    """There is no row to sample yet."""


class ProgramError(CopalError, ValueError):
    """A Program is malformed, or an executor lacks one of its operations."""


class CaptureError(ProgramError):
    """A PyTorch loss holds something that has no counterpart in a Program."""


class BackendUnavailableError(CopalError, RuntimeError):
    """The requested backend cannot be used on this machine."""

    exit_code = 3


class EnvironmentFailedError(CopalError, RuntimeError):
    """An environment raised again and again, so the run stopped."""


class LearnerFailedError(CopalError, RuntimeError):
    """A learner met NaN or another failure, so the run stopped.

    Attributes:
        rows: Rows of the batch that the failure came from, where they are known.
    """

    rows: tuple[int, ...] = ()

    def with_ids(self, ids: Sequence[int]) -> LearnerFailedError:
        """The same error with the replay's ids of up to 8 of its rows; `ids` are the batch's."""
        if not self.rows:
            return self
        named = ", ".join(str(int(ids[row])) for row in self.rows[:8])
        got = f"{self.got}; batch ids {named}"
        error = type(self)(self.field, self.expected, got, self.hint)
        error.rows = self.rows
        return error


class FpgaError(CopalError, RuntimeError):
    """An FPGA device refused a transfer, reported an error, or is not the engine it should be."""


class FpgaTimeoutError(FpgaError, TimeoutError):
    """An FPGA device stopped answering; it has been reset."""


class GpuError(CopalError, RuntimeError):
    """A GPU, or its emulation, refused a call or failed while a kernel ran."""


class GpuCompileError(GpuError):
    """The source of the kernels does not compile for this GPU."""


class GpuMemoryError(GpuError, MemoryError):
    """A GPU has not enough memory for what was asked for."""


class CheckpointError(CopalError, RuntimeError):
    """A checkpoint or saved replay is missing, truncated, or of another version."""


class NoSuchRunError(CheckpointError):
    """The folder that was named holds no run and no policy."""

    exit_code = 2


class UnknownNameError(ConfigError, LookupError):
    """A name (environment, algorithm, backend) is not known; the near matches are listed."""

    @classmethod
    def of(cls, field: str, name: str, known: Iterable[str], hint: str = "") -> UnknownNameError:
        """Builds the error with the names in `known` that look like `name`."""
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if not near:
            near = [n for n in names if n.lower().startswith(name.lower()[:4])][:3]
        expected = f"one of {', '.join(names)}" if len(names) <= 12 else "a known name"
        if near:
            hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" + (
                f" {hint}" if hint else ""
            )
        return cls(field, expected, f"`{name}`", hint)
