"""Steps and phases of a recording without marks, a real card's snapshot, read off its stacks."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from dryfit.analyse import stack_facts as facts
from dryfit.recording.model import (
    AFTER_BACKWARD,
    AFTER_STEP,
    ALLOC,
    BACKWARD,
    CLIP,
    DATA,
    EVALUATION,
    FORWARD,
    FREE_COMPLETED,
    FREE_REQUESTED,
    LOSS,
    OPTIMIZER_STEP,
    SETUP,
    ZERO_GRAD,
    DeviceTrace,
    Events,
    Mark,
)
from dryfit.recording.stacks import EMPTY

# A forward pass that keeps no more than this part of what it allocates at any time saves nothing for a backward pass.
_KEPT_WITHOUT_GRADIENTS = 0.1
_TOLD_BY_FREES = (BACKWARD, ZERO_GRAD, OPTIMIZER_STEP)


class _Run(NamedTuple):
    """Events from `begin` on; phase "" is the program's own work between two things that are known."""

    begin: int
    phase: str


def phases_from_stacks(trace: DeviceTrace, bits_of: array[int]) -> tuple[Mark, ...]:
    """What phase the program was in, told by who allocated and freed; none where the stacks tell nothing.

    >>> from dryfit.recording.stacks import Frame, Stacks
    >>> events, stacks = Events(), Stacks()
    >>> for file, name in (("train.py", "main"), ("net.py", "forward"), ("torch/optim/adam.py", "step")):
    ...     events.kind.append(ALLOC)
    ...     events.address.append(512 * len(events))
    ...     events.stack.append(stacks.add([Frame(file, name, 1)]))
    >>> trace = DeviceTrace(device=0, events=events)
    >>> [(mark.step, mark.phase) for mark in phases_from_stacks(trace, facts.facts_of(stacks))]
    [(0, 'setup'), (1, 'forward'), (1, 'optimizer step')]

    `bits_of` are each stack's facts. Steps are counted by the optimizer's runs (or those of `zero_grad`, where it
    allocates nothing). Loss, data and the rest between are told by what comes before and after; between two forward
    passes, data is what is made where data was made before.
    """
    runs = _runs(trace.events, bits_of)
    if not any(run.phase for run in runs):
        return ()
    runs = _named(runs, trace.events)
    runs = _evaluations(runs, trace.events, bits_of)
    return _counted(runs)


def _phase_of(bits: int, empty_is_backward: bool) -> str:
    if bits & facts.ZEROES_GRADIENTS:
        return ZERO_GRAD
    if bits & facts.IN_OPTIMIZER:
        return OPTIMIZER_STEP
    if bits & facts.CLIPS_GRADIENTS:
        return CLIP
    if bits & facts.IN_ENGINE:
        return BACKWARD
    if bits & facts.IN_MODULE:
        return FORWARD
    if bits & facts.LOADS_DATA:
        return DATA
    if not bits & facts.HAS_PYTHON:
        return BACKWARD if empty_is_backward else ""
    return ""


def _runs(events: Events, bits_of: array[int]) -> list[_Run]:
    """Stretches of events of one phase, from what allocates, and from frees by what frees a lot."""
    # Where frames of C++ were recorded, autograd's engine is among them; else its threads have no frames at all.
    bare = any(bits & facts.IN_MODULE for bits in bits_of) and not any(
        bits & facts.IN_ENGINE and not bits & facts.HAS_PYTHON for bits in bits_of
    )
    phases = [_phase_of(bits, bare) for bits in bits_of]
    told_by_frees = [stack != EMPTY and phase in _TOLD_BY_FREES for stack, phase in enumerate(phases)]
    runs: list[_Run] = []
    current: str | None = None
    for event, (kind, stack) in enumerate(zip(events.kind, events.stack, strict=True)):
        if kind == ALLOC or (kind == FREE_REQUESTED and told_by_frees[stack]):
            phase = phases[stack]
            if phase != current:
                current = phase
                runs.append(_Run(event, phase))
    return runs


def _named(runs: list[_Run], events: Events) -> list[_Run]:
    """Give the program's own work a phase, by what is before and after it."""
    named: list[_Run] = []
    makes_data: set[int] = set()
    """Stacks of what was allocated where a batch may have been made, and nothing else was."""

    def begin(place: int, phase: str) -> None:
        if not named or named[-1].phase != phase:
            named.append(_Run(0 if not named else place, phase))

    for run, next_run in zip(runs, [*runs[1:], None], strict=True):
        before = named[-1].phase if named else ""
        after = next_run.phase if next_run else ""
        if run.phase:
            begin(run.begin, run.phase)
            continue
        end = next_run.begin if next_run else len(events)
        allocations = [event for event in range(run.begin, end) if events.kind[event] == ALLOC]
        if before == after == FORWARD:
            data = next((event for event in allocations if events.stack[event] in makes_data), end)
            if data > run.begin:
                begin(run.begin, LOSS)
            if data < end:
                begin(data, DATA)
            continue
        phase = _between(before, after)
        if phase in (SETUP, DATA):
            makes_data.update(events.stack[event] for event in allocations)
        begin(run.begin, phase)
    return named


def _between(before: str, after: str) -> str:
    if not before or before == SETUP:
        return SETUP
    if before == FORWARD:
        return LOSS
    if before in (BACKWARD, CLIP, AFTER_BACKWARD):
        return DATA if after == FORWARD else AFTER_BACKWARD
    return DATA if after == FORWARD else AFTER_STEP


def _evaluations(runs: list[_Run], events: Events, bits_of: array[int]) -> list[_Run]:
    """Rename the forward passes that kept nothing for a backward pass, and what looks like a loss that none follows."""
    renamed = list(runs)
    place = 0
    while place < len(runs):
        stop = place
        while stop < len(runs) and runs[stop].phase in (FORWARD, LOSS, DATA):
            stop += 1
        if stop > place and not (stop < len(runs) and runs[stop].phase == BACKWARD):
            end = runs[stop].begin if stop < len(runs) else len(events)
            phase = EVALUATION if _keeps_nothing(events, runs[place].begin, end, bits_of) else FORWARD
            for number in range(place, stop):
                if runs[number].phase != DATA:
                    renamed[number] = runs[number]._replace(phase=phase)
        place = max(stop, place + 1)
    return [
        run for run, before in zip(renamed, [None, *renamed], strict=False) if not before or run.phase != before.phase
    ]


def _keeps_nothing(events: Events, begin: int, end: int, bits_of: array[int]) -> bool:
    held: set[int] = set()
    most_held = made = 0
    for event in range(begin, end):
        kind = events.kind[event]
        # Weights that autocast turned to 16 bits are kept with gradients off, too.
        if kind == ALLOC and not bits_of[events.stack[event]] & facts.CASTS_FOR_AUTOCAST:
            held.add(events.address[event])
            made += 1
            most_held = max(most_held, len(held))
        elif kind in (FREE_REQUESTED, FREE_COMPLETED):
            held.discard(events.address[event])
    return most_held <= made * _KEPT_WITHOUT_GRADIENTS


def _counted(runs: list[_Run]) -> tuple[Mark, ...]:
    """Number the steps."""
    phases = {run.phase for run in runs}
    has_steps = bool(phases & {OPTIMIZER_STEP, ZERO_GRAD})
    marks = []
    step = 0
    had_backward = is_over = False
    for run in runs:
        if run.phase != SETUP and step == 0:
            step = 1
        elif run.phase in (DATA, FORWARD, EVALUATION, BACKWARD) and is_over:
            step, is_over, had_backward = step + 1, False, False
        if run.phase == BACKWARD:
            had_backward = True
        ends_step = run.phase == OPTIMIZER_STEP or (run.phase == ZERO_GRAD and had_backward)
        is_over = is_over or ends_step or (not has_steps and run.phase == BACKWARD)
        marks.append(Mark(run.begin, step, run.phase))
    return tuple(marks)
