"""The stretches of a recording within which an allocation's fate says whose it is: a forward pass, a backward pass."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """All stretches in order. By event: `of_event`, a place among them, and `has_autocast`, 0 or 1."""

    all: tuple[Stretch, ...]
    of_event: array[int]
    has_autocast: bytearray


@dataclass(slots=True)
class _Open:
    phase: str
    intervals: list[tuple[int, int]]
    is_cut: bool = False


def stretches_of(events: Events, marks: Sequence[Mark]) -> Stretches:
    """Put the marks of a recording together to stretches."""
    has_autocast = bytearray(len(events))
    opened: list[_Open] = []
    current: dict[str, _Open] = {}
    """Those that the next interval may still belong to, by phase."""
    for begin, end, phase, autocast, ends_in_oom in _intervals(events, marks):
        if autocast:
            has_autocast[begin:end] = b"\1" * (end - begin)
        if phase == LOSS:
            phase = EVALUATION if EVALUATION in current else FORWARD
        stretch = current.get(phase)
        if stretch is None:
            stretch = _Open(phase, [])
            opened.append(stretch)
        stretch.intervals.append((begin, end))
        stretch.is_cut = ends_in_oom
        if ends_in_oom:
            current = {}
        elif not any(phase == inner and outer in current for inner, outer in _INSIDE):
            current = {phase: stretch}
    return _closed(opened, len(events), has_autocast)


def _intervals(events: Events, marks: Sequence[Mark]) -> list[tuple[int, int, str, bool, bool]]:
    """Begin, end, phase, autocast of what lies between marks and out-of-memory errors; and whether one ended it."""
    count = len(events)
    cuts: dict[int, tuple[str, bool]] = {0: (SETUP, False)}
    for mark in sorted(marks, key=lambda mark: mark.event):
        if mark.event < count:
            cuts[max(0, mark.event)] = (mark.phase, mark.autocast)
    failures = {event + 1 for event, kind in enumerate(events.kind) if kind == OOM}
    intervals = []
    state = (SETUP, False)
    begins = sorted({*cuts, *(event for event in failures if event < count)})
    for begin, end in zip(begins, [*begins[1:], count], strict=True):
        state = cuts.get(begin, state)
        intervals.append((begin, end, *state, end in failures))
    return intervals


def _closed(opened: list[_Open], count: int, has_autocast: bytearray) -> Stretches:
    of_event = array("I", [0]) * count
    stretches: list[Stretch] = []
    next_backward = -1
    for place in range(len(opened) - 1, -1, -1):
        stretch = opened[place]
        for begin, end in stretch.intervals:
            of_event[begin:end] = array("I", [place]) * (end - begin)
        begin, end = stretch.intervals[0][0], stretch.intervals[-1][1]
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
    return Stretches(all=tuple(stretches), of_event=of_event, has_autocast=has_autocast)
