"""The shapes of what a sample or a batch holds, by name, whatever it is made of. Nothing in it is changed or copied."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The shape of each tensor, array, image, text or list of numbers, by where it is: {"input_ids": (512,)}.
Shapes = dict[str, tuple[int, ...]]

_NUMBERS = (bool, int, float, complex)
# A tuple of more than these is a list; of fewer, the fields of a sample: (image, label).
_MOST_FIELDS = 8
_DEEPEST = 6
_MOST_LEAVES = 256


def shapes_of(value: Any) -> Shapes:
    """The shapes of all that has a size in a sample or a batch.

    >>> shapes_of({"input_ids": [5, 6, 7], "label": 1, "text": "ab"})
    {'input_ids': (3,), 'text': (2,)}

    Items of a list are put together, by the largest of each dimension: {"boxes[]": (items, ...)}. Numbers alone have no
    size.
    """
    found: Shapes = {}
    for name, shape in _leaves(value, "", _DEEPEST):
        if len(found) >= _MOST_LEAVES:
            break
        found[name] = shape
    return found


def tensors_in(value: Any) -> frozenset[tuple[int, ...]]:
    """The shapes of the tensors in what a model is called with, each with its dimensions in order of size.

    >>> import torch
    >>> tensors_in(([torch.zeros(8, 512), torch.zeros(8)], {"scale": 2}))
    frozenset({(8,), (8, 512)})
    """
    found = itertools.islice(_tensors(value, _DEEPEST), _MOST_LEAVES)
    return frozenset(tuple(sorted(shape)) for shape in (_shape(each) for each in found) if shape is not None)


def is_on_card(value: Any) -> bool:
    """Whether a batch has tensors on the card."""
    found = itertools.islice(_tensors(value, _DEEPEST), _MOST_LEAVES)
    return any(getattr(each, "is_cuda", False) for each in found)


def elements_of(shapes: Shapes) -> int:
    """How many elements all of it has together.

    >>> elements_of({"input_ids": (8, 512), "labels": (8,)})
    4104
    """
    return sum(map(math.prod, shapes.values()))


def put_together(shapes: Sequence[Shapes]) -> Shapes:
    """The largest of each dimension, as padding makes it; first how many there are.

    >>> put_together([{"ids": (3,)}, {"ids": (7,)}])
    {'ids': (2, 7)}
    """
    largest: Shapes = {}
    for each in shapes:
        for name, shape in each.items():
            before = largest.get(name, shape)
            largest[name] = (
                tuple(map(max, before, shape)) if len(before) == len(shape) else max(before, shape, key=math.prod)
            )
    return {name: (len(shapes), *shape) for name, shape in largest.items()}


def in_words(shapes: Shapes | Mapping[str, Sequence[int]]) -> str:
    """The largest of the shapes: "input_ids 8 x 512".

    >>> in_words({"labels": (8,), "input_ids": (8, 512)})
    'input_ids 8 x 512'
    """
    name = max(shapes, key=lambda each: math.prod(shapes[each]))
    return f"{name} {' x '.join(map(str, shapes[name]))}".strip()


def _leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    if value is None or isinstance(value, _NUMBERS) or depth == 0:
        return
    if isinstance(value, (str, bytes)):
        yield name, (len(value),)
    elif isinstance(value, Mapping):
        for key in list(value):
            yield from _leaves(value[key], _below(name, str(key)), depth - 1)
    elif isinstance(value, tuple) and (hasattr(value, "_fields") or len(value) <= _MOST_FIELDS):
        fields = getattr(value, "_fields", range(len(value)))
        for field, item in zip(fields, value, strict=False):
            yield from _leaves(item, _below(name, str(field)), depth - 1)
    elif isinstance(value, (list, tuple)):
        yield from _of_list(value, name, depth)
    elif (shape := _shape(value)) is not None:
        yield name, shape
    elif hasattr(value, "__dict__"):
        for key, item in list(vars(value).items()):
            yield from _leaves(item, _below(name, key.strip("_")), depth - 1)


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    if value is None or isinstance(value, (*_NUMBERS, str, bytes)) or depth == 0:
        return
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value[:_MOST_LEAVES]:
            yield from _tensors(item, depth - 1)
    elif hasattr(value, "shape"):
        yield value
    elif hasattr(value, "__dict__"):
        yield from _tensors(list(vars(value).values()), depth - 1)


def _of_list(value: Sequence[Any], name: str, depth: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    if not value or isinstance(value[0], _NUMBERS):
        yield name, (len(value),)
        return
    items = [dict(_leaves(item, "", depth - 1)) for item in value]
    for key, shape in put_together(items).items():
        yield _below(f"{name}[]", key), shape


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of a tensor or an array; of an image of PIL's its height and width. None of anything else."""
    with contextlib.suppress(Exception):  # a jagged tensor has dimensions without a number
        shape = value.shape
        return tuple(int(each) for each in shape)
    with contextlib.suppress(Exception):
        return (int(value.numel()),)
    with contextlib.suppress(Exception):
        width, height = value.size
        return int(height), int(width)
    return None


def _below(name: str, key: str) -> str:
    return ".".join(each for each in (name, key) if each)
