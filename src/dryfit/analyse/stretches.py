"""The stretches of a recording within which an allocation's fate says whose it is: a forward pass, a backward pass."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dryfit.recording.model import (
    BACKWARD,
    EVALUATION,
    FORWARD,
    LOSS,
    OOM,
    OPTIMIZER_STEP,
    SETUP,
    ZERO_GRAD,
    Events,
    Mark,
)

# What may come in the middle of a stretch: optimizers that step inside backward, zero_grad between model and backward.
_INSIDE = ((OPTIMIZER_STEP, BACKWARD), (ZERO_GRAD, BACKWARD), (ZERO_GRAD, FORWARD))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Events from `begin` up to, not including, `end`. `phase` is that of its first event.

    A forward pass and its loss are one stretch of phase "forward", an evaluation and what follows it one of
    "evaluation", and a backward pass is one whatever optimizers step inside it. What is still allocated when event
    `decided_at` comes outlives the stretch: for what runs before a backward pass that is its beginning. `is_cut` says
    that the stretch did not come to its own end: the memory or the recording ended.
    """

    phase: str
    begin: int
    end: int
    decided_at: int
    precedes_backward: bool = False
    is_cut: bool = False


class Part(NamedTuple):
    """One call of a model, up to `returned`, and what follows it, up to the next call or the end of the stretch.

    Where no marks tell calls apart, `returned` is `end`.
    """

    begin: int
    returned: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """All stretches and their parts in order. By event: `of_event` and `part_of_event`, places among them, and
    `has_autocast`, 0 or 1.
    """

    all: tuple[Stretch, ...]
    of_event: array[int]
    parts: tuple[Part, ...]
    part_of_event: array[int]
    has_autocast: bytearray


class _Interval(NamedTuple):
    """What lies between two marks or out-of-memory errors; `follows_a_return`: a model returned just before it."""

    begin: int
    end: int
    phase: str
    autocast: bool
    ends_in_oom: bool
    follows_a_return: bool


@dataclass(slots=True)
class _Open:
    phase: str
    intervals: list[_Interval]
    is_cut: bool = False


def stretches_of(events: Events, marks: Sequence[Mark]) -> Stretches:
    """Put the marks of a recording together to stretches."""
    has_autocast = bytearray(len(events))
    opened: list[_Open] = []
    current: dict[str, _Open] = {}
    """Those that the next interval may still belong to, by phase."""
    for interval in _intervals(events, marks):
        begin, end, phase = interval.begin, interval.end, interval.phase
        if interval.autocast:
            has_autocast[begin:end] = b"\1" * (end - begin)
        if phase == LOSS:
            phase = EVALUATION if EVALUATION in current else FORWARD
        stretch = current.get(phase)
        if stretch is None:
            stretch = _Open(phase, [])
            opened.append(stretch)
        stretch.intervals.append(interval)
        stretch.is_cut = interval.ends_in_oom
        if interval.ends_in_oom:
            current = {}
        elif not any(phase == inner and outer in current for inner, outer in _INSIDE):
            current = {phase: stretch}
    return _closed(opened, len(events), has_autocast)


def _intervals(events: Events, marks: Sequence[Mark]) -> list[_Interval]:
    count = len(events)
    cuts: dict[int, tuple[str, bool, bool]] = {0: (SETUP, False, False)}
    for mark in sorted(marks, key=lambda mark: mark.event):
        if mark.event < count:
            place = max(0, mark.event)
            has_returned = place in cuts and (cuts[place][0] == LOSS or cuts[place][2])
            cuts[place] = mark.phase, mark.autocast, has_returned
    failures = {event + 1 for event, kind in enumerate(events.kind) if kind == OOM}
    intervals: list[_Interval] = []
    phase, autocast = SETUP, False
    begins = sorted({*cuts, *(event for event in failures if event < count)})
    for begin, end in zip(begins, [*begins[1:], count], strict=True):
        phase, autocast, has_returned = cuts.get(begin, (phase, autocast, False))
        follows_a_return = has_returned or (bool(intervals) and intervals[-1].phase == LOSS)
        intervals.append(_Interval(begin, end, phase, autocast, end in failures, follows_a_return))
    return intervals


def _closed(opened: list[_Open], count: int, has_autocast: bytearray) -> Stretches:
    of_event, part_of_event = array("I", [0]) * count, array("I", [0]) * count
    stretches: list[Stretch] = []
    parts: list[Part] = []
    for stretch in opened:
        for part, intervals in _parts(stretch):
            for begin, end, *_ in intervals:
                part_of_event[begin:end] = array("I", [len(parts)]) * (end - begin)
            parts.append(part)
    next_backward = -1
    for place in range(len(opened) - 1, -1, -1):
        stretch = opened[place]
        for begin, end, *_ in stretch.intervals:
            of_event[begin:end] = array("I", [place]) * (end - begin)
        begin, end = stretch.intervals[0].begin, stretch.intervals[-1].end
        precedes = next_backward >= 0 and stretch.phase in (FORWARD, EVALUATION) and not stretch.is_cut
        stretches.append(
            Stretch(
                phase=stretch.phase,
                begin=begin,
                end=end,
                decided_at=next_backward if precedes else end,
                precedes_backward=precedes,
                is_cut=stretch.is_cut or end == count,
            )
        )
        if stretch.phase == BACKWARD:
            next_backward = begin
        elif stretch.phase in (FORWARD, OPTIMIZER_STEP):
            next_backward = -1
    stretches.reverse()
    return Stretches(
        all=tuple(stretches),
        of_event=of_event,
        parts=tuple(parts),
        part_of_event=part_of_event,
        has_autocast=has_autocast,
    )


def _parts(stretch: _Open) -> Iterator[tuple[Part, list[_Interval]]]:
    """A stretch and its intervals, cut where a model is called again after the one before has returned."""
    intervals: list[_Interval] = []
    returned = -1
    for interval in stretch.intervals:
        if interval.phase == LOSS:
            returned = interval.begin if returned < 0 else returned
        elif interval.follows_a_return and intervals:
            yield _part(intervals, returned), intervals
            intervals, returned = [], -1
        intervals.append(interval)
    yield _part(intervals, returned), intervals


def _part(intervals: list[_Interval], returned: int) -> Part:
    end = intervals[-1].end
    return Part(intervals[0].begin, returned if returned >= 0 else end, end)
