"""Replays a recording's events: every allocation's block and lifetime, and the allocator's figures after each event.

An event states the size that was asked for, not that of the block it got: `rounding` and `extents` have the rules.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dryfit.errors import UsageError
from dryfit.recording.extents import Extents
from dryfit.recording.history import Before, state_before
from dryfit.recording.model import (
    ALLOC,
    ALLOCATED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    DeviceTrace,
)
from dryfit.recording.rounding import SMALL_POOL_BYTES, SMALL_SEGMENT_BYTES, max_split_bytes, rounding

BEFORE = -1
"""The `begin` of an allocation made before the first event; also the `end` of one that was freed before it."""


class Lifetimes:
    """Allocations as columns of equal length, in the order they were made; those from before the first event first.

    `begin` is the number of the event that made it (`BEFORE` if none did), `end` that of its free_requested event (the
    number of events if it was never freed), `completed` that of its free_completed event (likewise).
    `requested_bytes` is what was asked for, `block_bytes` what the allocator counts as allocated for it.
    """

    __slots__ = ("address", "begin", "block_bytes", "completed", "end", "requested_bytes", "stack", "stream")

    def __init__(self) -> None:
        self.address, self.requested_bytes, self.block_bytes = array("Q"), array("Q"), array("Q")
        self.begin, self.end, self.completed = array("q"), array("q"), array("q")
        self.stream, self.stack = array("Q"), array("I")

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The allocator's figures after each event, in bytes as torch.cuda.memory_stats() counts them, and all lifetimes.

    `before_*` are the figures before the first event. `end_error_bytes` is what is allocated after the last event less
    what the recorded final state says: 0 when the replay is exact, None when there is no final state.
    """

    lifetimes: Lifetimes
    allocated_bytes: array[int]
    active_bytes: array[int]
    reserved_bytes: array[int]
    before_allocated_bytes: int
    before_active_bytes: int
    before_reserved_bytes: int
    end_error_bytes: int | None


def replay(trace: DeviceTrace, settings: Mapping[str, Any] | None = None) -> Replay:
    """Replay the events of one card.

    >>> from dryfit.recording.model import Events
    >>> events = Events()  # 12 MiB from the card, and a request of 11: too little would be left over to split
    >>> events.kind.extend((SEGMENT_ALLOC, ALLOC))
    >>> events.size.extend((12 << 20, 11 << 20))
    >>> for column in (events.address, events.stream, events.stack):
    ...     column.extend((0, 0))
    >>> list(replay(DeviceTrace(device=0, events=events, starts_empty=True)).allocated_bytes)
    [0, 12582912]

    `settings` are PyTorch's own, as a snapshot's `allocator_settings` and `Recording.about["allocator_settings"]` have
    them; of these `roundup_power2_divisions` and `max_split_size` matter. Sizes are bytes.
    What was held before the first event is found from the events and the final segments. Where these do not agree,
    because events were lost, the replay goes on: an unknown free is passed over, a block on a living one ends that, and
    reserved memory is at least what the blocks need.

    Raises:
        UsageError: the columns differ in length, or addresses and sizes reach beyond 64 bits.
    """
    events = trace.events
    columns = (events.address, events.size, events.stream, events.stack)
    if any(len(column) != len(events) for column in columns):
        raise UsageError("The recording's columns of events differ in length: it is damaged; record it again.")
    rounded, max_split = rounding(settings), max_split_bytes(settings)
    before = state_before(trace, rounded, max_split)
    extra_bytes: dict[int, int] = {}
    try:
        replayed = _replay(trace, before, before.extents(max_split), rounded, extra_bytes)
        if extra_bytes:
            before = before.enlarged(extra_bytes)
            replayed = _replay(trace, before, before.extents(max_split), rounded, {})
        return replayed
    except OverflowError:
        raise UsageError(
            "The recording has addresses or sizes beyond 64 bits, which no card has: it is damaged; record it again."
        ) from None


def _replay(
    trace: DeviceTrace, before: Before, extents: Extents, rounded: Callable[[int], int], extra_bytes: dict[int, int]
) -> Replay:
    """Replay from a state. What blocks of it, by their places, turn out to have more is put into `extra_bytes`."""
    events = trace.events
    never = len(events)
    begin = array("q", [BEFORE]) * len(before.blocks)
    end = array("q", [BEFORE if block.is_awaiting_free else never for block in before.blocks])
    completed = array("q", [never]) * len(before.blocks)
    block_bytes = array("Q", [block.size for block in before.blocks])
    live = {block.address: number for number, block in enumerate(before.blocks)}
    segments = dict(before.segments)
    uncertain = sorted(before.uncertain)

    before_active = active = sum(block_bytes)
    before_allocated = allocated = active - sum(block.size for block in before.blocks if block.is_awaiting_free)
    reserved = before.reserved_bytes
    allocated_series, active_series, reserved_series = array("Q"), array("Q"), array("Q")
    block_of_size: dict[int, int] = {}
    for event, (kind, address, size) in enumerate(zip(events.kind, events.address, events.size, strict=True)):
        if kind == ALLOC:
            block = block_of_size.get(size) or block_of_size.setdefault(size, rounded(size))
            if address in live:  # its free was lost
                allocation = live[address]
                active -= block_bytes[allocation]
                completed[allocation] = event
                if end[allocation] == never:
                    allocated -= block_bytes[allocation]
                    end[allocation] = event
            if uncertain:
                start = uncertain[bisect_right(uncertain, address) - 1]
                allocation, extra = before.uncertain[start], address - start
                # Blocks begin where extents do: if this one does not, the block before it reaches up to here.
                if (
                    0 < extra <= SMALL_POOL_BYTES
                    and extents.end_of.get(start, 0) > address
                    and completed[allocation] == never
                ):
                    extents.shorten(start, address)
                    extra_bytes[allocation] = extra
                    block_bytes[allocation] += extra
                    active += extra
                    allocated += extra if end[allocation] == never else 0
            if block > SMALL_POOL_BYTES:
                block = extents.take(address, block)
            live[address] = len(block_bytes)
            block_bytes.append(block)
            begin.append(event)
            end.append(never)
            completed.append(never)
            allocated += block
            active += block
        elif kind == FREE_REQUESTED:
            if address in live:
                allocation = live[address]
                if end[allocation] == never:
                    end[allocation] = event
                    allocated -= block_bytes[allocation]
        elif kind == FREE_COMPLETED:
            if address in live:
                allocation = live.pop(address)
                block = block_bytes[allocation]
                completed[allocation] = event
                active -= block
                if end[allocation] == never:
                    end[allocation] = event
                    allocated -= block
                if block > SMALL_POOL_BYTES:
                    extents.give_back(address, block)
        elif kind == SEGMENT_ALLOC:
            reserved += size - segments.pop(address, 0)
            segments[address] = size
            if size > SMALL_SEGMENT_BYTES:
                extents.add_segment(address, size)
        elif kind == SEGMENT_FREE:
            segment = segments.pop(address, 0)
            reserved -= segment
            extents.remove_segment(address, segment)
        elif kind == SEGMENT_MAP:
            reserved += size
        elif kind == SEGMENT_UNMAP:
            reserved = max(0, reserved - size)
        allocated_series.append(allocated)
        active_series.append(active)
        reserved_series.append(reserved)

    before_reserved = before.reserved_bytes
    missing = max(map(operator.sub, active_series, reserved_series), default=0)
    missing = max(missing, before_active - before_reserved)
    if missing > 0:
        before_reserved += missing
        reserved_series = array("Q", [size + missing for size in reserved_series])
    end_error = None
    if trace.segments is not None:
        blocks = (block for segment in trace.segments for block in segment.blocks)
        end_error = allocated - sum(block.size for block in blocks if block.state == ALLOCATED)
    return Replay(
        lifetimes=_lifetimes(trace, before, begin, end, completed, block_bytes),
        allocated_bytes=allocated_series,
        active_bytes=active_series,
        reserved_bytes=reserved_series,
        before_allocated_bytes=before_allocated,
        before_active_bytes=before_active,
        before_reserved_bytes=before_reserved,
        end_error_bytes=end_error,
    )


def _lifetimes(
    trace: DeviceTrace,
    before: Before,
    begin: array[int],
    end: array[int],
    completed: array[int],
    block_bytes: array[int],
) -> Lifetimes:
    events, blocks = trace.events, before.blocks
    made = begin[len(blocks) :]
    lifetimes = Lifetimes()
    lifetimes.begin, lifetimes.end, lifetimes.completed, lifetimes.block_bytes = begin, end, completed, block_bytes
    for column, of_blocks, of_events in (
        (lifetimes.address, [block.address for block in blocks], events.address),
        (lifetimes.requested_bytes, [block.requested_size for block in blocks], events.size),
        (lifetimes.stream, [block.stream for block in blocks], events.stream),
        (lifetimes.stack, [block.stack for block in blocks], events.stack),
    ):
        column.extend(of_blocks)
        column.extend(map(of_events.__getitem__, made))
    return lifetimes
