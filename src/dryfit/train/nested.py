"""Tensors within mappings, lists, tuples and dataclasses: what batches and models' outputs are made of."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, in their order.

    >>> [tensor.shape[0] for tensor in tensors_in({"image": torch.zeros(2, 3), "text": (torch.zeros(4), "a name")})]
    [2, 4]
    """
    return [tensor for _, tensor in tensors_with_places(value)]


def tensors_with_places(value: Any, place: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor in a value, and where it is.

    >>> [place for place, _ in tensors_with_places({"of": [torch.zeros(2), 3, torch.zeros(4)]}, "batch")]
    ["batch['of'][0]", "batch['of'][2]"]
    """
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from tensors_with_places(each, f"{place}[{name!r}]")
    elif isinstance(value, (list, tuple)):
        for at, each in enumerate(value):
            yield from tensors_with_places(each, f"{place}[{at}]")
    else:
        for name in _fields_of(value):
            yield from tensors_with_places(getattr(value, name), f"{place}.{name}")


def changed(value: Any, change: Callable[[Any], Any], *, whole: Callable[[Any], bool] = lambda _: False) -> Any:
    """The same value with `change` applied to all that is in it and holds nothing itself.

    >>> changed({"of": [torch.zeros(2), 3]}, lambda each: each * 2 if isinstance(each, int) else each)
    {'of': [tensor([0., 0.]), 6]}

    What `whole(value)` is true of is changed as it is and not looked into, such as objects that move themselves.
    """

    def inside(each: Any) -> Any:
        return changed(each, change, whole=whole)

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (dict, UserDict)):
        other = copy.copy(value)  # as what a BatchEncoding or a defaultdict knows besides is no argument of its class
        for name, each in value.items():
            other[name] = inside(each)
        return other
    if whole(value):
        return change(value)
    if isinstance(value, Mapping):  # a plain dict, as a copy of the mapping may share with it what both hold
        return {name: inside(each) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(inside, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(inside, value))
    if fields := _fields_of(value):
        return dataclasses.replace(value, **{name: inside(getattr(value, name)) for name in fields})
    return change(value)


def _fields_of(value: Any) -> list[str]:
    """What a dataclass is made of; fields that it makes of others by itself are not among them."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return []
    return [field.name for field in dataclasses.fields(value) if field.init]
