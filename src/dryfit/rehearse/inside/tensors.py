"""Finds the tensors in what a program hands around, and says what a recording keeps of one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dryfit.rehearse.inside import torch_private

# A model's arguments and attributes are looked through so far; data sets in memory are deeper and longer.
_DEEPEST, _LONGEST = 4, 4096


class OnCard(NamedTuple):
    """Where a tensor's storage lies on which card, and what it is a tensor of."""

    device: int
    address: int
    dtype: str
    shape: tuple[int, ...]


def on_card(tensor: Any) -> Iterator[OnCard]:
    """Yield where a tensor lies; of one that is made of others (DTensor, a quantised weight), where those lie.

    Nothing for a tensor that lies nowhere: sparse, lazy, without a storage, or in the middle of a transform.
    """
    try:
        inner = getattr(tensor, "__tensor_flatten__", None)
        parts = [getattr(tensor, name) for name in inner()[0]] if inner is not None else []
        if inner is None and tensor.is_cuda:
            address = torch_private.storage_address(tensor)
            if address:
                yield OnCard(tensor.get_device(), address, name_of_dtype(tensor.dtype), tuple(tensor.shape))
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return
    for part in parts:
        yield from on_card(part)


@functools.cache
def name_of_dtype(dtype: Any) -> str:
    """torch's name of a type without the "torch." before it."""
    return str(dtype)[6:]


def tensors_in(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in nested lists, tuples and dicts, each with where it was found, such as "inputs.0"."""
    import torch

    if isinstance(value, torch.Tensor):
        yield "", value
    elif depth < _DEEPEST and isinstance(value, (list, tuple, Mapping)) and len(value) <= _LONGEST:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in items:
            for name, tensor in tensors_in(part, depth + 1):
                yield f"{key}.{name}" if name else str(key), tensor
