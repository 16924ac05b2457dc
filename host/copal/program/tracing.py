# SPDX-License-Identifier: MIT
"""Traces a function of tensors to a graph of ATen operations that knows its source lines."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.func import functionalize
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from copal.errors import CaptureError

_LIBRARY = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
_UNKNOWN = "a line that is not known"


def trace(
    function: Callable[..., list[torch.Tensor]], tensors: Sequence[torch.Tensor]
) -> fx.GraphModule:
    """Traces `function(*tensors)` to core ATen operations, without views and mutations.

    Raises:
        CaptureError: The function looks at a tensor's value, to branch on it for instance.
    """
    try:
        with fx_traceback.preserve_node_meta():
            graph: fx.GraphModule = make_fx(
                functionalize(function), decomposition_table=_decompositions()
            )(*tensors)
            return graph
    except RuntimeError as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        raise refusal from error


def _refusal(error: Exception) -> CaptureError | None:
    """What the tracer's own error means to the user, None if it is not about tracing."""
    if not isinstance(error, RuntimeError):
        return None
    if "_local_scalar_dense" in str(error):
        return CaptureError(
            "aten._local_scalar_dense",
            "the same operations for each batch",
            f"a branch or a number taken from a tensor's value, from {_user_line(error)}",
            "use torch.where instead of if, and tensors instead of item()",
        )
    written = re.search(r"in-place operation \((aten::\w+)", str(error))
    if written is not None:
        return CaptureError(
            written[1].replace("::", "."),
            "a loss that leaves its inputs as they are",
            f"one that overwrites an input or a parameter, from {_user_line(error)}",
            "other losses read the same column: work on a copy, `x.clone()`",
        )
    if "custom_function_call" in str(error):
        return CaptureError(
            "torch.autograd.Function",
            "operations whose gradient PyTorch knows",
            f"a function of the user's own, from {_user_line(error)}",
            "write it with PyTorch's operations",
        )
    return None


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    norms = get_decompositions([aten.native_layer_norm, aten.native_group_norm])
    table: Any = core_aten_decompositions()
    # Batch norm stays one operation, so that a refusal can name it.
    return {k: v for k, v in table.items() if "batch_norm" not in str(k)} | norms


def located(name: str, function: Callable[[Any, Any], Any], *arguments: Any) -> Any:
    """Calls `function` so that each operation traced meanwhile knows the line that called it.

    Raises:
        CaptureError: The function, called `name`, raises something else.
    """
    try:
        with _Lines(), _unchecked_distributions():
            return function(*arguments)
    except Exception as error:
        if isinstance(error, CaptureError) or _refusal(error) is not None:
            raise
        raise CaptureError(
            name,
            "a function of `nets` and `batch` that runs",
            f"{type(error).__name__}: {error}, from {_user_line(error)}",
            "COPAL_TRACEBACK=1 shows how it came there",
        ) from error
    finally:
        forget_line()


def forget_line() -> None:
    """Operations traced from now on have no line of their own."""
    fx_traceback.current_meta.pop("stack_trace", None)


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Keeps `torch.distributions` from looking at the values, which cannot be traced."""
    checked = torch.distributions.Distribution._validate_args  # noqa: SLF001  there is no getter
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)


def source_of(node: fx.Node) -> str:
    """File, line and text of the code that led to `node`, or else to its nearest argument."""
    seen: set[fx.Node] = set()
    queue = [node]
    while queue:
        current = queue.pop(0)
        if current.stack_trace:
            return str(current.stack_trace)
        seen.add(current)
        queue.extend(n for n in current.all_input_nodes if n not in seen)
    return _UNKNOWN


class _Lines(TorchFunctionMode):
    """Leaves the line of the user's code where the tracer copies it to each new node.

    The backward pass of an operation gets the line of the operation, by a hook on each of the
    functions that autograd records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: set[Any] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        frame = inspect.currentframe()
        while frame is not None and _in_library(frame.f_code.co_filename):
            frame = frame.f_back
        line = None
        if frame is not None:
            line = _line(frame.f_code.co_filename, frame.f_lineno)
            fx_traceback.current_meta["stack_trace"] = line
        if func is torch.nn.functional.one_hot:
            return _one_hot(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if line is not None:
            for part in result if isinstance(result, tuple | list) else (result,):
                if isinstance(part, torch.Tensor):
                    self._mark(part.grad_fn, line)
        return result

    def _mark(self, function: Any, line: str) -> None:
        """Hooks the functions that led to a result and are not known yet."""
        found = [function]
        while found:
            function = found.pop()
            if function is None or function in self._known:
                continue
            self._known.add(function)
            function.register_prehook(functools.partial(_recall, line))
            found.extend(f for f, _ in function.next_functions)


def _recall(line: str, gradients: Any) -> None:  # noqa: ARG001  autograd passes the gradients
    fx_traceback.current_meta["stack_trace"] = line


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """`one_hot` without its look at the values, which cannot be traced."""
    if num_classes < 0:
        raise CaptureError(
            "one_hot", "a number of classes", "none", "write one_hot(x, num_classes=n)"
        )
    return (tensor.unsqueeze(-1) == torch.arange(num_classes)).to(torch.int64)


def _in_library(file: str) -> bool:
    return file.startswith(_LIBRARY)


def _line(file: str, number: int) -> str:
    return f"{file}:{number}: `{linecache.getline(file, number).strip()}`"


def _user_line(error: BaseException) -> str:
    line, traceback = _UNKNOWN, error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not _in_library(file):
            line = _line(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return line
