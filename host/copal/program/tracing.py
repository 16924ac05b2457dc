# SPDX-License-Identifier: MIT
"""Traces a function of tensors to a graph of ATen operations that knows its source lines."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
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


def _refusal(error: RuntimeError) -> CaptureError | None:
    """What the tracer's own error means to the user, None if it is not about tracing."""
    if "_local_scalar_dense" in str(error):
        return CaptureError(
            "aten._local_scalar_dense",
            "the same operations for each batch",
            f"a branch or a number taken from a tensor's value, from {_user_line(error)}",
            "use torch.where instead of if, and tensors instead of item()",
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
    # Batch norm stays one operation, so that a refusal can name it.
    table: Any = core_aten_decompositions()
    return {k: v for k, v in table.items() if "batch_norm" not in str(k)}


def located(function: Callable[[Any, Any], Any], *arguments: Any) -> Any:
    """Calls `function` so that each operation traced meanwhile knows the line that called it."""
    try:
        with _Lines():
            return function(*arguments)
    finally:
        fx_traceback.current_meta.pop("stack_trace", None)


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
    """Leaves the line of the user's code where the tracer copies it to each new node."""

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
        if frame is not None:
            line = _line(frame.f_code.co_filename, frame.f_lineno)
            fx_traceback.current_meta["stack_trace"] = line
        if func is torch.nn.functional.one_hot:
            return _one_hot(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


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
