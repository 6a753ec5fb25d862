"""The free memory between the blocks of the large pool, kept as the allocator keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dryfit.recording.rounding import NO_LIMIT, SMALL_POOL_BYTES


@dataclass(slots=True, kw_only=True)
class Extents:
    """Free extents, which blocks are cut from and given back to, and merge with free neighbours of their segment.

    >>> extents = Extents()
    >>> extents.add_segment(0, 24 << 20)
    >>> extents.take(0, 11 << 20) >> 20, extents.take(11 << 20, 12 << 20) >> 20  # the last MiB is not split off
    (11, 13)

    Only segments of the large pool belong here. In the small pool and in expandable segments every block is as large as
    its rounded request, for there what is left over is always split off (`should_split` in PyTorch's
    `CUDACachingAllocator.cpp`).
    """

    max_split_bytes: int = NO_LIMIT
    end_of: dict[int, int] = field(default_factory=dict)
    """Ends of extents by their starts."""
    _start_of: dict[int, int] = field(default_factory=dict)
    _segment_starts: set[int] = field(default_factory=set)
    _placed: set[int] = field(default_factory=set)

    def add_segment(self, address: int, size: int, blocks: Mapping[int, int] | None = None) -> None:
        """Add a segment with its blocks, sizes by address, in the order of their addresses."""
        self._segment_starts.add(address)
        free = address
        for block, block_bytes in (blocks or {}).items():
            self._add(free, block)
            self._placed.add(block)
            free = max(free, block + block_bytes)
        self._add(free, address + size)

    def remove_segment(self, address: int, size: int) -> None:
        """Forget a segment that is all free again."""
        if self.end_of.get(address) == address + size:
            del self.end_of[address]
            self._start_of.pop(address + size, None)
        self._segment_starts.discard(address)

    def take(self, address: int, size: int) -> int:
        """Cut a block for a rounded request off the extent that begins at an address; give the block's size."""
        stop = self.end_of.get(address, 0)
        left = stop - address - size
        if left < 0:  # no extent of the large pool begins here
            return size
        del self.end_of[address]
        self._start_of.pop(stop, None)
        self._placed.add(address)
        if left <= SMALL_POOL_BYTES or size >= self.max_split_bytes:
            return size + left
        self._add(address + size, stop)
        return size

    def give_back(self, address: int, size: int) -> None:
        """Take a block back, if it was taken from here."""
        if address not in self._placed:
            return
        self._placed.discard(address)
        start, stop = address, address + size
        if start not in self._segment_starts:
            start = self._start_of.pop(start, start)
        if stop not in self._segment_starts:
            stop = self.end_of.pop(stop, stop)
        self._add(start, stop)

    def shorten(self, start: int, new_start: int) -> None:
        """Let an extent begin later, for the block before it is larger than was known."""
        self._add(new_start, self.end_of.pop(start))

    def _add(self, start: int, stop: int) -> None:
        if start < stop:
            self.end_of[start] = stop
            self._start_of[stop] = start
