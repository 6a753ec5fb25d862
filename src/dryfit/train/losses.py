"""What a backward can start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dryfit.errors import UsageError
from dryfit.train.torch_private import factor_of

_MEANS = (
    *("Mean", "NllLoss", "MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "CtcLoss"),
    *("_DDPSink", "CompiledFunction"),  # a loss made inside of a model in DDP or torch.compile
)


def require_loss(loss: Any, whose: str) -> torch.Tensor:
    """Give the loss back, if it is a scalar tensor with a graph.

    Raises:
        UsageError: it is not; the message says what it is.
    """
    if not isinstance(loss, torch.Tensor):
        raise UsageError(f"The loss of {whose} is {type(loss).__name__}, and has to be a tensor; {_advice(loss)}.")
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


def divided_by_hand(loss: torch.Tensor, by: int) -> bool:
    """Whether a mean was divided by this number, as a plain loop does with the number of its micro-batches.

    A sum of two losses over 2, half of a squared error and a sum over as many rows are no such thing.
    """
    found = factor_of(loss)
    if found is None or by < 2 or not abs(found[0] - by) <= 1e-6 * by:
        return False
    kind = "" if found[1] is None else found[1].name()
    if getattr(found[1], "_saved_reduction", 1) != 1 or (by == 2 and kind.startswith("Mse")):
        return False
    return kind.startswith(_MEANS)


def _advice(loss: Any) -> str:
    """How what is no tensor becomes the loss."""
    if loss is None:
        return "a function without return gives None, and so does .loss of a model of transformers without labels"
    if hasattr(loss, "loss"):
        return "take its .loss"
    if isinstance(loss, Mapping) and "loss" in loss:
        return 'take its ["loss"]'
    if isinstance(loss, (Mapping, list, tuple)):
        return "take the loss out of it"
    return "leave out .item()"
