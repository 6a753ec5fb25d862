"""What lives at a moment: all tensors that Python can reach, and a few other objects that tell mistakes."""

from __future__ import annotations

import gc
import itertools
from dataclasses import dataclass
from typing import Any

import torch

_NOTHING, _TENSOR, _SCHEDULER, _AUTOCAST, _ERROR = range(5)
# Tensors that stand for others while a program is traced; they have no memory.
_NOT_REAL = ("torch._subclasses.", "torch._functorch.")


class _Wanted(dict[type, int]):
    """What an object of a type is to the census; each type is asked once."""

    def __missing__(self, kind: type) -> int:
        self[kind] = wanted = self._ask(kind)
        return wanted

    @staticmethod
    def _ask(kind: type) -> int:
        # Not `isinstance`, which asks the object for its class, and objects may do anything when asked.
        if issubclass(kind, torch.Tensor):
            return _NOTHING if kind.__module__.startswith(_NOT_REAL) else _TENSOR
        if issubclass(kind, torch.optim.lr_scheduler.LRScheduler):
            return _SCHEDULER
        if issubclass(kind, BaseException):
            return _ERROR
        return _AUTOCAST if issubclass(kind, torch.autocast) else _NOTHING


_wanted = _Wanted()


@dataclass(slots=True)
class Census:
    """The objects themselves: whoever takes a census lets go of it before the program goes on."""

    tensors: list[Any]
    schedulers: list[Any]
    autocasts: list[Any]
    errors: list[BaseException]


def take_census() -> Census:
    """Find all objects of the kinds that are looked for.

    It costs what the collector needs to list all objects: about 0.3 s for a million. Tensors that only autograd's C++
    side holds are not among them.
    """
    kinds = _wanted.__getitem__
    objects = gc.get_objects()
    found: list[Any] = list(itertools.compress(objects, map(kinds, map(type, objects))))
    of = [kinds(type(each)) for each in found]
    return Census(
        tensors=[each for each, kind in zip(found, of, strict=True) if kind == _TENSOR and _tells_its_graph(each)],
        schedulers=[each for each, kind in zip(found, of, strict=True) if kind == _SCHEDULER],
        autocasts=[each for each, kind in zip(found, of, strict=True) if kind == _AUTOCAST],
        errors=[each for each, kind in zip(found, of, strict=True) if kind == _ERROR],
    )


def _tells_its_graph(tensor: Any) -> bool:
    """Whether autograd says what a tensor comes from: not of a view made without it, whose base has been changed since.

    FSDP's first version has such views, of its flat parameters.
    """
    try:
        return tensor.is_leaf is not None
    except RuntimeError:
        return False


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a tensor's bytes lie, and how many its whole storage has."""

    device: str
    address: int
    size_bytes: int


def storage_of(tensor: Any) -> Storage | None:
    """A tensor's storage; None of one that has none, such as a sparse one, or one on the meta device."""
    try:
        if tensor.device.type == "meta":
            return None
        storage = tensor.untyped_storage()
        return Storage(str(tensor.device), storage.data_ptr(), storage.nbytes())
    except Exception:  # a subclass may raise what it likes
        return None
