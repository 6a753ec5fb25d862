"""What was held before a recording's first event, as far as its events and its final segments tell."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from dryfit.recording.model import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
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

    `segments` are sizes by address, without expandable ones. `extents` are the free parts of the large pool's segments,
    ends by starts, and `placed` the blocks between them. `uncertain` has the starts of extents that may in truth begin
    later, because the block before them, a place in `blocks`, is not exact.
    """

    blocks: tuple[HeldBlock, ...] = ()
    segments: dict[int, int]
    extents: dict[int, int]
    placed: frozenset[int] = frozenset()
    uncertain: dict[int, int] = field(default_factory=dict)
    reserved_bytes: int = 0

    def corrected(self, extra_bytes: Mapping[int, int]) -> Before:
        """The state with some blocks of `uncertain`, by their extents' starts, so much larger."""
        blocks, extents = list(self.blocks), dict(self.extents)
        for start, extra in extra_bytes.items():
            number = self.uncertain[start]
            blocks[number] = blocks[number]._replace(size=blocks[number].size + extra)
            extents[start + extra] = extents.pop(start)
        return replace(self, blocks=tuple(blocks), extents=extents, uncertain={})


def state_before(trace: DeviceTrace, rounded: Callable[[int], int], max_split_bytes: int) -> Before:
    """Find what was held before the first event: what events free that none allocated, and what is still there."""
    if trace.starts_empty:
        return Before(segments={}, extents={})
    segments, mapped_bytes = _segments_before(trace)
    blocks = sorted(_blocks_before(trace, rounded))
    extents: dict[int, int] = {}
    placed: set[int] = set()
    uncertain: dict[int, int] = {}
    place = 0
    for segment, size in sorted(segments.items()):
        if size <= SMALL_SEGMENT_BYTES:
            continue
        place = bisect_left(blocks, (segment,), lo=place)
        free, stop = segment, segment + size
        while place < len(blocks) and blocks[place].address < stop:
            block = blocks[place]
            following = min(blocks[place + 1].address, stop) if place + 1 < len(blocks) else stop
            left = following - block.address - block.size
            # Blocks of the large pool, free ones too, are larger than this: what is less belongs to the block.
            if not block.is_exact and left > 0 and (left <= SMALL_POOL_BYTES or block.size >= max_split_bytes):
                block = blocks[place] = block._replace(size=block.size + left)
            elif not block.is_exact and left > 0:
                uncertain[block.address + block.size] = place
            placed.add(block.address)
            if block.address > free:
                extents[free] = block.address
            free = max(free, block.address + block.size)
            place += 1
        if free < stop:
            extents[free] = stop
    return Before(
        blocks=tuple(blocks),
        segments=segments,
        extents=extents,
        placed=frozenset(placed),
        uncertain=uncertain,
        reserved_bytes=sum(segments.values()) + mapped_bytes,
    )


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
        if block.state.startswith("active")
    }
    born, freed, completed = _frees(trace.events)
    found: list[HeldBlock] = []
    for address, event in freed.items():
        size, stream = trace.events.size[event], trace.events.stream[event]
        is_awaiting_free = trace.events.kind[event] == FREE_COMPLETED
        block_bytes, stack = rounded(size), EMPTY
        is_exact = address in final and address not in born and address not in completed
        if is_exact:
            block_bytes, stack = final[address][1].size, final[address][1].stack
        found.append(HeldBlock(address, block_bytes, size, stream, stack, is_awaiting_free, is_exact))
    for address, (stream, block) in final.items():
        if address not in born and address not in freed:
            is_awaiting_free = block.state != "active_allocated"
            found.append(
                HeldBlock(address, block.size, block.requested_size, stream, block.stack, is_awaiting_free, True)
            )
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
