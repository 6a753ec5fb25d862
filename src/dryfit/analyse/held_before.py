"""Whose memory was there before a snapshot's first event, counted by size.

Every parameter has one gradient of its size, and a fixed number of optimizer states. So where the backward pass shows
the gradients' sizes, and the blocks from before come in the same multiple of each size, the multiple says what they
are. Which of them is the parameter and which its state is not known, and makes no difference to the sums.
"""

from __future__ import annotations

from array import array
from collections import Counter

from dryfit.analyse import stack_facts as facts
from dryfit.analyse.owners import GRADIENT, PARAMETER, STATE, UNKNOWN, Evidence
from dryfit.recording.model import BACKWARD, Events
from dryfit.recording.replay import BEFORE

# How much of the bytes has to come in one and the same multiple; buffers may happen to have a parameter's size.
_AGREEING = 0.95
_MOST_COPIES = 4
"""Parameter, gradient, and two states."""


def name_held_before(owners: array[int], events: Events, evidence: Evidence) -> None:
    """Change the owners of blocks from before that are parameters, gradients or states by their sizes."""
    gradients, are_added = _gradients(owners, events, evidence)
    held: dict[int, list[int]] = {}
    for index, begin in enumerate(evidence.lifetimes.begin):
        if begin > BEFORE:
            break
        end = evidence.lifetimes.end[index]
        if end == BEFORE:  # freed, and only waits for a stream
            continue
        # An optimizer written by hand may put new tensors in the place of parameters and states.
        stays = end == evidence.event_count or evidence.facts[events.stack[end]] & facts.IN_OPTIMIZER
        if owners[index] == UNKNOWN and stays:
            held.setdefault(evidence.lifetimes.requested_bytes[index], []).append(index)
    copies = _agreed_copies(gradients, held)
    if not copies:
        return
    kinds = [PARAMETER, *([GRADIENT] if are_added and copies > 1 else []), STATE, STATE][:copies]
    for size, count in gradients.items():
        for place, index in enumerate(held.get(size, ())[: count * copies]):
            owners[index] = kinds[place // count]


def _gradients(owners: array[int], events: Events, evidence: Evidence) -> tuple[Counter[int], bool]:
    """How many gradients of each size, in bytes, a whole backward pass made; and whether it added them to older ones.

    A gradient that is added to one from before is freed by the node that adds it. So is one that is copied instead,
    but then the copy stays.
    """
    lifetimes, never = evidence.lifetimes, evidence.event_count
    stay: dict[int, Counter[int]] = {}
    added: dict[int, Counter[int]] = {}
    for begin, end, size, owner in zip(lifetimes.begin, lifetimes.end, lifetimes.requested_bytes, owners, strict=True):
        if begin == BEFORE or evidence.stretches.all[evidence.stretches.of_event[begin]].phase != BACKWARD:
            continue
        place = evidence.stretches.of_event[begin]
        if owner == GRADIENT:
            stay.setdefault(place, Counter())[size] += 1
        elif end < never and evidence.facts[events.stack[end]] & facts.ACCUMULATES_GRADIENT:
            added.setdefault(place, Counter())[size] += 1
    largest = max([*stay.values(), *added.values()], key=Counter.total, default=Counter())
    return largest, any(largest is sizes for sizes in added.values())


def _agreed_copies(gradients: Counter[int], held: dict[int, list[int]]) -> int:
    """The multiple in which blocks from before come of the gradients' sizes; 0 if there is none that most agree on."""
    bytes_by_copies: Counter[int] = Counter()
    for size, count in gradients.items():
        blocks = len(held.get(size, ()))
        bytes_by_copies[blocks // count if blocks % count == 0 else -1] += size * count
    if not bytes_by_copies:
        return 0
    copies, agreeing = bytes_by_copies.most_common(1)[0]
    is_clear = agreeing >= _AGREEING * bytes_by_copies.total()
    return copies if is_clear and 1 <= copies <= _MOST_COPIES else 0
