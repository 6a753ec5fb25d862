"""Which samples make the longest batch, and which of some batches is at a percentile. Pure arithmetic on shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from dryfit.rehearse.inside.longest.sizes import Shapes, elements_of, put_together

_Index = TypeVar("_Index")
Dimension = tuple[str, int]


def percentile_of(values: Sequence[int], percentile: float) -> int:
    """The place in `values` of the smallest that at least so many percent are no larger than.

    >>> values = [30, 10, 20, 40]
    >>> values[percentile_of(values, 50)], values[percentile_of(values, 51)], values[percentile_of(values, 100)]
    (20, 30, 40)
    """
    in_order = sorted(range(len(values)), key=lambda place: values[place])
    return in_order[max(0, math.ceil(len(values) * percentile / 100) - 1)]


def varying(shapes: Sequence[Shapes]) -> dict[Dimension, list[int]]:
    """The dimensions that are not the same in all, each with its sizes: {("input_ids", 0): [61, 512]}.

    >>> varying([{"ids": (3,), "image": (3, 8)}, {"ids": (5,), "image": (3, 8)}])
    {('ids', 0): [3, 5]}

    What one of them lacks has size 0 there.
    """
    ranks: dict[str, int] = {}
    for each in shapes:
        for name, shape in each.items():
            ranks[name] = max(ranks.get(name, 0), len(shape))
    found = {}
    for name, rank in ranks.items():
        for axis in range(rank):
            sizes = [shape[axis] if axis < len(shape := each.get(name, ())) else 0 for each in shapes]
            if min(sizes) != max(sizes):
                found[name, axis] = sizes
    return found


def longest_dimension(dimensions: Mapping[Dimension, Sequence[int]]) -> Dimension:
    """Of dimensions that vary the one that is meant by «length»: the largest."""
    return max(dimensions, key=lambda each: max(dimensions[each]))


def longest_batch(sizes: Mapping[_Index, Shapes], count: int) -> list[_Index]:
    """Of samples by index, those `count` that make the longest batch.

    >>> longest_batch({7: {"ids": (3,)}, 8: {"ids": (9,)}, 9: {"ids": (5,)}}, 2)
    [8, 9]

    First the one with most elements; then those without which the batch would not reach the largest of some dimension,
    to which padding takes all of it; then the rest by their elements.
    """
    by_elements = sorted(sizes, key=lambda index: elements_of(sizes[index]), reverse=True)
    chosen = by_elements[:1]
    indices = list(sizes)
    dimensions = varying(list(sizes.values()))
    for name, axis in sorted(dimensions, key=lambda each: max(dimensions[each]), reverse=True):
        of_index = dict(zip(indices, dimensions[name, axis], strict=True))
        largest = max(of_index, key=of_index.__getitem__)
        if all(of_index[index] < of_index[largest] for index in chosen) and len(chosen) < count:
            chosen.append(largest)
    taken = set(chosen)
    return [*chosen, *(index for index in by_elements if index not in taken)][:count]


def largest_of(batches: Sequence[Sequence[_Index]], sizes: Mapping[_Index, Shapes]) -> Sequence[_Index]:
    """Of batches of samples the one with most elements once it is padded; those not all of whose sizes are known count
    by the samples that are.
    """
    return max(batches, key=lambda batch: padded_elements([sizes[index] for index in batch if index in sizes]))


def padded_elements(shapes: Sequence[Shapes]) -> int:
    """How many elements a batch of samples has where each dimension is as the largest.

    >>> padded_elements([{"ids": (3,)}, {"ids": (7,)}])
    14
    """
    return elements_of(put_together(shapes))
