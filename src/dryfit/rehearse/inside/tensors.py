"""Finds the tensors in what a program hands around, and says what a recording keeps of one.

Nothing here runs an operator, and nothing of the program's but a tensor subclass's own account of its parts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private

# A model's arguments and attributes are looked through so far; data sets in memory are deeper and longer.
_DEEPEST, _LONGEST, _MOST = 4, 4096, 20_000
_PLAIN = (torch.Tensor, torch.nn.Parameter)

_address_of = torch_private.storage_address()


OnCard = tuple[int, int, str, tuple[int, ...]]
"""The device and address where a tensor's storage begins, and the type and shape of the tensor."""


def on_card(tensor: Any, depth: int = 0) -> list[OnCard]:
    """Where a tensor lies; of one that is made of others (DTensor, a quantised weight, a sparse one), where those lie.

    Empty for a tensor that lies nowhere: lazy, fake, on the CPU, or in the middle of a transform.
    """
    is_plain = type(tensor) in _PLAIN or depth == _DEEPEST
    try:
        flatten = None if is_plain else getattr(tensor, "__tensor_flatten__", None)
        if flatten is not None:
            return _all_on_card([getattr(tensor, name) for name in flatten()[0]], depth + 1)
        if not tensor.is_cuda:
            return []
        if tensor.layout is not torch.strided:
            return _all_on_card(torch_private.parts_of_sparse(tensor), depth + 1)
        address = _address_of(tensor)
        if address:
            # What lies somewhere has a shape in numbers.
            shape = shape_of(tensor) if tensor.is_nested else tuple(tensor.shape)
            return [(tensor.get_device(), address, name_of_dtype(tensor.dtype), shape)]
    except Exception:  # no storage, or a subclass that raises what it likes
        pass
    if is_plain:
        return []
    return _all_on_card((part for part in vars(tensor).values() if isinstance(part, torch.Tensor)), depth + 1)


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape of a tensor; () where it has none in numbers, as nested tensors and those of a symbolic trace."""
    try:
        shape = tuple(tensor.shape)
    except RuntimeError:
        return ()
    return shape if all(type(size) is int for size in shape) else ()


@functools.cache
def name_of_dtype(dtype: Any) -> str:
    """torch's name of a type without the "torch." before it."""
    return str(dtype)[6:]


def tensors_in(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested lists, tuples, dicts and dataclasses, each with where it was found ("inputs.0")."""
    left = _MOST

    def within(value: Any, name: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
        nonlocal left
        if isinstance(value, torch.Tensor):
            yield name, value
        elif depth < _DEEPEST:
            for key, part in _items(value):
                left -= 1
                if left < 0:
                    return
                if part is not None:
                    yield from within(part, f"{name}.{_named(key)}" if name else _named(key), depth + 1)

    return within(value, "", 0)


def _named(key: Any) -> str:
    """The text of a key; a tensor's would be read from the card, and an object's is the program's to make."""
    return str(key) if isinstance(key, (str, int, float)) else type(key).__name__


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """What a container holds, read past methods of the program's, which may load what they give from a disk."""
    if isinstance(value, UserDict):
        value = vars(value).get("data")
    elif dataclasses.is_dataclass(value) and not isinstance(value, (dict, list, tuple, type)):
        value = getattr(value, "__dict__", None)
    if isinstance(value, dict):
        return list(dict.items(value)) if dict.__len__(value) <= _LONGEST else ()
    if isinstance(value, list):
        return enumerate(list.copy(value)) if list.__len__(value) <= _LONGEST else ()
    if isinstance(value, tuple):
        return enumerate(tuple.__iter__(value)) if tuple.__len__(value) <= _LONGEST else ()
    return ()


def _all_on_card(parts: Iterable[Any], depth: int) -> list[OnCard]:
    return [at for part in parts for at in on_card(part, depth)]
