"""Whether the addresses of segments decided anything in a recording: a cheap look, before it is played again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from dryfit.recording.model import (
    ALLOC,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    DeviceTrace,
)
from dryfit.recording.rounding import SMALL_POOL_BYTES, SMALL_SEGMENT_BYTES, max_split_bytes, rounding

# The comparators of c10/cuda/CUDACachingAllocator.cpp: (stream, size, address) up to 2.11, (stream, size, the block's
# number) in 2.12, (stream, size, the segment's number, address) from 2.13 on.
_FIRST_BY_AGE = (2, 12)
_Kind = tuple[int, bool, int]  # stream, whether of the small pool, size in bytes


def go_by_address(torch: str) -> bool:
    """Whether this version of torch chooses between free blocks of one size by their segments' addresses.

    >>> go_by_address("2.6.0+cu124"), go_by_address("2.14.1+cu130")
    (True, False)

    Later ones take the block of the older segment, wherever it lies.
    """
    return tuple(int(part) for part in re.findall(r"\d+", torch)[:2]) < _FIRST_BY_AGE


def may_decide(trace: DeviceTrace, allocator_settings: Mapping[str, Any] | None = None) -> bool:
    """Whether another order of the segments' addresses could have changed any figure of a recording.

    >>> may_decide(DeviceTrace(device=0, events=Events(), starts_empty=True))
    False

    Free blocks that a request fits equally well are told apart by address. Where they are all of one segment, or all
    whole segments, it makes no difference which is taken: then the segments would have changed places, and nothing
    else, under any order. What cannot be told counts as yes: a recording that begins later, expandable segments, and
    a garbage collection, which goes by the age of blocks.
    """
    settings = allocator_settings or {}
    if not trace.starts_empty or settings.get("garbage_collection_threshold"):
        return True
    free = _FreeBlocks(settings)
    events = trace.events
    for kind, address, size, stream in zip(events.kind, events.address, events.size, events.stream, strict=True):
        if kind == ALLOC:
            if size and not free.take(address, size):
                return True
        elif kind == FREE_COMPLETED:
            free.give_back(address)
        elif kind == SEGMENT_ALLOC:
            free.add_segment(address, size, stream)
        elif kind == SEGMENT_FREE:
            free.remove_segment(address)
        elif kind in (SEGMENT_MAP, SEGMENT_UNMAP):
            return True
    return False


class _FreeBlocks:
    """The blocks of all segments, as recorded requests split and join them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._rounded, self._max_split = rounding(settings), max_split_bytes(settings)
        self._size: dict[int, int] = {}  # of each block, by address; so are the next three
        self._segment: dict[int, int] = {}  # the address of its segment
        self._before: dict[int, int] = {}  # the block below it in its segment
        self._is_free: dict[int, bool] = {}
        self._segments: dict[int, _Kind] = {}
        self._free_in: defaultdict[_Kind, dict[int, int]] = defaultdict(dict)  # how many in each segment
        self._parts: defaultdict[_Kind, int] = defaultdict(int)  # how many that are not whole segments

    def add_segment(self, address: int, size: int, stream: int) -> None:
        self._segments[address] = (stream, size == SMALL_SEGMENT_BYTES, size)
        self._put(address, size, address)

    def remove_segment(self, address: int) -> None:
        if self._is_free.get(address):
            self._withdraw(address)
            for column in (self._size, self._segment, self._is_free, self._segments):
                del column[address]

    def take(self, address: int, requested: int) -> bool:
        """Serve a request from the block that served it; False where addresses decided that, or it is not known."""
        if not self._is_free.get(address):
            return False
        kind = self._kind(address)
        if len(self._free_in[kind]) > 1 and self._parts[kind]:
            return False
        self._withdraw(address)
        size = self._rounded(requested)
        left = self._size[address] - size
        splits = left > 0 if kind[1] else left > SMALL_POOL_BYTES and size < self._max_split
        if splits:
            self._size[address] = size
            rest, above = address + size, address + size + left
            if self._before.get(above) == address:
                self._before[above] = rest
            self._before[rest] = address
            self._put(rest, left, self._segment[address])
        return True

    def give_back(self, address: int) -> None:
        if self._is_free.get(address, True):
            return
        size = self._size[address]
        above = address + size
        if self._before.get(above) == address and self._is_free[above]:
            size += self._remove(above)
        below = self._before.get(address)
        if below is not None and self._is_free[below]:
            self._withdraw(below)
            self._remove(address)
            size += self._size[below]
            address = below
        last = address + size
        if last in self._before:
            self._before[last] = address
        self._put(address, size, self._segment[address])

    def _kind(self, address: int) -> _Kind:
        stream, is_small, _ = self._segments[self._segment[address]]
        return stream, is_small, self._size[address]

    def _put(self, address: int, size: int, segment: int) -> None:
        self._size[address], self._segment[address], self._is_free[address] = size, segment, True
        kind = self._kind(address)
        there = self._free_in[kind]
        there[segment] = there.get(segment, 0) + 1
        self._parts[kind] += size != self._segments[segment][2]

    def _withdraw(self, address: int) -> None:
        """Have a block be free no more."""
        kind, segment = self._kind(address), self._segment[address]
        there = self._free_in[kind]
        there[segment] -= 1
        if not there[segment]:
            del there[segment]
        self._parts[kind] -= kind[2] != self._segments[segment][2]
        self._is_free[address] = False

    def _remove(self, address: int) -> int:
        """Have a block be part of the one below it; its size."""
        if self._is_free[address]:
            self._withdraw(address)
        del self._segment[address], self._is_free[address], self._before[address]
        return self._size.pop(address)
