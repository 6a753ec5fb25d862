"""Which allocations are the model's logits and what the loss computes from them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from dryfit.analyse import stack_facts as facts
from dryfit.analyse.owners import Evidence
from dryfit.recording.model import BACKWARD, EVALUATION, FORWARD, LOSS, Mark

# Logits are made shortly before the loss; their copies in another precision have half or twice the bytes, and
# a shift by one position makes them a little smaller.
_LOOKED_BACK = 64
_RATIOS = (0.5, 1.0, 2.0)
_TOLERANCE = 1 / 16
_SMALLEST_BYTES = 1024


def logits_and_loss(marks: Sequence[Mark], module_of: array[int], evidence: Evidence) -> bytearray:
    """By allocation: 1 where it is the logits, or made by the loss; not yet of what autograd's engine makes."""
    lifetimes, stretches = evidence.lifetimes, evidence.stretches
    is_loss_phase = _is_loss_phase(marks, evidence)
    computes_loss = bytearray(1 if bits & facts.COMPUTES_LOSS else 0 for bits in evidence.facts)
    computes = [stretch.phase in (FORWARD, EVALUATION) for stretch in stretches.all]
    works_on_batch = [stretch.phase in (FORWARD, EVALUATION, BACKWARD) for stretch in stretches.all]
    flags = bytearray(len(lifetimes))
    first_of_part: dict[int, int] = {}
    largest_of_part: dict[int, int] = {}
    for index, (begin, stack, size) in enumerate(
        zip(lifetimes.begin, lifetimes.stack, lifetimes.requested_bytes, strict=True)
    ):
        if begin >= 0 and (computes_loss[stack] or is_loss_phase[begin]):
            place = stretches.of_event[begin]
            if not works_on_batch[place]:
                continue
            flags[index] = 1
            if computes[place]:
                part = stretches.part_of_event[begin]
                first_of_part.setdefault(part, index)
                largest_of_part[part] = max(size, largest_of_part.get(part, 0))
    for part, first in first_of_part.items():
        if largest_of_part[part] >= _SMALLEST_BYTES:
            _flag_logits(flags, first, largest_of_part[part], stretches.parts[part].begin, module_of, evidence)
    return flags


def _flag_logits(
    flags: bytearray, first: int, loss_bytes: int, part_begin: int, module_of: array[int], evidence: Evidence
) -> None:
    """Flag what the last module before the loss allocated in the size of the loss's tensors, and what came after it.

    Compiled code has no modules: there the last of that size is the logits, and copies of it have exactly its elements.
    """
    lifetimes = evidence.lifetimes
    source: int | None = None
    logits_bytes = 0
    for index in range(first - 1, max(first - _LOOKED_BACK, 0) - 1, -1):
        if lifetimes.begin[index] < part_begin:
            break
        size = lifetimes.requested_bytes[index]
        if not any(abs(size - ratio * loss_bytes) <= _TOLERANCE * size for ratio in _RATIOS):
            continue
        if source is None:
            source, logits_bytes = module_of[index], size
        if module_of[index] != source:
            break
        is_compiled = evidence.facts[lifetimes.stack[index]] & facts.IS_COMPILED
        if is_compiled and not any(size == ratio * logits_bytes for ratio in _RATIOS):
            continue
        flags[index] = 1


def _is_loss_phase(marks: Sequence[Mark], evidence: Evidence) -> bytearray:
    """By event: 1 where the loss is computed: after the last call of a model before a backward pass.

    What the program makes between an encoder and its decoder is no loss; nor is what no backward pass follows.
    """
    event_count, stretches = evidence.event_count, evidence.stretches
    flags = bytearray(event_count)
    ordered = sorted(marks, key=lambda mark: mark.event)
    for mark, after in zip(ordered, [*ordered[1:], None], strict=False):
        if mark.phase == LOSS and mark.event < event_count:
            end = event_count if after is None else min(after.event, event_count)
            stretch = stretches.all[stretches.of_event[mark.event]]
            part = stretches.parts[stretches.part_of_event[mark.event]]
            if stretch.precedes_backward and part.end == stretch.end:
                flags[mark.event : end] = b"\1" * max(0, end - mark.event)
    return flags
