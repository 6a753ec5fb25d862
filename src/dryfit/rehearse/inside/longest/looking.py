"""Reads what a loader has to give: which samples its sampler can choose, and their sizes.

Samples are read by `dataset[i]` alone, or many at once as the loader itself reads them. A copy of a sampler is run, not
the program's own. What is read draws from the program's random generators, and they are put back afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dryfit.rehearse.inside.longest.sizes import Shapes, shapes_of

MOST_SECONDS = 10.0
_MOST_SAMPLES = 300_000
_MOST_INDEX_LISTS = 100_000
# Samples drawn at random that are all alike: the others are too.
_ENOUGH_ALIKE = 1000
_AT_ONCE = 64
# What a trainer puts around a program's batch sampler; the batches are those of the one within.
_AROUND = ("accelerate.", "lightning.", "pytorch_lightning.", "transformers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a loader can give. Without `batches` any of the samples may come together, `batch_size` of them."""

    indices: Sequence[Any]
    batch_size: int
    batches: Sequence[Sequence[Any]] = ()
    is_whole: bool = True  # whether these are all the batches of an epoch


@dataclass(slots=True, kw_only=True)
class Sizes:
    """The sizes of the samples that were read, by index, and how many could not be."""

    by_index: dict[Any, Shapes] = field(default_factory=dict)
    unreadable: int = 0
    failure: str = ""  # of the first of these


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Put the generators of torch on the host, of Python and of numpy back to where they were."""
    import torch

    numpy = sys.modules.get("numpy.random")
    of_torch, of_python = torch.get_rng_state(), random.getstate()
    of_numpy = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        if numpy is not None and of_numpy is not None:
            numpy.set_state(of_numpy)


def choice_of(loader: Any) -> Choice | None:
    """What a loader can give; None where it has no indices, or its sampler cannot be run beside the program's."""
    from torch.utils.data import BatchSampler, IterableDataset

    if isinstance(loader.dataset, IterableDataset):
        return None
    sampler = loader.batch_sampler
    if sampler is None:  # the data set gives whole batches
        free = _free_indices(loader.sampler, loader.dataset)
        if free is not None:
            return Choice(indices=free, batch_size=1)
        indices, is_whole = _drawn(loader.sampler, loader.dataset)
        return _of_batches([[index] for index in indices], is_whole=is_whole)
    inner, shared_by = sampler, 1
    while type(inner).__module__.startswith(_AROUND) and hasattr(inner, "batch_sampler"):
        shared_by *= inner.num_processes if getattr(inner, "split_batches", False) else 1
        inner = inner.batch_sampler
    if type(inner) is BatchSampler:
        free = _free_indices(inner.sampler, loader.dataset)
        if free is not None:
            return Choice(indices=free, batch_size=max(1, inner.batch_size // shared_by))
    batches, is_whole = _drawn(sampler, loader.dataset)
    return _of_batches([list(batch) for batch in batches], is_whole=is_whole)


def sizes_of(dataset: Any, indices: Sequence[Any]) -> Sizes:
    """Read samples in an order of chance until all are read or the time is up, and keep their sizes."""
    began, found, alike = time.monotonic(), Sizes(), True
    by_chance = iter(random.Random(0).sample(indices, min(len(indices), _MOST_SAMPLES)))
    while together := list(itertools.islice(by_chance, _AT_ONCE)):
        for index in _read_into(found, dataset, together, began):
            alike = alike and found.by_index[index] == next(iter(found.by_index.values()))
        if time.monotonic() - began > MOST_SECONDS or (alike and len(found.by_index) >= _ENOUGH_ALIKE):
            break
    return found


def samples_of(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """Samples as a loader reads them."""
    if getattr(dataset, "__getitems__", None):
        return list(dataset.__getitems__(list(indices)))
    return [dataset[index] for index in indices]


def _read_into(found: Sizes, dataset: Any, indices: Sequence[Any], began: float) -> Iterator[Any]:
    """Read some samples, one by one where they cannot be had at once; gives those that were read."""
    if getattr(dataset, "__getitems__", None):
        with contextlib.suppress(Exception):
            for index, sample in zip(indices, samples_of(dataset, indices), strict=True):
                found.by_index[index] = shapes_of(sample)
            yield from indices
            return
    for index in indices:
        if time.monotonic() - began > MOST_SECONDS:
            return
        try:
            found.by_index[index] = shapes_of(dataset[index])
        except Exception as error:
            found.unreadable += 1
            found.failure = found.failure or f"{type(error).__name__}: {error}"
        else:
            yield index


def _free_indices(sampler: Any, dataset: Any) -> Sequence[int] | None:
    """The samples that a sampler of torch's draws from at random; None of one that has an order, or of another."""
    from torch.utils import data

    if isinstance(sampler, data.RandomSampler):
        return range(len(sampler.data_source))
    if type(sampler) is data.SubsetRandomSampler:
        return list(sampler.indices)
    if type(sampler) is data.WeightedRandomSampler:
        return [index for index, weight in enumerate(sampler.weights.tolist()) if weight > 0]
    if type(sampler) is data.DistributedSampler and sampler.shuffle:
        return range(len(dataset))
    return None


def _drawn(sampler: Any, dataset: Any) -> tuple[list[Any], bool]:
    """What a copy of a sampler gives in an epoch, as far as the time goes, and whether that is all; nothing of one that
    cannot be copied. The data set is not copied with it."""
    began, drawn = time.monotonic(), []
    try:
        same = {id(each): each for each in (dataset, getattr(sampler, "data_source", None)) if each is not None}
        for one in itertools.islice(iter(copy.deepcopy(sampler, same)), _MOST_INDEX_LISTS):
            drawn.append(one)
            if time.monotonic() - began > MOST_SECONDS / 2:
                return drawn, False
    except Exception:
        return [], False
    return drawn, len(drawn) < _MOST_INDEX_LISTS


def _of_batches(batches: list[list[Any]], *, is_whole: bool) -> Choice | None:
    if not batches:
        return None
    try:
        indices = list(dict.fromkeys(itertools.chain.from_iterable(batches)))
    except TypeError:  # each is a batch of indices, which the data set takes at once
        return None
    return Choice(indices=indices, batch_size=max(map(len, batches)), batches=batches, is_whole=is_whole)
