"""What each step leaves behind, from census to census.

Memory that grows for good leaves something of *every* step: tensors that came between two censuses and are still there
at all later ones. What a warm-up makes came at one time only; what a step holds while it lasts, however long its batch
is, is gone by the next census; caches fill at some steps and not at others. So none of these is growth here, whatever
the sum of bytes does.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dryfit.watching.census import Storage, storage_of

INTERVALS = 3
"""So many intervals in a row have to have left something, beside the newest, whose own are still in use."""
LEAST_BYTES_PER_STEP = 10 << 10  # 1 GiB in 100,000 steps
LEAST_NODES_PER_STEP = 1  # cuDNN's whole LSTM is one node
_MOST_INTERVALS = 24


class _Birth(weakref.ref[Any]):
    """A weak reference to a tensor that takes its entry out as the tensor goes, so that an `id` is never mistaken."""

    __slots__ = ("kept", "number", "storage")
    number: int
    kept: dict[int, _Birth]
    storage: Storage | None


def _forget(birth: _Birth) -> None:
    birth.kept.pop(birth.number, None)


@dataclass(slots=True)
class Interval:
    """The steps between two censuses, and what came in them and still lives, by `id`.

    `mark` is autograd's sequence number as the interval began, `allocated_bytes` what there was as it ended, `leaves`
    how many tensors that are no parameters then waited for gradients, `gradients` how many had graphs of their own.
    `has_backward` says whether autograd ran within it.
    """

    first_step: int
    last_step: int
    mark: int
    allocated_bytes: int
    has_backward: bool
    kept: dict[int, _Birth] = field(default_factory=dict)
    nodes: int = 0
    leaves: int = 0
    gradients: int = 0

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return self.last_step - self.first_step + 1

    def storages(self) -> set[Storage]:
        """The storages that are kept, each once."""
        return {each.storage for each in list(self.kept.values()) if each.storage is not None}


class Growth:
    """The intervals between the censuses of one kind of steps: those of training, or the calls of an evaluation.

    Only weak references to tensors are kept, and none to parameters' gradients: torch refuses to swap a tensor that
    has one (`torch.utils.swap_tensors`), which `module.to` may do to parameters and their gradients.
    """

    def __init__(self, mark: int) -> None:
        self.intervals: list[Interval] = []
        self._parameters: set[int] = set()
        self._next_mark, self._last_step = mark, 0

    @property
    def mark(self) -> int:
        """Autograd's number at the last census, or as the first interval began."""
        return self._next_mark

    def note(
        self, step: int, mark: int, tensors: Sequence[Any], allocated_bytes: int, *, has_backward: bool
    ) -> Interval:
        """Take in a census after `step`: what is new came since the last one."""
        interval = Interval(self._last_step + 1, step, self._next_mark, allocated_bytes, has_backward)
        known = self._parameters.union(*(each.kept for each in self.intervals))
        gradients = {id(each.grad) for each in tensors if each.is_leaf and each.grad is not None}
        for tensor in tensors:
            number = id(tensor)
            if number in known or number in gradients:
                continue
            if isinstance(tensor, torch.nn.Parameter) and not self.intervals:
                self._parameters.add(number)
                continue
            birth = _Birth(tensor, _forget)
            birth.number, birth.kept = number, interval.kept
            birth.storage = storage_of(tensor) if self.intervals else None  # of those from before nobody asks
            interval.kept[number] = birth
        self._next_mark, self._last_step = mark, step
        self.intervals.append(interval)
        if len(self.intervals) > _MOST_INTERVALS:
            self._join_the_first_two()
        return interval

    def settled(self) -> list[Interval]:
        """The intervals that tell of growth: the last few but the newest, and but the first, that of the warm-up."""
        return self.intervals[1:-1][-INTERVALS:]

    def keeps_tensors(self, devices: set[str]) -> bool:
        """Whether each settled interval has left tensors of every step, of some size, on some of these devices."""
        return _all(self.settled(), lambda each: _leaves_tensors(each, devices))

    def keeps_graphs(self) -> bool:
        """Whether each settled interval has left nodes of every step."""
        return _all(self.settled(), lambda each: each.nodes >= LEAST_NODES_PER_STEP * each.steps)

    def is_confirmed(self) -> bool:
        """Whether there are intervals enough to tell."""
        return len(self.settled()) >= INTERVALS

    def allocated_per_step(self) -> int:
        """What the allocator's count rose by for each step, if it rose so in each of the last intervals; else 0."""
        last = self.intervals[-INTERVALS - 1 :]
        rises = [(late.allocated_bytes - early.allocated_bytes, late.steps) for early, late in itertools.pairwise(last)]
        if len(rises) < INTERVALS or any(rise < LEAST_BYTES_PER_STEP * steps for rise, steps in rises):
            return 0
        return sum(rise for rise, _ in rises) // sum(steps for _, steps in rises)

    def leaves_rise(self) -> bool:
        """Whether more and more tensors that are no parameters wait for gradients, by one or more each step."""
        return self._rise(lambda each: each.leaves)

    def gradients_rise(self) -> bool:
        """Whether more and more gradients have graphs of their own, by one or more each step."""
        return self._rise(lambda each: each.gradients)

    def _rise(self, count: Callable[[Interval], int]) -> bool:
        last = self.intervals[-INTERVALS - 1 :]
        return len(last) > INTERVALS and all(
            count(late) - count(early) >= late.steps for early, late in itertools.pairwise(last)
        )

    def _join_the_first_two(self) -> None:
        first, second = self.intervals[:2]
        second.first_step, second.mark = first.first_step, first.mark
        for birth in list(first.kept.values()):
            birth.kept = second.kept
            second.kept[birth.number] = birth
        second.nodes += first.nodes
        del self.intervals[0]


def _leaves_tensors(interval: Interval, devices: set[str]) -> bool:
    storages = [each for each in interval.storages() if each.device in devices]
    kept_bytes = sum(each.size_bytes for each in storages)
    return len(storages) >= interval.steps and kept_bytes >= LEAST_BYTES_PER_STEP * interval.steps


def _all(intervals: Sequence[Interval], is_so: Callable[[Interval], bool]) -> bool:
    return bool(intervals) and all(map(is_so, intervals))
