"""What the stacks of a real card's snapshot tell of owners beyond the rules that need no labels."""

from __future__ import annotations

from array import array

from dryfit.analyse import stack_facts as facts
from dryfit.analyse.held_before import name_held_before
from dryfit.analyse.owners import (
    ACTIVATION,
    AUTOCAST_COPY,
    BUFFER,
    GRADIENT,
    INPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
    UNKNOWN,
    WORKSPACE,
    Evidence,
)
from dryfit.recording import model
from dryfit.recording.model import Events, Label
from dryfit.recording.replay import BEFORE

HELD_BEFORE = "held since before the recording began"

# cuBLAS's workspace as PyTorch sets it: 4096 KiB x 2 + 16 KiB x 8, and 32 MiB on Hopper and later
# (`getChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp).
_CUBLAS_WORKSPACES_BYTES = (8_519_680, 33_554_432)
_LIBRARIES = 2  # cuBLAS and cuBLASLt
_MAY_BE_KEPT = (ACTIVATION, TEMPORARY, UNKNOWN, BUFFER, INPUT)


def refine_by_stacks(owners: array[int], events: Events, evidence: Evidence) -> dict[int, Label]:
    """Change owners where the stacks of what allocated, and of what freed, say more; the labels returned, by
    allocation, name those that were there before the recording and are nobody's we know.

    A gradient is what `zero_grad` frees; a parameter what a constructor or a loader made before the first pass and
    nobody but an optimizer freed, a state if it was an optimizer's constructor; a workspace what has the size of
    cuBLAS's and is never freed; a copy for autocast what its cast made in half the size of a parameter.
    """
    lifetimes, never = evidence.lifetimes, evidence.event_count
    bits_of = evidence.facts
    workspaces = _workspaces(evidence)
    for index, (begin, end, stack) in enumerate(zip(lifetimes.begin, lifetimes.end, lifetimes.stack, strict=True)):
        bits = bits_of[stack]
        freed_by = bits_of[events.stack[end]] if BEFORE < end < never else 0
        if begin == BEFORE:
            owners[index] = _of_before(bits, freed_by, index in workspaces)
        elif freed_by & facts.ZEROES_GRADIENTS:
            owners[index] = GRADIENT
        elif (end == never or freed_by & facts.IN_OPTIMIZER) and owners[index] in _MAY_BE_KEPT:
            stretch = evidence.stretches.all[evidence.stretches.of_event[begin]]
            if stretch.phase == model.SETUP and bits & (facts.IN_CONSTRUCTOR | facts.MAKES_PARAMETERS):
                owners[index] = STATE if bits & facts.MAKES_STATE else PARAMETER
            elif index in workspaces and stretch.phase != model.SETUP:
                owners[index] = WORKSPACE
    name_held_before(owners, events, evidence)
    _mark_casts_of_weights(owners, evidence)
    return {
        index: Label(BEFORE, model.UNKNOWN, HELD_BEFORE)
        for index, begin in enumerate(lifetimes.begin)
        if begin == BEFORE and owners[index] == UNKNOWN
    }


def _workspaces(evidence: Evidence) -> set[int]:
    """What has the size of cuBLAS's workspace and is never freed: at most one for each of its libraries and stream."""
    lifetimes = evidence.lifetimes
    found: dict[int, list[int]] = {}
    for index, (size, stream, end) in enumerate(
        zip(lifetimes.requested_bytes, lifetimes.stream, lifetimes.end, strict=True)
    ):
        if size in _CUBLAS_WORKSPACES_BYTES and end == evidence.event_count:
            found.setdefault(stream, []).append(index)
    return {index for indexes in found.values() if len(indexes) <= _LIBRARIES * 2 for index in indexes}


def _of_before(bits: int, freed_by: int, is_workspace: bool) -> int:
    if freed_by & facts.ZEROES_GRADIENTS:
        return GRADIENT
    if bits & facts.IS_WORKSPACE or is_workspace:
        return WORKSPACE
    if bits & facts.IN_OPTIMIZER:
        return STATE
    return PARAMETER if bits & facts.MAKES_PARAMETERS else UNKNOWN


def _mark_casts_of_weights(owners: array[int], evidence: Evidence) -> None:
    """A cast of a weight is half as large as something that was there all the time, a cast of activations is not."""
    lifetimes, never = evidence.lifetimes, evidence.event_count
    kept_sizes = {
        size // 2
        for size, begin, end, owner in zip(
            lifetimes.requested_bytes, lifetimes.begin, lifetimes.end, owners, strict=True
        )
        if owner == PARAMETER or (begin == BEFORE and end == never)
    }
    for index, (stack, size) in enumerate(zip(lifetimes.stack, lifetimes.requested_bytes, strict=True)):
        if evidence.facts[stack] & facts.CASTS_FOR_AUTOCAST and size in kept_sizes:
            owners[index] = AUTOCAST_COPY
