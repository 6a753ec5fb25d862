"""What a recorded program asked of the allocator, in order, for another allocator to be asked the same.

Frees are told by the allocation they belong to, not by addresses, which are another allocator's own. Segments that came
and went are evidence, not requests: from them it is found where the program emptied the cache, and how much of the card
PyTorch could have.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dryfit.recording.history import Before, HeldBlock, state_before
from dryfit.recording.model import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    DeviceTrace,
    Events,
)
from dryfit.recording.rounding import (
    NO_LIMIT,
    SMALL_POOL_BYTES,
    SMALL_SEGMENT_BYTES,
    max_split_bytes,
    rounding,
)
from dryfit.rehearse.allocator_settings import AllocatorSettings
from dryfit.rehearse.inside import retrace as play
from dryfit.units import MIB
from dryfit.virtual_card.settings import AddressOrder

_GIVEN_BACK = (SEGMENT_FREE, SEGMENT_UNMAP)
_TAKEN = (SEGMENT_ALLOC, SEGMENT_MAP)
BEFORE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Columns of equal length as `inside.retrace` reads them; `event` is the number of the recorded event of each,
    `BEFORE` of those that set up what was held before the first.

    `begin_allocated_bytes` and `begin_reserved_bytes` are what the recording began with. `begins_as_recorded` says that
    this is laid out as it was; otherwise its blocks are packed, and its free memory left out. `capacity_bytes` is what
    PyTorch could have of the recorded card, as far as requests that failed, or nearly did, tell; None if none did.
    `cache_was_emptied` counts how often the program emptied the cache. `address_order` is how the recorded card handed
    out addresses, as `virtual_card.CardSettings.order` has it: up to torch 2.11 they decide between blocks that serve a
    request equally well.
    """

    kind: array[int] = field(default_factory=lambda: array("B"))
    number: array[int] = field(default_factory=lambda: array("Q"))
    stream: array[int] = field(default_factory=lambda: array("Q"))
    pool: array[int] = field(default_factory=lambda: array("H"))
    event: array[int] = field(default_factory=lambda: array("q"))
    begin_allocated_bytes: int
    begin_reserved_bytes: int
    begins_as_recorded: bool
    capacity_bytes: int | None
    cache_was_emptied: int
    address_order: AddressOrder


def requests_of(trace: DeviceTrace, recorded: AllocatorSettings, played: AllocatorSettings) -> Requests:
    """The requests of one card's recording, for an allocator with these settings.

    >>> from dryfit.recording.model import Events
    >>> plain = AllocatorSettings()
    >>> len(requests_of(DeviceTrace(device=0, events=Events()), plain, plain).kind)  # that the recording begins
    1

    What was held before the first event is laid out as it was where the settings played place blocks as those recorded
    do. Sizes are bytes.
    """
    settings = recorded.for_rounding()
    before = state_before(trace, rounding(settings), max_split_bytes(settings))
    as_recorded = recorded.place_as(played) and not recorded.expandable_segments
    pools = _Pools(trace)
    flushes, capacity = _flushes(trace, before.reserved_bytes)
    writer = _Writer()
    live = writer.set_up(trace, before, pools, as_recorded=as_recorded)
    writer.add(play.BEGIN, 0)
    writer.follow(trace.events, live, pools, flushes)
    return Requests(
        kind=writer.kind,
        number=writer.number,
        stream=writer.stream,
        pool=writer.pool,
        event=writer.event,
        begin_allocated_bytes=sum(block.size for block in before.blocks if not block.is_awaiting_free),
        begin_reserved_bytes=before.reserved_bytes,
        begins_as_recorded=as_recorded or not before.blocks,
        capacity_bytes=capacity,
        cache_was_emptied=len(flushes),
        address_order=_address_order(trace.events),
    )


class _Pools:
    """Which memory pool an event is of. Most versions of torch do not say, and then the final segments may."""

    def __init__(self, trace: DeviceTrace) -> None:
        self._events = trace.events
        self._is_told = any(trace.events.pool)
        self._since: dict[int, int] = {}
        private = [] if self._is_told else [segment for segment in trace.segments or () if segment.pool]
        private.sort()
        self._starts = [segment.address for segment in private]
        self._segments = private
        if private:
            for event, (kind, address) in enumerate(zip(trace.events.kind, trace.events.address, strict=True)):
                if kind == SEGMENT_ALLOC:
                    self._since[address] = event

    def of_event(self, event: int) -> int:
        if self._is_told:
            return self._events.pool[event]
        return self.of_address(self._events.address[event], event) if self._starts else 0

    def of_address(self, address: int, event: int) -> int:
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return 0
        segment = self._segments[place]
        is_inside = address < segment.address + segment.total_size
        return segment.pool if is_inside and event >= self._since.get(segment.address, BEFORE) else 0


class _Writer:
    """Columns of requests, as they come."""

    def __init__(self) -> None:
        self.kind, self.number, self.stream = array("B"), array("Q"), array("Q")
        self.pool, self.event = array("H"), array("q")
        self._slots = 0

    def add(self, kind: int, number: int, stream: int = 0, pool: int = 0, event: int = BEFORE) -> None:
        self.kind.append(kind)
        self.number.append(number)
        self.stream.append(stream)
        self.pool.append(pool)
        self.event.append(event)

    def alloc(self, size: int, stream: int, pool: int, event: int = BEFORE, kind: int = play.ALLOC) -> int:
        """Ask for memory; the slot it is freed by."""
        self.add(kind, size, stream, pool, event)
        self._slots += 1
        return self._slots - 1

    def set_up(self, trace: DeviceTrace, before: Before, pools: _Pools, *, as_recorded: bool) -> dict[int, int]:
        """Ask for what was held before the first event; slots by recorded address."""
        live: dict[int, int] = {}
        holes: list[int] = []
        left = sorted(before.blocks)
        if as_recorded:
            outside: list[HeldBlock] = []
            for segment, blocks in _by_segment(trace, before, pools, outside):
                holes += self._lay_out(segment, blocks, live)
            left = outside
        for block in left:
            pool = pools.of_address(block.address, BEFORE)
            size = block.size if as_recorded else block.requested_size or block.size
            live[block.address] = self._alloc_held(block, size, block.stream, pool)
        for slot in holes:
            self.add(play.FREE, slot)
        return live

    def _lay_out(self, segment: _Held, blocks: list[HeldBlock], live: dict[int, int]) -> Iterator[int]:
        """Fill a segment with its blocks and, between them, what is to be free; the slots of these.

        No other block of its kind is free then, so that the allocator has to cut all of them from this segment: from
        the front, as it does.
        """
        pieces = list(_pieces(segment, blocks))
        if segment.size > SMALL_SEGMENT_BYTES and len(pieces) > 1:
            self.add(play.FREE, self.alloc(segment.size, segment.stream, segment.pool))
        found = []
        for size, block in pieces:
            if block is None:
                found.append(self.alloc(size, segment.stream, segment.pool))
            else:
                live[block.address] = self._alloc_held(block, size, segment.stream, segment.pool)
        return iter(found)

    def _alloc_held(self, block: HeldBlock, size: int, stream: int, pool: int) -> int:
        if not block.is_awaiting_free:
            return self.alloc(size, stream, pool)
        slot = self.alloc(size, stream, pool, kind=play.ALLOC_TO_WAIT)
        self.add(play.WAIT, slot)
        return slot

    def follow(self, events: Events, live: dict[int, int], pools: _Pools, flushes: Mapping[int, list[int]]) -> None:
        """Ask for what the events did. `flushes` are where the cache was emptied, with the events of pools that went.

        A free that waits for another stream is told from others by what follows: its completion, at once or later.
        """
        made_at: dict[int, int] = {}  # places of requests by slot
        waits: set[int] = set()
        count = len(events)
        for event, (kind, address, size, stream) in enumerate(
            zip(events.kind, events.address, events.size, events.stream, strict=True)
        ):
            if kind == ALLOC:
                if address in live:  # its free was lost
                    self._free(live.pop(address), waits, event)
                if size:
                    made_at[self._slots] = len(self.kind)
                    live[address] = self.alloc(size, stream, pools.of_event(event), event)
            elif kind == FREE_COMPLETED:
                if address in live:
                    self._free(live.pop(address), waits, event)
            elif kind == FREE_REQUESTED:
                is_over = (
                    event + 1 < count
                    and events.kind[event + 1] == FREE_COMPLETED
                    and events.address[event + 1] == address
                )
                if not is_over and address in live:
                    slot = live[address]
                    waits.add(slot)
                    if slot in made_at and self.kind[made_at[slot]] == play.ALLOC:
                        self.kind[made_at[slot]] = play.ALLOC_TO_WAIT
                    self.add(play.WAIT, slot, event=event)
            elif kind == OOM:
                if size:
                    self.add(play.TRY, size, stream, pools.of_event(event), event)
            elif event in flushes:
                for pool in sorted({pools.of_event(gone) for gone in flushes[event]} - {0}):
                    self.add(play.DROP_POOL, 0, pool=pool, event=event)
                self.add(play.EMPTY_CACHE, 0, event=event)

    def _free(self, slot: int, waits: set[int], event: int) -> None:
        self.add(play.FREE_AFTER_WAIT if slot in waits else play.FREE, slot, event=event)
        waits.discard(slot)


class _Held(NamedTuple):
    """A segment from before the first event."""

    address: int
    size: int
    stream: int
    pool: int


def _by_segment(
    trace: DeviceTrace, before: Before, pools: _Pools, outside: list[HeldBlock]
) -> Iterator[tuple[_Held, list[HeldBlock]]]:
    """The segments before the first event in the order of their addresses, with their blocks; others go to
    `outside`."""
    stream_of = {segment.address: segment.stream for segment in trace.segments or ()}
    events = trace.events
    for kind, address, stream in zip(events.kind, events.address, events.stream, strict=True):
        if kind == SEGMENT_FREE:
            stream_of.setdefault(address, stream)
    blocks = sorted(before.blocks, reverse=True)
    for address, size in sorted(before.segments.items()):
        inside: list[HeldBlock] = []
        while blocks and blocks[-1].address < address + size:
            block = blocks.pop()
            (inside if block.address >= address else outside).append(block)
        stream = inside[0].stream if inside else stream_of.get(address, 0)
        yield _Held(address, size, stream, pools.of_address(address, BEFORE)), inside
    outside.extend(reversed(blocks))


def _pieces(segment: _Held, blocks: list[HeldBlock]) -> Iterator[tuple[int, HeldBlock | None]]:
    """The sizes that a segment is cut into, free ones too; what the allocator would not cut off belongs to a block."""
    is_small = segment.size <= SMALL_SEGMENT_BYTES
    least = 0 if is_small else SMALL_POOL_BYTES
    free, end = segment.address, segment.address + segment.size
    for place, block in enumerate(blocks):
        yield from _free_pieces(block.address - free, is_small=is_small)
        following = blocks[place + 1].address if place + 1 < len(blocks) else end
        size = min(block.size, following - block.address)
        if following - block.address - size <= least:
            size = following - block.address
        yield size, block
        free = block.address + size
    yield from _free_pieces(end - free, is_small=is_small)


def _free_pieces(size: int, *, is_small: bool) -> Iterator[tuple[int, None]]:
    """A hole, as requests of its own pool: those of the small one are at most 1 MiB."""
    while is_small and size > SMALL_POOL_BYTES:
        yield SMALL_POOL_BYTES, None
        size -= SMALL_POOL_BYTES
    if size > 0:
        yield size, None


def _flushes(trace: DeviceTrace, reserved_bytes: int) -> tuple[dict[int, list[int]], int | None]:
    """Where the program emptied the cache, by the first segment that went, with all of them; and what PyTorch could
    have of the card.

    The allocator itself gives segments back when the card refuses it memory, and then asks again, or fails: what it
    had then, and asked for, is more than it could have. That is told from a program's empty_cache() by what comes
    next, by its stack, and by whether the recording ever held more.
    """
    events = trace.events
    relevant = [event for event, kind in enumerate(events.kind) if kind in (*_GIVEN_BACK, *_TAKEN, ALLOC, OOM)]
    reserved = most = reserved_bytes
    groups: list[tuple[list[int], int, int]] = []  # what went, what was reserved before it, the event after it
    limits: list[int] = []
    group: list[int] = []
    before_group = reserved
    for event in relevant:
        kind, size = events.kind[event], events.size[event]
        if kind in _GIVEN_BACK:
            if not group:
                before_group = reserved
            group.append(event)
            reserved = max(0, reserved - size)
            continue
        if group:
            groups.append((group, before_group, event))
            group = []
        if kind in _TAKEN:
            reserved += size
            most = max(most, reserved)
        elif kind == OOM:
            # What was set with set_per_process_memory_fraction fails though the card has room for a segment.
            limits.append(reserved + min(events.address[event], segment_bytes(size) - 1))
    if group:
        groups.append((group, before_group, -1))
    limits = [limit for limit in limits if limit >= most]
    flushes = {}
    for gone, before, following in groups:
        limit = _limit_of_retry(events, gone, before, following)
        if limit is not None and limit >= most:
            limits.append(limit)
        else:
            flushes[gone[0]] = gone
    return flushes, min(limits, default=None)


def _limit_of_retry(events: Events, gone: list[int], before: int, following: int) -> int | None:
    """The most that the card can have given where the allocator gave back segments because of a request; None where it
    is the program that emptied the cache."""
    if following < 0 or events.kind[following] == ALLOC:
        return None
    stacks = {events.stack[gone[0]], events.stack[following]}
    if len(stacks) > 1:
        return None
    size = events.size[following]
    return before + (segment_bytes(size) if events.kind[following] == OOM else size) - 1


def _address_order(events: Events) -> AddressOrder:
    """Upwards where new segments lie above all others more often than below; else as the Linux driver does."""
    above = below = 0
    lowest = highest = None
    for kind, address in zip(events.kind, events.address, strict=True):
        if kind == SEGMENT_ALLOC:
            above += highest is not None and address > highest
            below += lowest is not None and address < lowest
            lowest = address if lowest is None else min(lowest, address)
            highest = address if highest is None else max(highest, address)
    return "up" if above > below else "linux"


def segment_bytes(request_bytes: int) -> int:
    """What PyTorch takes from the card for a request (`get_allocation_size` in c10/cuda/CUDACachingAllocator.cpp).

    >>> segment_bytes(1) // MIB, segment_bytes(3 * MIB) // MIB, segment_bytes(11 * MIB) // MIB
    (2, 20, 12)
    """
    if request_bytes <= SMALL_POOL_BYTES:
        return SMALL_SEGMENT_BYTES
    if request_bytes < 10 * MIB:
        return 20 * MIB
    return min(-(-request_bytes // (2 * MIB)) * 2 * MIB, NO_LIMIT)
