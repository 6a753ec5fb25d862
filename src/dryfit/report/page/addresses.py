"""Where blocks and segments lie: the spans of a segment over time, and addresses with the gaps left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from dryfit.recording.model import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, DeviceTrace
from dryfit.recording.replay import BEFORE, Lifetimes


class Span(NamedTuple):
    """Memory that PyTorch held from the card, from event `begin` to event `end` (the number of events: to the end)."""

    begin: int
    end: int
    address: int
    size_bytes: int


def segment_spans(trace: DeviceTrace) -> list[Span]:
    """Every segment's span; of expandable segments, that of each mapped range.

    >>> from dryfit.recording.model import Events
    >>> events = Events()
    >>> events.kind.extend((SEGMENT_ALLOC, SEGMENT_FREE)), events.address.extend((512, 512))
    (None, None)
    >>> events.size.extend((1024, 1024))
    >>> segment_spans(DeviceTrace(device=0, events=events))
    [Span(begin=0, end=1, address=512, size_bytes=1024)]
    """
    events, spans = trace.events, []
    open_ranges: dict[int, tuple[int, int]] = {}  # by address: the event that opened it, and its size
    for event, kind in enumerate(events.kind):
        if kind in (SEGMENT_ALLOC, SEGMENT_MAP):
            open_ranges[events.address[event]] = event, events.size[event]
        elif kind in (SEGMENT_FREE, SEGMENT_UNMAP):
            spans += _close(open_ranges, event, events.address[event], events.size[event])
    for address, (begin, size) in open_ranges.items():
        spans.append(Span(begin, len(events), address, size))
    for segment in trace.segments or ():
        segment_end = segment.address + segment.total_size
        held = sum(size for address, (_, size) in open_ranges.items() if segment.address <= address < segment_end)
        if held < segment.total_size:  # some of it is from before the first event; what was mapped later lies on it
            spans.append(Span(BEFORE, len(events), segment.address, segment.total_size))
    return sorted(spans)


def _close(open_ranges: dict[int, tuple[int, int]], event: int, address: int, size: int) -> list[Span]:
    """What an event gives back to the card; an unmap may take several ranges, or a part of one."""
    exact = open_ranges.get(address)
    if exact is not None and exact[1] == size:
        del open_ranges[address]
        return [Span(exact[0], event, address, size)]
    end, spans, covered = address + size, [], 0
    for start, (begin, length) in list(open_ranges.items()):
        low, high = max(start, address), min(start + length, end)
        if low >= high:
            continue
        del open_ranges[start]
        spans.append(Span(begin, event, low, high - low))
        covered += high - low
        if start < low:
            open_ranges[start] = begin, low - start
        if high < start + length:
            open_ranges[high] = begin, start + length - high
    if covered < size:
        spans.append(Span(BEFORE, event, address, size))
    return spans


class Compact:
    """Addresses without the gaps between used ranges, in whole units: 512 bytes, the allocator's own, where that works.

    >>> compact = Compact([(512, 1024), (1 << 40, 512), (1024, 1024)])
    >>> compact.place(1 << 40), compact.total, compact.ranges
    (3, 4, [(512, 1536, 0), (1099511627776, 512, 3)])
    """

    def __init__(self, used: Iterable[tuple[int, int]]) -> None:
        merged: list[list[int]] = []
        for address, size in sorted(set(used)):
            if merged and address <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], address + size)
            else:
                merged.append([address, address + size])
        whole = all(start % 512 == 0 and end % 512 == 0 for start, end in merged)
        self.unit_bytes = 512 if whole else 1
        sizes = [(end - start) // self.unit_bytes for start, end in merged]
        places = list(accumulate(sizes, initial=0))
        self.total = places.pop()
        self.starts = [start for start, _ in merged]
        self.places = places
        self.ranges = [(start, end - start, place) for (start, end), place in zip(merged, places, strict=True)]
        """Address, size in bytes and place in units of each used range."""

    def place(self, address: int) -> int:
        """Where an address of a used range lies, in units from the first."""
        which = bisect_right(self.starts, address) - 1
        return self.places[which] + (address - self.starts[which]) // self.unit_bytes


def compact_addresses(spans: Iterable[Span], lifetimes: Lifetimes) -> Compact:
    """The addresses of all segments and blocks, compacted."""
    used = {(span.address, span.size_bytes) for span in spans}
    used.update(zip(lifetimes.address, lifetimes.block_bytes, strict=True))
    return Compact(used)
