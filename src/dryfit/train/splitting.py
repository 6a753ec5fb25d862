"""Cutting a batch into micro-batches, whatever it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dryfit.errors import UsageError

Change = Callable[[torch.Tensor], torch.Tensor]


def rows_of(batch: Any) -> int:
    """How many samples a batch has: the length of the first dimension, which all its tensors have in common.

    >>> rows_of({"inputs": torch.zeros(8, 3), "targets": torch.zeros(8), "temperature": torch.tensor(0.1)})
    8

    Raises:
        UsageError: there is no tensor with a dimension, or their lengths differ.
    """
    found = [(where, tensor.shape[0]) for where, tensor in _tensors(batch, "batch") if tensor.dim()]
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
    """Cut a batch into micro-batches of so many rows; the last one may have fewer.

    >>> [piece[0].tolist() for piece in split((torch.arange(5), "a name"), 2)]
    [[0, 1], [2, 3], [4]]

    Tensors without a dimension, and what is no tensor, are in every piece.
    """
    return [
        change_tensors(batch, lambda tensor, at=at: tensor[at : at + micro_batch])  # type: ignore[misc]
        for at in range(0, rows_of(batch), micro_batch)
    ]


def change_tensors(batch: Any, change: Change) -> Any:
    """The same batch with each tensor that has a dimension changed."""
    if isinstance(batch, torch.Tensor):
        return change(batch) if batch.dim() else batch
    if isinstance(batch, Mapping):
        changed = {name: change_tensors(value, change) for name, value in batch.items()}
        return changed if type(batch) is dict else type(batch)(changed)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(change_tensors(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(change_tensors(value, change) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch) if field.init]
        return dataclasses.replace(batch, **{name: change_tensors(getattr(batch, name), change) for name in names})
    return batch


def _tensors(batch: Any, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(batch, torch.Tensor):
        yield where, batch
    elif isinstance(batch, Mapping):
        for name, value in batch.items():
            yield from _tensors(value, f"{where}[{name!r}]")
    elif isinstance(batch, (list, tuple)):
        for at, value in enumerate(batch):
            yield from _tensors(value, f"{where}[{at}]")
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from _tensors(getattr(batch, field.name), f"{where}.{field.name}")
