# SPDX-License-Identifier: MIT
"""What the losses of several algorithms have in common."""

from __future__ import annotations

import torch
from torch import nn

Rows = tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]
"""What a loss returns: the loss of each row [B], its TD error [B], and further rows [B] by name."""


def matrix(column: torch.Tensor) -> torch.Tensor:
    """A column as [B, width], also when its width is 1 and it is seen as [B]."""
    return column.unsqueeze(1) if column.ndim == 1 else column


def td_loss(huber: bool, value: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Loss [B] of each row's value against its target y, both [B]; see `CommonConfig.huber`."""
    if huber:
        return nn.functional.huber_loss(value, y, reduction="none")
    return 0.5 * (value - y) ** 2


def twin_td_loss(
    huber: bool, first: torch.Tensor, second: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two critics' values against one target, all [B].

    Returns:
        The sum of their losses [B], and the mean of their absolute TD errors [B].
    """
    row_loss = td_loss(huber, first, y) + td_loss(huber, second, y)
    return row_loss, 0.5 * ((first - y).abs() + (second - y).abs())
