"""What a backward can start from."""

from __future__ import annotations

from typing import Any

import torch

from dryfit.errors import UsageError


def require_loss(loss: Any, whose: str) -> torch.Tensor:
    """Give the loss back, if it is a scalar tensor with a graph.

    Raises:
        UsageError: it is not; the message says what it is.
    """
    if not isinstance(loss, torch.Tensor):
        raise UsageError(f"The loss of {whose} is {type(loss).__name__}, and has to be a tensor; leave out .item().")
    if loss.numel() != 1:
        raise UsageError(
            f"The loss of {whose} has shape {tuple(loss.shape)}, and a backward starts from one number. Use .mean(), "
            f'or .sum() with reduction="sum".'
        )
    if not loss.requires_grad:
        raise UsageError(
            f"The loss of {whose} has no graph, so it has no gradient: it was computed under torch.no_grad() or "
            f"inference_mode(), was detached, or no parameter it depends on requires a gradient."
        )
    return loss
