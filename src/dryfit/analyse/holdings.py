"""Who holds the allocated bytes at given moments: one sweep over all allocations, with running totals."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import OwnerBytes, OwnerChange
from dryfit.analyse.timeline import BEFORE_EVENTS, Timeline
from dryfit.recording.model import MADE_OF_A_BATCH, OWNERS, REMAINDER, TEMPORARY, UNKNOWN, WORKSPACE
from dryfit.recording.replay import Lifetimes
from dryfit.recording.rounding import round_up

# An allocation's class: its owner's place in OWNERS, and these two flags.
_GROWS, _LOGITS, _FLAGS = 1, 2, 3
_REMAINDER = OWNERS.index(REMAINDER)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Beside each allocation of a replay: its class, what counts for its owner, and the remainder of its block.

    `largest_request_bytes` is rounded as the allocator rounds it.
    """

    classes: bytearray
    owned_bytes: array[int]
    left_bytes: array[int]
    largest_request_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What is allocated at one moment, by owner; the owners sum to it."""

    owners: tuple[OwnerBytes, ...]
    requested_bytes: int
    grows_with_batch_bytes: int
    logits_and_loss_bytes: int

    @property
    def allocated_bytes(self) -> int:
        return sum(each.size_bytes for each in self.owners)

    def of(self, owner: str) -> int:
        return sum(each.size_bytes for each in self.owners if each.owner == owner)


def ledger_of(lifetimes: Lifetimes, attribution: Attribution, timeline: Timeline) -> Ledger:
    """What every allocation counts for, and whether it grows with the batch."""
    owned = owned_bytes(lifetimes.requested_bytes, lifetimes.block_bytes)
    left = array("Q", [block - own for own, block in zip(owned, lifetimes.block_bytes, strict=True)])
    classes = bytearray(
        owner << 2 | logits << 1 | grows
        for owner, logits, grows in zip(
            attribution.owner, attribution.is_logits_or_loss, _grows(lifetimes, attribution, timeline), strict=True
        )
    )
    largest_bytes = max(lifetimes.requested_bytes, default=0)
    return Ledger(classes, owned, left, round_up(largest_bytes) if largest_bytes else 0)


def owned_bytes(requested_bytes: Iterable[int], block_bytes: Iterable[int]) -> array[int]:
    """What of each block is its owner's: what was asked for, in whole blocks of 512 bytes; the rest is its remainder.

    A snapshot of an old torch does not say what was asked for (0); then the whole block is the owner's.

    >>> owned_bytes([513, 0], [1 << 20, 512]).tolist()
    [1024, 512]
    """
    sizes = zip(requested_bytes, block_bytes, strict=True)
    return array("Q", [min(round_up(asked), block) if asked else block for asked, block in sizes])


def _grows(lifetimes: Lifetimes, attribution: Attribution, timeline: Timeline) -> bytearray:
    """By allocation: 1 where a smaller batch may make it smaller.

    A workspace that outlives its step, as cuBLAS's does, is of a fixed size; one of a call, as cuDNN's, is not.
    """
    by_phase = [owner in (TEMPORARY, WORKSPACE, UNKNOWN) for owner in OWNERS]
    always = [owner in MADE_OF_A_BATCH and owner != TEMPORARY for owner in OWNERS]
    workspace = OWNERS.index(WORKSPACE)
    worked_on_a_batch = timeline.is_of_a_batch()
    end = lifetimes.end
    flags = bytearray(len(lifetimes))
    for index, (owner, begin) in enumerate(zip(attribution.owner, lifetimes.begin, strict=True)):
        if always[owner]:
            flags[index] = 1
        elif by_phase[owner] and begin != BEFORE_EVENTS and worked_on_a_batch[begin]:
            flags[index] = owner != workspace or (
                end[index] < timeline.event_count and timeline.at(begin)[0] == timeline.at(end[index])[0]
            )
    return flags


def holdings_at(states: Iterable[int], lifetimes: Lifetimes, ledger: Ledger) -> dict[int, Holdings]:
    """The holdings after each of these events, `BEFORE_EVENTS` among them or not."""
    classes, owned, left, requested = ledger.classes, ledger.owned_bytes, ledger.left_bytes, lifetimes.requested_bytes
    size_bytes, blocks = [0] * (len(OWNERS) << 2), [0] * (len(OWNERS) << 2)
    left_class = _REMAINDER << 2
    by_end = sorted(range(len(lifetimes)), key=lifetimes.end.__getitem__)
    ends = array("q", [lifetimes.end[index] for index in by_end])
    asked_bytes = made = freed = 0
    found = {}
    for state in sorted(set(states)):
        stop = bisect_right(lifetimes.begin, state)
        for place, own, rest, asked in zip(
            classes[made:stop], owned[made:stop], left[made:stop], requested[made:stop], strict=True
        ):
            size_bytes[place] += own
            blocks[place] += 1
            asked_bytes += asked
            if rest:
                size_bytes[left_class | place & _FLAGS] += rest
                blocks[left_class | place & _FLAGS] += 1
        made, stop = stop, bisect_right(ends, state)
        for index in by_end[freed:stop]:
            place, rest = classes[index], left[index]
            size_bytes[place] -= owned[index]
            blocks[place] -= 1
            asked_bytes -= requested[index]
            if rest:
                size_bytes[left_class | place & _FLAGS] -= rest
                blocks[left_class | place & _FLAGS] -= 1
        freed = stop
        found[state] = _summed_up(size_bytes, blocks, asked_bytes)
    return found


def _summed_up(size_bytes: Sequence[int], blocks: Sequence[int], asked_bytes: int) -> Holdings:
    owners = []
    for place, owner in enumerate(OWNERS):
        of_owner = slice(place << 2, (place << 2) + 4)
        count = sum(blocks[of_owner])
        if count:
            owners.append(OwnerBytes(owner=owner, size_bytes=sum(size_bytes[of_owner]), blocks=count))
    return Holdings(
        owners=tuple(owners),
        requested_bytes=asked_bytes,
        # Every second class grows; of every four, the last two are logits and loss.
        grows_with_batch_bytes=sum(size_bytes[_GROWS :: _GROWS + 1]),
        logits_and_loss_bytes=sum(size_bytes[_LOGITS :: _FLAGS + 1]) + sum(size_bytes[_LOGITS | _GROWS :: _FLAGS + 1]),
    )


def alive_at(state: int, lifetimes: Lifetimes) -> list[int]:
    """The allocations that are there after an event, in the order they were made."""
    stop = bisect_right(lifetimes.begin, state)
    return [index for index, end in enumerate(lifetimes.end[:stop]) if end > state]


def changes(before: Iterable[OwnerBytes], after: Iterable[OwnerBytes]) -> tuple[OwnerChange, ...]:
    """Every owner's bytes in two states, of those that have any."""
    first = {each.owner: each.size_bytes for each in before}
    second = {each.owner: each.size_bytes for each in after}
    return tuple(
        OwnerChange(owner=owner, before_bytes=first.get(owner, 0), after_bytes=second.get(owner, 0))
        for owner in OWNERS
        if owner in first or owner in second
    )
