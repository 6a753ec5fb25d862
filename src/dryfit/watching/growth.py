"""What each step leaves behind, from census to census.

Memory that grows for good leaves something of *every* step: tensors that came between two censuses and are still there
at all later ones, for longer than anything was that has gone again. What a warm-up makes came at one time only; what a
step holds while it lasts, however long its batch is, is gone by the next census; a window of the last few goes on one
by one; caches fill at some steps and not at others. So none of these is growth here, whatever the sum of bytes does.
"""

from __future__ import annotations

import bisect
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


@dataclass(slots=True)
class _Run:
    """The last intervals in a row that have left something: since which step, and what such a run came to before.

    A window that keeps the last nine outputs looks like a leak for nine steps. Then its run begins later and later, and
    only a longer one tells of growth.
    """

    began: int | None = None
    ended: int = 0
    longest_let_go: int = 0

    def go_on(self, settled: Sequence[Interval], has_left: Callable[[Interval], bool], step: int) -> None:
        in_a_row = list(itertools.takewhile(has_left, reversed(settled)))
        began = in_a_row[-1].first_step if in_a_row else None
        if began is not None and self.began is not None and len(in_a_row) == len(settled):
            began = min(began, self.began)  # older ones may have been joined to the first
        if self.began is not None and (began is None or began > self.began):
            self.longest_let_go = max(self.longest_let_go, self.ended - self.began)
        self.began, self.ended = began, step

    @property
    def steps(self) -> int:
        return 0 if self.began is None else self.ended - self.began

    @property
    def tells(self) -> bool:
        return self.steps > self.longest_let_go


class Growth:
    """The intervals between the censuses of one kind of steps: those of training, or the calls of an evaluation.

    Only weak references to tensors are kept, and none to parameters' gradients: torch refuses to swap a tensor that
    has one (`torch.utils.swap_tensors`), which `module.to` may do to parameters and their gradients.
    """

    def __init__(self, mark: int) -> None:
        self.intervals: list[Interval] = []
        self._parameters: set[int] = set()
        self._next_mark, self._last_step = mark, 0
        self._tensors, self._graphs = _Run(), _Run()

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

    def compare(self, devices: set[str]) -> None:
        """See what is still there of each interval, once the nodes have been counted."""
        settled = self.intervals[1:-1]
        self._tensors.go_on(settled, lambda each: _leaves_tensors(each, devices), self._last_step)
        self._graphs.go_on(settled, _leaves_nodes, self._last_step)

    def settled(self) -> list[Interval]:
        """The intervals that tell of growth: the last few but the newest, and but the first, that of the warm-up."""
        return self.intervals[1:-1][-INTERVALS:]

    def spread(self) -> list[Interval]:
        """As many of those that still have their tensors: the oldest, the newest, and one between."""
        began = self._tensors.began
        kept = [each for each in self.intervals[1:-1] if began is not None and each.first_step >= began]
        return kept if len(kept) <= INTERVALS else [kept[0], kept[len(kept) // 2], kept[-1]]

    def interval_of(self, number: int) -> int:
        """The place of the interval in which autograd gave this number; -1 for what was before all."""
        return bisect.bisect_right([each.mark for each in self.intervals], number) - 1

    @property
    def kept_for_steps(self) -> int:
        """Of how many steps in a row something has been kept."""
        return max(self._tensors.steps, self._graphs.steps)

    def keeps_tensors(self, devices: set[str]) -> bool:
        """Whether each settled interval has left tensors of every step, of some size, on some of these devices."""
        return self._tensors.tells and _all(self.settled(), lambda each: _leaves_tensors(each, devices))

    def keeps_graphs(self) -> bool:
        """Whether each settled interval has left nodes of every step."""
        return self._graphs.tells and _all(self.settled(), _leaves_nodes)

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


def _leaves_nodes(interval: Interval) -> bool:
    return interval.nodes >= LEAST_NODES_PER_STEP * interval.steps


def _all(intervals: Sequence[Interval], is_so: Callable[[Interval], bool]) -> bool:
    return bool(intervals) and all(map(is_so, intervals))
