"""What lies where in PyTorch's segments at one moment: the holes between blocks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from dryfit.recording.model import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, DeviceTrace
from dryfit.recording.replay import Replay
from dryfit.recording.rounding import SMALL_SEGMENT_BYTES


class BlockPool(NamedTuple):
    """Where a request looks for a free block; those of other streams, memory pools and sizes are in other ones."""

    stream: int
    pool: int
    is_small: bool


class HeldSegment(NamedTuple):
    """A segment; of an expandable one what is mapped in one piece."""

    start: int
    end: int
    block_pool: BlockPool
    is_expandable: bool


class Hole(NamedTuple):
    """A free block. `is_whole` says that its segment holds nothing else."""

    address: int
    size: int
    block_pool: BlockPool
    is_whole: bool
    is_expandable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMap:
    """The free blocks at one moment. `is_whole_truth` says that all reserved memory is in known segments."""

    segments: tuple[HeldSegment, ...]
    holes: tuple[Hole, ...]
    is_whole_truth: bool

    def whole_segments_bytes(self) -> int:
        return sum(hole.size for hole in self.holes if hole.is_whole)

    def split_bytes(self) -> int:
        return sum(hole.size for hole in self.holes if not hole.is_whole)


def block_map(trace: DeviceTrace, replay: Replay, state: int, reserved_bytes: int) -> BlockMap:
    """The segments and holes after an event; blocks that wait for another stream take their place too."""
    segments = segments_at(trace, state)
    lifetimes = replay.lifetimes
    stop = bisect_right(lifetimes.begin, state)
    blocks = sorted(
        (address, address + size)
        for address, size, completed in zip(
            lifetimes.address[:stop], lifetimes.block_bytes[:stop], lifetimes.completed[:stop], strict=True
        )
        if completed > state
    )
    holes = []
    next_block = 0
    for segment in segments:
        free = segment.start
        while next_block < len(blocks) and blocks[next_block][0] < segment.end:
            start, end = blocks[next_block]
            next_block += 1
            if end <= segment.start:
                continue
            if start > free:
                holes.append(Hole(free, start - free, segment.block_pool, False, segment.is_expandable))
            free = max(free, end)
        if free < segment.end:
            is_whole = free == segment.start
            holes.append(Hole(free, segment.end - free, segment.block_pool, is_whole, segment.is_expandable))
    known_bytes = sum(segment.end - segment.start for segment in segments)
    return BlockMap(segments=tuple(segments), holes=tuple(holes), is_whole_truth=known_bytes == reserved_bytes)


def segments_at(trace: DeviceTrace, state: int) -> list[HeldSegment]:
    """The segments after an event: the final ones, taken back to it; without those, what the events up to it made."""
    events = trace.events
    held = _Held()
    if trace.segments is None:
        for event in range(state + 1):
            if events.kind[event] in _SEGMENT_KINDS:
                held.apply(trace, event, forward=True)
        return held.in_order()
    for segment in trace.segments:
        block_pool = BlockPool(segment.stream, segment.pool, segment.is_small)
        held.add(segment.address, segment.total_size, block_pool, segment.is_expandable)
    for event in range(len(events) - 1, state, -1):
        if events.kind[event] in _SEGMENT_KINDS:
            held.apply(trace, event, forward=False)
    return held.in_order()


_SEGMENT_KINDS = (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)


class _Held:
    """Segments that come and go: whole ones by address, mapped ranges in order of address, joined where they touch."""

    def __init__(self) -> None:
        self._segments: dict[int, HeldSegment] = {}
        self._mapped: list[HeldSegment] = []

    def apply(self, trace: DeviceTrace, event: int, *, forward: bool) -> None:
        events = trace.events
        kind, address, size = events.kind[event], events.address[event], events.size[event]
        is_expandable = kind in (SEGMENT_MAP, SEGMENT_UNMAP)
        if (kind in (SEGMENT_ALLOC, SEGMENT_MAP)) == forward:
            # Small requests make segments of 2 MiB and map so much at a time; nothing else does.
            block_pool = BlockPool(events.stream[event], events.pool[event], size == SMALL_SEGMENT_BYTES)
            self.add(address, size, block_pool, is_expandable)
        elif is_expandable:
            self._unmap(address, address + size)
        else:
            self._segments.pop(address, None)

    def add(self, address: int, size: int, block_pool: BlockPool, is_expandable: bool) -> None:
        new = HeldSegment(address, address + size, block_pool, is_expandable)
        if not is_expandable:
            self._segments[address] = new
            return
        self._unmap(new.start, new.end)
        at = bisect_left(self._mapped, new)
        # The neighbour's pool counts: a range that comes back may be of any size.
        if at < len(self._mapped) and _touch(new, self._mapped[at]):
            new = self._mapped.pop(at)._replace(start=new.start)
        if at and _touch(self._mapped[at - 1], new):
            at -= 1
            new = self._mapped.pop(at)._replace(end=new.end)
        self._mapped.insert(at, new)

    def _unmap(self, start: int, end: int) -> None:
        first = bisect_right(self._mapped, start, key=lambda segment: segment.end)
        last = bisect_left(self._mapped, end, key=lambda segment: segment.start)
        left = []
        for segment in self._mapped[first:last]:
            if segment.start < start:
                left.append(segment._replace(end=start))
            if segment.end > end:
                left.append(segment._replace(start=end))
        self._mapped[first:last] = left

    def in_order(self) -> list[HeldSegment]:
        return sorted([*self._segments.values(), *self._mapped])


def _touch(first: HeldSegment, second: HeldSegment) -> bool:
    return first.end == second.start and first.block_pool[:2] == second.block_pool[:2]
