"""Cutting a batch into micro-batches, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dryfit.errors import UsageError
from dryfit.train.nested import changed, tensors_with_places


def rows_of(batch: Any) -> int:
    """How many samples a batch has: the length of the first dimension, which all its tensors have in common.

    >>> rows_of({"inputs": torch.zeros(8, 3), "targets": torch.zeros(8), "temperature": torch.tensor(0.1)})
    8

    Raises:
        UsageError: there is no tensor with a dimension, or their lengths differ.
    """
    found = [(where, tensor.shape[0]) for where, tensor in tensors_with_places(batch, "batch") if tensor.dim()]
    if not found:
        raise UsageError(
            f"There is no tensor with a dimension in {type(batch).__name__}, so it cannot be cut into rows."
        )
    first, rows = found[0]
    for where, length in found:
        if length != rows:
            raise UsageError(
                f"{where} has {length} rows and {first} has {rows}, so it is not known what one sample is. Give "
                f"split=, which takes a batch and a number of samples and gives the micro-batches."
            )
    return rows


def split(batch: Any, micro_batch: int) -> list[Any]:
    """Cut a batch into micro-batches of so many rows; the last one may have fewer, and a batch without any is one.

    >>> [piece[0].tolist() for piece in split((torch.arange(5), "a name"), 2)]
    [[0, 1], [2, 3], [4]]

    Tensors without a dimension, and what is no tensor, are in every piece.
    """
    return [
        change_tensors(batch, lambda tensor, at=at: tensor[at : at + micro_batch])  # type: ignore[misc]
        for at in range(0, max(rows_of(batch), 1), micro_batch)
    ]


def change_tensors(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same batch with each tensor that has a dimension changed."""
    return changed(batch, lambda each: change(each) if isinstance(each, torch.Tensor) and each.dim() else each)
