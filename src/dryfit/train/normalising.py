"""What a micro-batch's loss is multiplied by, so that a window's gradient is that of one large batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from dryfit.errors import UsageError
from dryfit.train.nested import tensors_in

Reduction = Literal["mean", "sum"]

_IGNORED = -100  # torch.nn.functional.cross_entropy's default ignore_index, and what transformers fills labels with


def weight(reduction: Reduction, items: float, all_items: float, *, averaged_over: int) -> float:
    """What to multiply one micro-batch's loss by.

    >>> weight("mean", 100, 110, averaged_over=1) + weight("mean", 10, 110, averaged_over=1)
    1.0
    >>> weight("sum", 10, 110, averaged_over=2) == 2 / 110
    True

    A mean over `items` counts as much as it has items of the window's; a sum is divided by all of them. DDP and FSDP
    average gradients over `averaged_over` ranks where a sum is wanted, so each is multiplied by that.
    """
    return averaged_over * (items if reduction == "mean" else 1.0) / all_items


def count_items(items: Callable[[Any], Any], batch: Any, where: str) -> float:
    """Call the user's counter, and refuse what is no count.

    Raises:
        UsageError: the count is no number, not finite, or below zero.
    """
    counted = items(batch)
    try:
        count = float(counted)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"items(batch) gave {type(counted).__name__} for {where}; it has to give one number, such as "
            f"(batch['labels'] != -100).sum()."
        ) from error
    if not math.isfinite(count) or count < 0:
        raise UsageError(
            f"items(batch) gave {count} for {where}; a count of items is a finite number, not below zero. "
            f"Look at that batch, or at how it is counted."
        )
    return count


def leading_rows(batch: Any) -> int | None:
    """The length of the first dimension of the batch's first tensor that has one."""
    return next((tensor.shape[0] for tensor in tensors_in(batch) if tensor.dim()), None)


def uneven(batches: Sequence[Any]) -> str:
    """Say in what micro-batches differ whose losses are about to count alike, or "".

    >>> uneven([torch.zeros(8, 3), torch.zeros(8, 3), torch.zeros(5, 3)])
    'the micro-batches have 5 to 8 rows'
    """
    rows = {count for batch in batches if (count := leading_rows(batch)) is not None}
    if len(rows) > 1:
        return f"the micro-batches have {min(rows)} to {max(rows)} rows"
    labels = [batch["labels"] for batch in batches if isinstance(batch, Mapping) and "labels" in batch]
    counts = {
        int((each != _IGNORED).sum())
        for each in labels
        if isinstance(each, torch.Tensor) and each.device.type == "cpu" and not each.is_floating_point()
    }
    if len(counts) > 1:
        return f"their labels other than {_IGNORED} number {min(counts)} to {max(counts)}"
    return ""
