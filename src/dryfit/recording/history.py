"""What was held before a recording's first event, as far as its events and its final segments tell."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from dryfit.recording.extents import Extents
from dryfit.recording.model import (
    ALLOC,
    ALLOCATED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    INACTIVE,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    DeviceTrace,
    Events,
)
from dryfit.recording.rounding import SMALL_POOL_BYTES, SMALL_SEGMENT_BYTES
from dryfit.recording.stacks import EMPTY


class HeldBlock(NamedTuple):
    """A block from before the first event. One that awaits its free is active, but no longer allocated.

    `is_exact` says that `size` is the recorded one; otherwise it is the request, rounded, and may be up to 1 MiB more.
    """

    address: int
    size: int
    requested_size: int
    stream: int
    stack: int
    is_awaiting_free: bool
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The allocator's state before the first event, sizes in bytes.

    `segments` are sizes by address, without expandable ones. `uncertain` are blocks that are not exact, as places in
    `blocks` by their ends: the free extents there may in truth begin later.
    """

    blocks: tuple[HeldBlock, ...] = ()
    segments: dict[int, int] = field(default_factory=dict)
    uncertain: dict[int, int] = field(default_factory=dict)
    reserved_bytes: int = 0

    def extents(self, max_split_bytes: int) -> Extents:
        """The free memory of the large pool."""
        extents = Extents(max_split_bytes=max_split_bytes)
        for (segment, size), places in _by_segment(self.blocks, self.segments):
            extents.add_segment(
                segment, size, {self.blocks[place].address: self.blocks[place].size for place in places}
            )
        return extents

    def enlarged(self, extra_bytes: Mapping[int, int]) -> Before:
        """The state with blocks, by their places, so much larger; nothing is uncertain any more."""
        blocks = list(self.blocks)
        for place, extra in extra_bytes.items():
            blocks[place] = blocks[place]._replace(size=blocks[place].size + extra)
        return replace(self, blocks=tuple(blocks), uncertain={})


def state_before(trace: DeviceTrace, rounded: Callable[[int], int], max_split_bytes: int) -> Before:
    """Find what was held before the first event: what events free that none allocated, and what is still there."""
    if trace.starts_empty:
        return Before()
    segments, mapped_bytes = _segments_before(trace)
    blocks = sorted(_blocks_before(trace, rounded))
    uncertain: dict[int, int] = {}
    for (segment, size), places in _by_segment(blocks, segments):
        for place in places:
            block = blocks[place]
            following = blocks[place + 1].address if place + 1 < places.stop else segment + size
            left = following - block.address - block.size
            if block.is_exact or left <= 0:
                continue
            # Blocks of the large pool, free ones too, are larger than this: what is less belongs to the block.
            if left <= SMALL_POOL_BYTES or block.size >= max_split_bytes:
                blocks[place] = block._replace(size=block.size + left)
            else:
                uncertain[block.address + block.size] = place
    return Before(
        blocks=tuple(blocks),
        segments=segments,
        uncertain=uncertain,
        reserved_bytes=sum(segments.values()) + mapped_bytes,
    )


def _by_segment(blocks: Sequence[HeldBlock], segments: Mapping[int, int]) -> Iterator[tuple[tuple[int, int], range]]:
    """The large pool's segments, address and size, with the places of their blocks; blocks are in order of address."""
    addresses, place = [block.address for block in blocks], 0
    for segment, size in sorted(segments.items()):
        if size > SMALL_SEGMENT_BYTES:
            first = bisect_left(addresses, segment, lo=place)
            place = bisect_left(addresses, segment + size, lo=first)
            yield (segment, size), range(first, place)


def _segments_before(trace: DeviceTrace) -> tuple[dict[int, int], int]:
    """Sizes of segments by address, and how much of expandable segments was mapped."""
    events = trace.events
    before: dict[int, int] = {}
    made: set[int] = set()
    mapped_changes = []
    for kind, address, size in zip(events.kind, events.address, events.size, strict=True):
        if kind < SEGMENT_ALLOC:
            continue
        if kind == SEGMENT_ALLOC:
            made.add(address)
        elif kind == SEGMENT_FREE:
            if address not in made:
                before.setdefault(address, size)
            made.discard(address)
        elif kind == SEGMENT_MAP:
            mapped_changes.append(size)
        elif kind == SEGMENT_UNMAP:
            mapped_changes.append(-size)
    still_mapped = 0
    for segment in trace.segments or ():
        if segment.is_expandable:
            still_mapped += segment.total_size
        elif segment.address not in made:
            before.setdefault(segment.address, segment.total_size)
    mapped = still_mapped - sum(mapped_changes) if trace.segments is not None else 0
    return before, max(mapped, -min(accumulate(mapped_changes), default=0))


def _blocks_before(trace: DeviceTrace, rounded: Callable[[int], int]) -> list[HeldBlock]:
    final = {
        block.address: (segment.stream, block)
        for segment in trace.segments or ()
        for block in segment.blocks
        if block.state != INACTIVE
    }
    born, freed, completed = _frees(trace.events)
    found: list[HeldBlock] = []
    for address, event in freed.items():
        size, stream = trace.events.size[event], trace.events.stream[event]
        is_awaiting_free = trace.events.kind[event] == FREE_COMPLETED
        block_bytes, stack = rounded(size), EMPTY
        is_exact = address in final and address not in born and address not in completed
        is_exact = is_exact and final[address][1].size >= size  # in a broken file it may be another block
        if is_exact:
            block_bytes, stack = final[address][1].size, final[address][1].stack
        found.append(HeldBlock(address, block_bytes, size, stream, stack, is_awaiting_free, is_exact))
    for address, (stream, block) in final.items():
        if address not in born and address not in freed:
            is_awaiting_free = block.state != ALLOCATED
            requested_bytes = min(block.requested_size, block.size)  # in a broken file it may be more
            found.append(HeldBlock(address, block.size, requested_bytes, stream, block.stack, is_awaiting_free, True))
    return found


def _frees(events: Events) -> tuple[set[int], dict[int, int], set[int]]:
    """Blocks that events made and did not free; those freed that none made, by first event; of these the completed."""
    born: set[int] = set()
    freed: dict[int, int] = {}
    completed: set[int] = set()
    ever_born: set[int] = set()
    for event, (kind, address) in enumerate(zip(events.kind, events.address, strict=True)):
        if kind == ALLOC:
            born.add(address)
            ever_born.add(address)
        elif kind == FREE_REQUESTED:
            if address not in ever_born and address not in freed:
                freed[address] = event
        elif kind == FREE_COMPLETED:
            born.discard(address)
            if address not in ever_born:
                freed.setdefault(address, event)
                completed.add(address)
    return born, freed, completed
