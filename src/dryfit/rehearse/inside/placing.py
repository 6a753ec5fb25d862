"""Puts the marks and labels of a recorder in their places among the allocator's events."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dryfit.recording.model import (
    AFTER_BACKWARD,
    AFTER_STEP,
    ALLOC,
    CLIP,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    DeviceTrace,
    Label,
    Mark,
)
from dryfit.recording.stacks import Stacks
from dryfit.rehearse.inside.labels import LabelAt, Position
from dryfit.rehearse.inside.recorder import MarkAt

_CLIPPING = "/torch/nn/utils/clip_grad.py"
_BETWEEN = (AFTER_BACKWARD, AFTER_STEP)


def place(trace: DeviceTrace, marks: Sequence[MarkAt], labels: Sequence[LabelAt], stacks: Stacks) -> DeviceTrace:
    """A device's trace with its marks and labels; those of allocations that are not in the trace are left out."""
    counted = _events_by_count(trace)
    placed_marks = [
        Mark(_event_after(counted, mark.position, trace.device), mark.step, mark.phase, mark.autocast) for mark in marks
    ]
    return dataclasses.replace(
        trace,
        marks=tuple(_without_repeats(_with_clipping(trace, placed_marks, stacks))),
        labels=tuple(_placed_labels(trace, counted, labels)),
    )


def _events_by_count(trace: DeviceTrace) -> list[int]:
    """The number of the event after the n-th of those that count, and after what comes with it."""
    counts = (ALLOC, FREE_REQUESTED, OOM)
    after = [0]
    for event, kind in enumerate(trace.events.kind):
        if kind in counts:
            after.append(event + 1)
        elif kind == FREE_COMPLETED and after[-1] == event:
            after[-1] += 1
    return after


def _event_after(counted: list[int], position: Position, device: int) -> int:
    count = position[device] if device < len(position) else 0
    return counted[min(count, len(counted) - 1)]


def _placed_labels(trace: DeviceTrace, counted: list[int], labels: Sequence[LabelAt]) -> list[Label]:
    """Each label at the event that made the allocation which was at its address when it was given."""
    found: dict[Label, None] = {}
    made_by: dict[int, int] = {}
    kinds, addresses = trace.events.kind, trace.events.address
    event = 0
    for label in labels:  # in the order they were given
        if label.device != trace.device:
            continue
        until = _event_after(counted, label.position, trace.device)
        while event < until:
            if kinds[event] == ALLOC:
                made_by[addresses[event]] = event
            elif kinds[event] == FREE_REQUESTED:
                made_by.pop(addresses[event], None)
            event += 1
        made = made_by.get(label.address)
        if made is not None:
            found[Label(made, label.owner, label.name, label.dtype, label.shape)] = None
    return sorted(found, key=lambda label: label.event)


def _with_clipping(trace: DeviceTrace, marks: list[Mark], stacks: Stacks) -> list[Mark]:
    """Marks around the events of gradient clipping, known by torch's function in their stacks."""
    clips = [_CLIPPING in frame.file for frame in stacks.all_frames]
    clipping = [False]
    for stack in range(1, len(stacks)):
        clipping.append(clips[stacks.frame_of[stack]] or clipping[stacks.caller_of[stack]])
    result: list[Mark] = []
    ends = [mark.event for mark in marks[1:]] + [len(trace.events)]
    for mark, end in zip(marks, ends, strict=False):
        result.append(mark)
        if mark.phase == AFTER_BACKWARD:
            events = [event for event in range(mark.event, end) if clipping[trace.events.stack[event]]]
            if events:
                result.append(mark._replace(event=events[0], phase=CLIP))
                result.append(mark._replace(event=events[-1] + 1))
    return result


def _without_repeats(marks: list[Mark]) -> list[Mark]:
    """Without marks that change nothing, and without stretches between two phases in which nothing happened."""
    kept: list[Mark] = []
    for i, mark in enumerate(marks):
        was_nothing = mark.phase in _BETWEEN and i + 1 < len(marks) and marks[i + 1].event == mark.event
        if not was_nothing and (not kept or kept[-1][1:] != mark[1:]):
            kept.append(mark)
    return kept
